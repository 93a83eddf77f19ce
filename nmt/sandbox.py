"""A check of untrusted files: a child process loads each file once before this process loads it.

A damaged file can crash the C++ libraries that read tokenizers and exports. The cache directory records the hashes of
files that can be loaded. These files are not checked again.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from nmt.errors import ModelError, NmtError
from nmt.files import cache_directory, sha256
from nmt.processes import child_variables

log = logging.getLogger("nmt")

TIMEOUT_S = 60
MAX_BYTES = 2_000_000_000  # limit of the child's address space for an empty file
MAX_BYTES_PER_BYTE = 100  # each byte of the file raises the limit by this number
SAMPLE = "Ein Hund läuft. 我 喜欢 茶  \t\u2028\x85 👩‍👩‍👧 \ufeffא ﬁ <s> 0x00 \x01"


def check_loadable(library: str, name: str, content: bytes, directory: str = "") -> None:
    """Check in a child process that a library can load a file. Raises ModelError if loading fails.

    A file that is recorded as loadable is not checked again.

    Args:
        library: `sentencepiece`, which loads `content`, or `ctranslate2`, which loads `directory`.
        name: the name of the file in messages.
        content: the bytes of the file. For a directory, a list of its files and their hashes.
    """
    mark = _mark(library, content)
    if mark.exists():
        return
    # 1. Load the file in a child process.
    command = [sys.executable, "-m", "nmt.sandbox", library, directory]
    env = {**os.environ, **child_variables()}
    null = subprocess.DEVNULL
    try:
        code = subprocess.run(command, input=content, stdout=null, stderr=null, env=env, timeout=TIMEOUT_S).returncode
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{name} takes over {TIMEOUT_S} s to load", hint="check that it is the right file") from error
    # 2. Raise an error if the library has raised an exception, or crashed.
    if code:
        hint = "get it from its source again, or make it again"
        raise ModelError(f"{name} is damaged or not in the format of {library}", hint=hint)
    with contextlib.suppress(OSError):  # if the mark cannot be written, the file is checked again next time
        mark.touch()


def is_known(library: str, content: bytes) -> bool:
    """Return whether a record says that the library can load this content."""
    return _mark(library, content).exists()


def mark_loadable(library: str, content: bytes) -> None:
    """Record that a library can load this content. Call this function for a file that this process has made."""
    with contextlib.suppress(OSError):
        _mark(library, content).touch()


def _mark(library: str, content: bytes) -> Path:
    """Return the path of a record: the file exists if this version of the library can load the content."""
    try:
        version, digest = metadata.version(library), sha256(content)
        return cache_directory() / f"{library}-{version}-{digest}"
    except NmtError as error:
        log.warning("%s; nothing is remembered", error)
        return Path(os.devnull, "mark")  # a path that can never be created


def main(library: str, directory: str) -> None:
    """Run in the child process: load the file, and use each part of its content once."""
    # 1. Limit memory and time, so that a malicious file can harm only this process.
    content = sys.stdin.buffer.read()
    size = len(content)
    if directory:
        size = sum(file.stat().st_size for file in Path(directory).iterdir())
    with contextlib.suppress(ImportError, ValueError, OSError):  # some systems have no such limits
        import resource

        limit = MAX_BYTES + MAX_BYTES_PER_BYTE * size
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        signal.alarm(TIMEOUT_S)  # ends this process if the library hangs, even if the parent was killed
    # 2. Load the file.
    if library == "ctranslate2":
        import ctranslate2

        engine = ctranslate2.Translator(directory, compute_type="default", inter_threads=1, intra_threads=1)
        engine.translate_batch([["<unk>"]], max_decoding_length=5)
        return
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    # 3. Decode each piece, and encode and decode text with many kinds of character.
    for i in range(processor.get_piece_size()):
        processor.decode([i])
        processor.id_to_piece(i)
    for text in (SAMPLE, SAMPLE * 1000):
        processor.decode(processor.encode(text))


if __name__ == "__main__":
    main(*sys.argv[1:])
