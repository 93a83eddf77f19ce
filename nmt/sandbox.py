"""Loads an untrusted file in a child process, once per file, before this process loads it.

Tokenizers and exports are read by C++ libraries, which a damaged file can crash. The user's cache directory records the
hashes of files that were loaded successfully, and of tokenizers trained by nmt. Imports no torch.
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
MAX_BYTES = 2_000_000_000  # address space of the child for an empty file
MAX_BYTES_PER_BYTE = 100  # additional address space per byte of the file
REFUSED = 1  # Python's exit code if the library raises an exception
SAMPLE = "Ein Hund läuft. 我 喜欢 茶  \t\u2028\x85 👩‍👩‍👧 \ufeffא ﬁ <s> 0x00 \x01"


def check_loadable(library: str, name: str, content: bytes, directory: str = "") -> None:
    """Load a file in a child process, unless it was loaded before. Raises ModelError, with `name`, on failure.

    `sentencepiece` loads `content`. `ctranslate2` loads `directory`, and `content` lists its files and their hashes.
    """
    mark = _mark(library, content)
    if mark.exists():
        return
    size = sum(file.stat().st_size for file in Path(directory).iterdir()) if directory else len(content)
    limit = MAX_BYTES + MAX_BYTES_PER_BYTE * size
    command = [sys.executable, "-m", "nmt.sandbox", library, str(limit), directory]
    stdin = b"" if directory else content
    env = {**os.environ, **child_variables()}
    null = subprocess.DEVNULL
    try:
        code = subprocess.run(command, input=stdin, stdout=null, stderr=null, env=env, timeout=TIMEOUT_S).returncode
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{name} takes over {TIMEOUT_S} s to load", hint="check that it is the right file") from error
    if code == REFUSED:
        raise ModelError(f"{name} is damaged or not in the format of {library}", hint="copy it or make it again")
    if code:
        hint = "it is damaged or malicious: get it from another source, or make it again"
        raise ModelError(f"{name} crashes the process that loads it (exit code {code})", hint=hint)
    with contextlib.suppress(OSError):  # on a full disk, the file is checked again next time
        mark.touch()


def mark_loadable(library: str, content: bytes) -> None:
    """Record that a file is loadable, because this process has made it."""
    with contextlib.suppress(OSError):
        _mark(library, content).touch()


def _mark(library: str, content: bytes) -> Path:
    """Return the path of a file whose existence records that this version of the library can load the content."""
    try:
        return cache_directory() / f"{library}-{metadata.version(library)}-{sha256(content)}"
    except NmtError as error:
        log.warning("%s; nothing is remembered", error)
        return Path(os.devnull, "mark")  # a path that can never be created


def main(library: str, limit: str, directory: str) -> None:
    """In the child process: load the file and use each of its parts once."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # not available on every system
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (int(limit), int(limit)))
        signal.alarm(TIMEOUT_S)  # ends a hanging library even if the parent was killed
    if library == "ctranslate2":
        import ctranslate2

        engine = ctranslate2.Translator(directory, compute_type="default", inter_threads=1, intra_threads=1)
        engine.translate_batch([["<unk>"]], max_decoding_length=5)
        return
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=sys.stdin.buffer.read())
    for i in range(processor.get_piece_size()):
        processor.decode([i])
        processor.id_to_piece(i)
    for text in (SAMPLE, SAMPLE * 1000):
        processor.decode(processor.encode(text))


if __name__ == "__main__":
    main(*sys.argv[1:])
