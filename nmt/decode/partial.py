"""A long output that a stopped command goes on with: `FILE.part` until it is whole, then `FILE`.

The first line of the part tells what it is made of, each other one is a line of output. So whoever goes on knows
how many lines are done, and that they are of the same input, model and options. Knows nothing of models.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from nmt.errors import InputError, OutputError
from nmt.files import atomic_writer, locked

log = logging.getLogger("nmt")

Origin = Mapping[str, str]  # what an output is made of: name to hash or value


@contextlib.contextmanager
def resumed_output(path: Path, origin: Origin) -> Iterator[tuple[BinaryIO, int]]:
    """A file to add lines to that takes the name `path` when the block ends well, and else stays a part.

    Args:
        path: what it will be called.
        origin: of this output; that of a part that is there must be the same.
    Yields:
        the file, and how many lines it has already.
    Raises:
        InputError: the part that is there is of another origin, or another process is writing it.
        OutputError: it cannot be written.
    """
    path = Path(os.path.realpath(path))
    part = path.with_name(f"{path.name}.part")
    top = json.dumps(origin).encode() + b"\n"
    with contextlib.ExitStack() as stack:
        try:
            part.touch()
            file = stack.enter_context(part.open("rb+"))
            stack.enter_context(locked(part))
        except OSError as error:
            raise OutputError(
                f"cannot write {part}: {error.strerror}",
                hint="check that the directory exists and that you may write there",
            ) from error
        except InputError as error:
            raise InputError(f"another command is writing {part}", hint="wait for it to end") from error
        n_lines = _cut(file, part, top, origin)
        if n_lines:
            log.info("%s: going on after %d lines", part, n_lines)
        yield file, n_lines
        file.flush()
        file.seek(len(top))
        with atomic_writer(path) as whole:
            shutil.copyfileobj(file, whole)
        part.unlink()


def _cut(file: BinaryIO, part: Path, top: bytes, origin: Origin) -> int:
    """Cut a part after its last complete line, begin it where it is new; its number of lines of output."""
    n_lines = end = 0
    first = b""
    for line in file:
        if line.endswith(b"\n"):
            end += len(line)
            n_lines += 1
            first = first or line
    if first not in (b"", top):
        try:
            before = json.loads(first)
            changed = " and ".join(name for name in origin if before[name] != origin[name]) or "version"
        except (ValueError, KeyError, TypeError):
            changed = "file"
        raise InputError(
            f"{part} was begun with another {changed}", hint="bring that back, or delete the part to begin anew"
        )
    file.seek(end)
    file.truncate()
    if not first:
        file.write(top)
        return 0
    return n_lines - 1


def hash_of(paths: list[Path]) -> str:
    """SHA-256 over the content of files, none of which is read into memory as a whole.

    Raises:
        InputError: one cannot be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}", hint="give the path of a file") from error
    return digest.hexdigest()
