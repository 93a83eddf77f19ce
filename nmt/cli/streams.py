"""Standard streams of the commands: lines in, data to stdout, everything else (log, progress bar) to stderr."""

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
PAUSE_S = 1.0  # after a pause of this length on stdin, the lines received so far are translated


class StderrHandler(logging.Handler):
    """Prints log lines above the progress bar; warnings and errors with their level."""

    def emit(self, record: logging.LogRecord) -> None:
        # 1. Format the record.
        message = printable(record.getMessage())
        if record.levelno >= logging.WARNING:
            message = f"nmt: {record.levelname.lower()}: {message}"
        # 2. Print it above the bar.
        tqdm = sys.modules.get("tqdm")  # imported only if there is a progress bar
        write = tqdm.tqdm.write if tqdm else print
        write(message, file=sys.stderr)


def set_up_logging(quiet: bool, verbose: bool) -> None:
    """Log to stderr; ranks other than the first log only warnings."""
    log.handlers = [StderrHandler()]
    # The root logger would print the line again.
    log.propagate = False
    level = logging.DEBUG if verbose else logging.INFO
    log.setLevel(logging.WARNING if quiet or launched().rank else level)


def is_quiet() -> bool:
    return not log.isEnabledFor(logging.INFO)


def printable(line: str) -> str:
    """Escape the control characters of a line: a file name from a stranger must not control the terminal."""
    escaped = [c if c.isprintable() else c.encode("unicode_escape").decode() for c in line]
    return "".join(escaped)


def with_bar(items: Iterable[Item], n_lines: int | None, n_done: int = 0) -> Iterable[Item]:
    """Return the items, with a progress bar if stderr is a terminal; no bar with -q, or if `n_lines` is None."""
    if n_lines is None or is_quiet():
        return items
    from tqdm import tqdm

    # Lines come in windows, so show the mean rate: smoothing=0. disable=None: no bar if stderr is not a terminal.
    return tqdm(items, total=n_lines, initial=n_done, unit=" lines", smoothing=0, disable=None)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for people."""
    for line in lines:
        print(printable(line))


def print_json(tree: object) -> None:
    """Print one JSON object."""
    print(json.dumps(tree, ensure_ascii=False))


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Yield stdout, or a file that is written atomically."""
    if path and path != DASH:
        with atomic_writer(path) as out:
            yield out
    # stdout is closed: `nmt translate >&-`
    elif sys.stdout is None:
        raise OutputError("stdout is closed", hint="write to a file with -o")
    else:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


def write_text(path: Path, text: str, *, show: bool = False) -> None:
    """Write a file atomically, or to stdout for `-`, log its path, and if wanted, show it in a browser."""
    with open_output(path) as out:
        out.write(text.encode(errors="backslashreplace"))  # a file name in it may have bytes that are not UTF-8
    log.info("written to %s", path)
    if show:
        webbrowser.open(path.absolute().as_uri())


def open_input(path: Path | None) -> Iterator[str | Pause]:
    """Return the lines of a file, of stdin or of a prompt."""
    if path and path != DASH:
        return iter_lines([path])
    # stdin is closed: `nmt translate <&-`
    if sys.stdin is None:
        return iter(())
    # a keyboard
    if sys.stdin.isatty():
        return prompt()
    # a file, of which all lines are there
    if is_file_on_stdin():
        return decode_lines(raw_lines(sys.stdin.buffer, "stdin"), "stdin")
    # A separate descriptor: at exit, Python locks sys.stdin, which the thread of with_pauses may still be reading.
    stream = open(os.dup(0), "rb")  # noqa: SIM115, PTH123 - the thread may read it until the process ends
    return with_pauses(decode_lines(raw_lines(stream, "stdin"), "stdin"), PAUSE_S)


def is_file_on_stdin() -> bool:
    return sys.stdin is not None and stat.S_ISREG(os.fstat(0).st_mode)


def prompt() -> Iterator[str | Pause]:
    """Ask for lines. After each one, a pause ends its window, and an empty window lets its search finish."""
    print("one sentence per line; Ctrl-D ends\n> ", end="", file=sys.stderr, flush=True)
    for line in sys.stdin.buffer:
        yield line.decode(errors="replace").rstrip("\r\n")
        yield Pause()
        yield Pause()
        print("> ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def bar_length(path: Path | None, output: Path | None) -> int | None:
    """Return the number of lines for a progress bar; None if there is no bar or the input is not a file."""
    # A bar would tear the lines that are printed to the same terminal.
    to_terminal = output in (None, DASH) and sys.stdout is not None and sys.stdout.isatty()
    if to_terminal or not sys.stderr.isatty():
        return None
    if path is None or path == DASH:
        return n_lines_left(sys.stdin.buffer) if is_file_on_stdin() else None
    return count_lines(path) if path.is_file() else None


def count_lines(path: Path) -> int:
    """Count the lines of a file, which may be gzipped, as `iter_lines` does."""
    with open_bytes(path) as stream, reading(str(path)):
        return n_lines_left(stream)
