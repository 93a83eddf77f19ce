"""Windows: groups of lines of a stream that are translated together.

Longer windows have batches with less padding. Shorter windows take less memory, and are finished sooner.
"""

import logging
import math
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from nmt.errors import InputError
from nmt.text.lines import Pause
from nmt.translate.units import Translation, Unit

log = logging.getLogger("nmt.texts")  # messages that quote users' texts; `nmt serve` disables this logger

MAX_READ_S = 1.0  # maximum time to wait for more lines after the first line of a window, in seconds
N_NAMED = 10  # maximum number of lines that a warning names

Running = TypeVar("Running")


def windows(lines: Iterable[str | Unit | Pause], first: int, n_lines: int) -> Iterator[list[Unit]]:
    """Read a stream of lines in windows of `n_lines`, and yield the units of each window.

    A `Pause` in the stream ends a window early, and can make a window empty. `first` is the number of the first line.
    """
    stream = iter(lines)
    while (units := read_window(stream, first, n_lines)) is not None:
        yield units
        first += len(units)


def read_window(stream: Iterator[str | Unit | Pause], first: int, n_lines: int) -> list[Unit] | None:
    """Read at most `n_lines` lines. Reading ends earlier at a `Pause`, or if the lines arrive slowly.

    Lines are numbered from `first`. Returns None at the end of the stream, and [] if the next item is a `Pause`.
    """
    units: list[Unit] = []
    deadline = math.inf
    for line in stream:
        number = first + len(units)
        if isinstance(line, Pause):
            return units
        if isinstance(line, Unit):
            units.append(line)
        elif isinstance(line, str):
            units.append(Unit(number, line))
        else:
            raise InputError(f"text {number} is {line!r:.40}, not a string", hint="decode bytes; leave out None")
        # The time limit begins with the first line. Before this, no line waits for its translation.
        deadline = min(deadline, time.monotonic() + MAX_READ_S)
        if len(units) >= n_lines or time.monotonic() > deadline:
            break
    return units or None


def one_ahead(running: Iterator[Running]) -> Iterator[Running]:
    """Yield each running translation after the next one has started.

    So an engine in the background always has work.
    """
    current = next(running, None)
    while current is not None:
        # Start the next translation before the caller waits for the current one.
        following = next(running, None)
        yield current
        current = following


def warn_of_cut_lines(translations: Iterable[Translation]) -> None:
    """Log one warning that names the lines whose translations are cut off, if there are any."""
    # A line of markup has several translations, but is named only once.
    numbers = list(dict.fromkeys(translation.number for translation in translations if translation.is_cut))
    if not numbers:
        return
    # Name the first lines by their numbers, and count the other lines.
    named = ", ".join(map(str, numbers[:N_NAMED]))
    if len(numbers) > N_NAMED:
        named += f" and {len(numbers) - N_NAMED:,} more"
    lines = f"line {named}" if len(numbers) == 1 else f"{len(numbers):,} lines ({named})"
    message = "translation cut off at the length limit, before its end: %s; nmt translate --max-length raises it"
    log.warning(message, lines)
