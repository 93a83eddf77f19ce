"""What the user sees on stderr: log lines, errors, progress bars."""

import logging
import sys
from collections.abc import Iterable
from typing import TypeVar

from nmt.distributed import launched
from nmt.errors import NmtError

Item = TypeVar("Item")

log = logging.getLogger("nmt")


class StderrHandler(logging.Handler):
    """Prints log lines above the progress bar; warnings and errors with their level."""

    def emit(self, record: logging.LogRecord) -> None:
        message = "\n".join(map(printable, record.getMessage().split("\n")))
        if record.levelno >= logging.WARNING:
            message = f"nmt: {record.levelname.lower()}: {message}"
        if bar := sys.modules.get("tqdm"):  # imported only to show a bar
            bar.tqdm.write(message, file=sys.stderr)
        else:
            print(message, file=sys.stderr)


def set_up_logging(quiet: bool = False, verbose: bool = False) -> None:
    """Log to stderr; ranks other than the first log only warnings."""
    log.handlers = [StderrHandler()]
    log.propagate = False
    log.setLevel(logging.WARNING if quiet or launched().rank else logging.DEBUG if verbose else logging.INFO)


def print_error(error: NmtError, rank: int) -> None:
    """Print each line of the message, then the hint."""
    prefix = f"nmt: error: rank {rank}: " if rank else "nmt: error: "
    for line in str(error).split("\n"):
        print(prefix + printable(line), file=sys.stderr)
    if error.hint:
        print(f"hint: {printable(error.hint)}", file=sys.stderr)


def printable(line: str) -> str:
    """A line with control characters escaped: a file name from a stranger must not control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def with_bar(items: Iterable[Item], n_lines: int | None, n_done: int = 0) -> Iterable[Item]:
    """The items, with a progress bar if stderr is a terminal; no bar if `n_lines` is None."""
    if n_lines is None:
        return items
    from tqdm import tqdm

    return tqdm(
        items,
        total=n_lines,
        initial=n_done,
        unit=" lines",
        smoothing=0,  # lines come in windows: show the mean rate, not the latest
        disable=None,  # if stderr is not a terminal
        file=sys.stderr,
    )
