"""What a stranger's file does to the process that loads it: tried out in a child process first, once a file.

The libraries behind tokenizers and exports are written in C++, where a broken file can end the process. What has
passed, or was made here, is remembered by its hash in the user's cache directory. Imports no torch.
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

LIMIT_S = 60
LIMIT_BYTES = 2_000_000_000  # of the child's address space, beside what the file's own size explains
BYTES_A_BYTE = 100  # that a library may take to load a file
REFUSED = 1  # the child's exit code for a file that its library refuses
SAMPLE = "Ein Hund läuft. 我 喜欢 茶  \t\u2028\x85 👩‍👩‍👧 \ufeffא ﬁ <s> 0x00 \x01"


def try_out(library: str, what: str, content: bytes, path: str = "") -> None:
    """Let a child process load what this process is about to load, unless it has passed before.

    Args:
        library: `sentencepiece`, which loads `content`, or `ctranslate2`, which loads the directory `path`.
        what: to call it in messages.
        content: the file, or what stands for it: the same content passes once.
        path: of a directory to load.
    Raises:
        ModelError: the library refuses it, or its process died of it.
    """
    mark = _mark(library, content)
    if mark is not None and mark.exists():
        return
    size = sum(f.stat().st_size for f in Path(path).iterdir()) if path else len(content)
    limit = LIMIT_BYTES + BYTES_A_BYTE * size
    try:
        code = subprocess.run(
            [sys.executable, "-m", "nmt.probe", library, str(limit), path],
            input=b"" if path else content,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **child_variables()},
            timeout=LIMIT_S,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{what} takes over {LIMIT_S} s to load", hint="is it what it should be?") from error
    if code == REFUSED:
        raise ModelError(f"{what} is damaged, or nothing that {library} reads", hint="get it or make it again")
    if code:
        raise ModelError(
            f"{what} kills the process that loads it (exit code {code}): it was tried out in another one",
            hint="it is damaged or hostile: get it from another place, or make it again",
        )
    _touch(mark)


def remember(library: str, content: bytes) -> None:
    """Take a file for one that has passed; one that was made here has."""
    _touch(_mark(library, content))


def _touch(mark: Path | None) -> None:
    with contextlib.suppress(OSError):  # a full disk costs the trial each time
        if mark is not None:
            mark.touch()


def _mark(library: str, content: bytes) -> Path | None:
    """An empty file that stands for a file and the version that has read it; None where there is no safe cache."""
    try:
        directory = cache_directory()
    except NmtError as error:  # what lies there proves nothing
        log.warning("%s; nothing is remembered", error)
        return None
    return directory / f"{library}-{metadata.version(library)}-{sha256(content)}"


def main(library: str, limit: str, path: str) -> None:
    """In the child: load the file and use each of its parts once."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (int(limit), int(limit)))
        signal.alarm(LIMIT_S)  # if the parent has been killed, nobody else ends a library that hangs
    if library == "ctranslate2":
        import ctranslate2

        engine = ctranslate2.Translator(path, compute_type="default", inter_threads=1, intra_threads=1)
        engine.translate_batch([["<unk>"]], max_decoding_length=5)
        return
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_proto=sys.stdin.buffer.read())
    for i in range(pieces.get_piece_size()):
        pieces.decode([i])
        pieces.id_to_piece(i)
    for text in (SAMPLE, SAMPLE * 1000):
        pieces.decode(pieces.encode(text))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception:  # whatever a library raises
        sys.exit(REFUSED)
