"""The streams of the commands: input lines from stdin or files, data to stdout, log and progress bar to stderr."""

import contextlib
import json
import logging
import os
import stat
import sys
import webbrowser
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from nmt.distributed import launched
from nmt.errors import OutputError
from nmt.files import atomic_writer
from nmt.text.lines import Pause, decode_lines, iter_lines, n_lines_left, open_bytes, raw_lines, reading, with_pauses

Item = TypeVar("Item")
log = logging.getLogger("nmt")

DASH = Path("-")  # stands for stdin or stdout
PAUSE_S = 1.0  # after this many seconds without a new line on stdin, the lines so far are translated


class StderrHandler(logging.Handler):
    """A handler that prints log messages above the progress bar. Warnings and errors begin with their level."""

    def emit(self, record: logging.LogRecord) -> None:
        # 1. Format the record.
        message = printable(record.getMessage())
        if record.levelno >= logging.WARNING:
            message = f"nmt: {record.levelname.lower()}: {message}"
        # 2. Print it above the progress bar.
        tqdm = sys.modules.get("tqdm")  # None if there is no progress bar
        write = tqdm.tqdm.write if tqdm else print
        write(message, file=sys.stderr)


def set_up_logging(quiet: bool, verbose: bool) -> None:
    """Send the log to stderr. With `quiet` or in any rank but the first, log only warnings and errors."""
    log.handlers = [StderrHandler()]
    # Do not pass messages to the root logger, which would print them again.
    log.propagate = False
    level = logging.DEBUG if verbose else logging.INFO
    log.setLevel(logging.WARNING if quiet or launched().rank else level)


def is_quiet() -> bool:
    return not log.isEnabledFor(logging.INFO)


def printable(line: str) -> str:
    """Escape control characters, so that file names and texts cannot control the user's terminal."""
    escaped = [c if c.isprintable() else c.encode("unicode_escape").decode() for c in line]
    return "".join(escaped)


def with_bar(items: Iterable[Item], n_lines: int | None, n_done: int = 0) -> Iterable[Item]:
    """Return the items, with a progress bar if stderr is a terminal.

    There is no bar with -q, or if the number of lines is None.
    """
    if n_lines is None or is_quiet():
        return items
    from tqdm import tqdm

    # smoothing=0 shows the mean rate, because lines come in windows. disable=None shows no bar without a terminal.
    return tqdm(items, total=n_lines, initial=n_done, unit=" lines", smoothing=0, disable=None)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for people, with escaped control characters."""
    for line in lines:
        print(printable(line))


def print_json(tree: object) -> None:
    """Print a value as one line of JSON."""
    print(json.dumps(tree, ensure_ascii=False))


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Yield a binary stream: a file that is written atomically, or stdout if the path is None or `-`."""
    if path and path != DASH:
        with atomic_writer(path) as out:
            yield out
    # The shell has closed stdout, as in `nmt translate >&-`.
    elif sys.stdout is None:
        raise OutputError("stdout is closed", hint="write to a file with -o")
    else:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


def write_lines(lines: Iterable[str], source: Path | None, output: Path | None) -> None:
    """Write lines, one for each line of `source`, with a progress bar.

    Args:
        lines: the lines to write.
        source: a file, or stdin if it is None or `-`.
        output: a file, or stdout if it is None or `-`.
    """
    with open_output(output) as out:
        write_at_once(out, with_bar(lines, bar_length(source, output)))


def write_at_once(out: BinaryIO, lines: Iterable[str]) -> None:
    """Write and flush each line, so that a program behind a pipe gets it, and a kill does not lose it."""
    for line in lines:
        out.write(f"{line}\n".encode())
        out.flush()


def write_text(path: Path, text: str, *, show: bool = False) -> None:
    """Write a text to a file atomically, or to stdout if the path is `-`. With `show`, open the file in a browser."""
    with open_output(path) as out:
        out.write(text.encode(errors="backslashreplace"))  # a file name in the text may not be valid UTF-8
    log.info("written to %s", path)
    if show:
        webbrowser.open(path.absolute().as_uri())


def open_input(path: Path | None) -> Iterator[str | Pause]:
    """Return the lines of a file, or of stdin if the path is None or `-`. At a keyboard, show a prompt."""
    if path and path != DASH:
        return iter_lines([path])
    # The shell has closed stdin, as in `nmt translate <&-`.
    if sys.stdin is None:
        return iter(())
    # stdin is a keyboard.
    if sys.stdin.isatty():
        return prompt()
    # stdin is a file, in which no pause can occur.
    if is_file_on_stdin():
        return decode_lines(raw_lines(sys.stdin.buffer, "stdin"), "stdin")
    # stdin is a pipe. A thread reads it through a copy of the descriptor. If the thread read sys.stdin itself, it would
    # hold the lock that Python needs at exit.
    stream = open(os.dup(0), "rb")  # noqa: SIM115, PTH123 - the thread may read it until the process ends
    return with_pauses(decode_lines(raw_lines(stream, "stdin"), "stdin"), PAUSE_S)


def is_file_on_stdin() -> bool:
    return sys.stdin is not None and stat.S_ISREG(os.fstat(0).st_mode)


def prompt() -> Iterator[str | Pause]:
    """Yield lines from the keyboard, and two pauses after each line.

    The first pause starts the translation of the line. The second lets its search finish.
    """
    print("one sentence per line; Ctrl-D ends\n> ", end="", file=sys.stderr, flush=True)
    for line in sys.stdin.buffer:
        yield line.decode(errors="replace").rstrip("\r\n")
        yield Pause()
        yield Pause()
        print("> ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def bar_length(path: Path | None, output: Path | None) -> int | None:
    """Return the number of input lines for a progress bar. If there is no bar or no input file, return None."""
    # If the translations are printed to a terminal, a bar would break them up.
    to_terminal = output in (None, DASH) and sys.stdout is not None and sys.stdout.isatty()
    if to_terminal or not sys.stderr.isatty():
        return None
    if path is None or path == DASH:
        return n_lines_left(sys.stdin.buffer, "stdin") if is_file_on_stdin() else None
    return count_lines(path) if path.is_file() else None


def count_lines(path: Path) -> int:
    """Return the number of lines that `iter_lines` yields for a file. The file may be gzipped."""
    with open_bytes(path) as stream, reading(str(path)):
        return n_lines_left(stream, str(path))
