"""Where lines come from and where translations go: files, pipes, a terminal."""

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from nmt.errors import OutputError
from nmt.files import atomic_writer
from nmt.text.lines import Pause, decode_lines, iter_lines, n_lines_left, open_bytes, raw_lines, reading, with_pauses

PAUSE_S = 1.0  # after which the lines that have arrived on stdin are translated


def named_file(path: Path | None) -> Path | None:
    """The path; None if it is missing or `-`, which mean stdin or stdout."""
    return None if path == Path("-") else path


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[tuple[BinaryIO, int]]:
    """Stdout, or a file that is written atomically; and the number of lines in it, 0, as `resumed_output` yields it."""
    if file := named_file(path):
        with atomic_writer(file) as out:
            yield out, 0
    elif sys.stdout is None:
        raise OutputError("stdout is closed", hint="write to a file with -o")
    else:
        yield sys.stdout.buffer, 0
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def open_input(text: str | None, path: Path | None) -> Iterator[Iterator[str | Pause]]:
    """The lines of the TEXT argument, a file, stdin or a prompt."""
    if text is not None:
        yield iter(text.split("\n"))
    elif file := named_file(path):
        yield iter_lines([file])
    elif sys.stdin is None:
        yield iter(())
    elif sys.stdin.isatty():
        yield prompt()
    elif is_file_on_stdin():
        yield decode_lines(raw_lines(sys.stdin.buffer, "stdin"), "stdin")
    else:
        # A separate descriptor, because Python locks sys.stdin at exit, when the thread may still be reading it.
        stream = open(os.dup(0), "rb")  # noqa: SIM115, PTH123 - the thread may read it until the process ends
        yield with_pauses(decode_lines(raw_lines(stream, "stdin"), "stdin"), PAUSE_S)


def is_prompt(text: str | None, path: Path | None) -> bool:
    """Whether `open_input` reads from a terminal."""
    return text is None and named_file(path) is None and sys.stdin is not None and sys.stdin.isatty()


def is_terminal(path: Path | None) -> bool:
    """Whether `open_output` writes to a terminal."""
    return named_file(path) is None and sys.stdout is not None and sys.stdout.isatty()


def is_file_on_stdin() -> bool:
    """Whether stdin is redirected from a regular file."""
    return sys.stdin is not None and stat.S_ISREG(os.fstat(0).st_mode)


def prompt() -> Iterator[str]:
    """Lines typed at a prompt until Ctrl-D."""
    print("one sentence per line; Ctrl-D ends", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.buffer.readline()
        if not line:
            print(file=sys.stderr)
            return
        yield line.decode(errors="replace").rstrip("\r\n")


def count_lines(path: Path | None) -> int | None:
    """The number of lines to translate, for a progress bar; None if there is no bar or the input is not a file."""
    if not sys.stderr.isatty():
        return None
    file = named_file(path)
    if file is None:
        return n_lines_left(sys.stdin.buffer) if is_file_on_stdin() else None
    if not file.is_file():
        return None
    with open_bytes(file) as stream, reading(str(file)):
        return n_lines_left(stream)
