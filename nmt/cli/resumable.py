"""Resumable output: lines go to `FILE.part`, which becomes `FILE` when it is complete.

The first line of the part file, its header, is the origin of the output: input, model and options. A command resumes
only a part file with the same origin. Complete shards of an output keep the header.
"""

import contextlib
import io
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from nmt.errors import InputError, OutputError
from nmt.files import atomic_writer, locked, parse_json
from nmt.text.lines import n_lines_left, reading

log = logging.getLogger("nmt")


@contextlib.contextmanager
def resumed_output(
    path: Path, origin: Mapping[str, str], *, keep_header: bool = False
) -> Iterator[tuple[BinaryIO, int]]:
    """Yield a file to append lines to, and the number of its lines. It becomes `path` if the `with` block succeeds.

    Args:
        origin: the hash or value of each input, by name; an existing part file must have the same origin.
        keep_header: keep the header in the complete file. If a complete file with the same header exists, it is not
            changed, and its number of lines is yielded.
    Raises:
        InputError: the part file has another origin, or another process is writing it.
        OutputError: the part file cannot be written.
    """
    path = Path(os.path.realpath(path))
    part = path.with_name(f"{path.name}.part")
    header = json.dumps(origin).encode() + b"\n"
    if keep_header and path.is_file() and (n_lines := _n_lines_after(header, path)) is not None:
        log.info("%s is complete", path)
        if part.is_file() and _n_lines_after(header, part) is not None:
            part.unlink(missing_ok=True)  # the command was killed after it had written `path`
        yield io.BytesIO(), n_lines
        return
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
        n_lines = _seek_end(file, part, header, origin)
        if n_lines:
            log.info("%s: resuming after %d lines", part, n_lines)
        yield file, n_lines
        file.flush()
        file.seek(0 if keep_header else len(header))
        with atomic_writer(path) as whole:
            shutil.copyfileobj(file, whole)
        part.unlink(missing_ok=True)


def _n_lines_after(header: bytes, path: Path) -> int | None:
    """Count the lines after the header of a file. Returns None if the file does not begin with `header`."""
    with reading(str(path)), path.open("rb") as file:
        return n_lines_left(file) if file.readline(len(header)) == header else None


def _seek_end(file: BinaryIO, part: Path, header: bytes, origin: Mapping[str, str]) -> int:
    """Write the header of a new file, or truncate an old one after its last complete line.

    Returns the number of lines after the header.
    """
    first, n_lines, end = file.readline(), 0, len(header)
    if not first.endswith(b"\n"):
        file.seek(0)
        file.write(header)
    elif first != header:
        try:
            before = parse_json(first)
            changed = " and ".join(name for name in origin if before[name] != origin[name]) or "version"
        except (ValueError, KeyError, TypeError):
            changed = "file"
        hint = "restore it, or delete the part file to start over"
        raise InputError(f"{part} was started with another {changed}", hint=hint)
    for line in file:
        if line.endswith(b"\n"):
            n_lines += 1
            end += len(line)
    file.seek(end)
    file.truncate()
    return n_lines
