"""Resumable output: lines go to `FILE.part`, which becomes `FILE` when it is complete.

The first line of the part file, its header, is the origin of the output: input, model and options. A command resumes
only a part file with the same origin.
"""

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from nmt.errors import InputError, OutputError
from nmt.files import atomic_writer, locked, parse_json

log = logging.getLogger("nmt")

MAX_HEADER_BYTES = 100_000
Origin = Mapping[str, str]  # the hash or value of each input, by name


def read_origin(file: BinaryIO) -> Origin | None:
    """Read the header of a part file; None if the file does not begin with one."""
    with contextlib.suppress(ValueError):
        found = parse_json(file.readline(MAX_HEADER_BYTES))
        if isinstance(found, dict):
            return {str(name): str(value) for name, value in found.items()}
    return None


def complete_lines(file: BinaryIO) -> tuple[int, int]:
    """Count the lines that are left in a file and end in `\\n`; return their number and the end of the last one."""
    n_lines, end = 0, file.tell()
    for line in file:
        if line.endswith(b"\n"):
            n_lines, end = n_lines + 1, end + len(line)
    return n_lines, end


def changed(before: Origin | None, origin: Origin) -> str:
    """Name what differs between two origins: `input and model`."""
    if before is None:
        return "file"
    return " and ".join(name for name in origin if origin[name] != before.get(name)) or "version"


@contextlib.contextmanager
def resumed_output(path: Path, origin: Origin) -> Iterator[tuple[BinaryIO, int]]:
    """Yield a file to append lines to, and the number of its lines. It becomes `path` if the `with` block succeeds.

    Raises InputError if the part file has another origin, or another process is writing it, and OutputError.
    """
    path = Path(os.path.realpath(path))
    part = path.with_name(f"{path.name}.part")
    header = json.dumps(origin).encode() + b"\n"
    with contextlib.ExitStack() as stack:
        try:
            part.touch()
            file = stack.enter_context(part.open("rb+"))
            stack.enter_context(locked(part))
        except OSError as error:
            hint = "check that the directory exists and that you may write there"
            raise OutputError(f"cannot write {part}: {error.strerror or error}", hint=hint) from error
        except InputError as error:
            raise InputError(f"another command is writing {part}", hint="wait for it to end") from error
        if not file.readline().endswith(b"\n"):  # new, or its writer was killed at the start
            file.seek(0)
            file.write(header)
        file.seek(0)
        if (before := read_origin(file)) != origin:
            hint = "restore it, or delete the part file to start over"
            raise InputError(f"{part} was started with another {changed(before, origin)}", hint=hint)
        n_lines, end = complete_lines(file)
        file.seek(end)
        file.truncate()
        if n_lines:
            log.info("%s: resuming after %d lines", part, n_lines)
        yield file, n_lines
        file.seek(len(header))
        with atomic_writer(path) as whole:
            shutil.copyfileobj(file, whole)
        part.unlink(missing_ok=True)
