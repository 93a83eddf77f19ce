"""Windows: the lines of a stream that are translated together.

A longer window has less padding in its batches, a shorter one takes less memory and gives its lines sooner.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from nmt.errors import InputError
from nmt.text.lines import Pause
from nmt.translate.units import Translation, Unit

log = logging.getLogger("nmt")

MAX_READ_S = 1.0  # maximum time to read the other lines of a window after the first
FIRST_LINES = 250  # lines of the first window
TARGET_S = 5.0  # time to translate a window; on slow machines later windows are shorter
N_NAMED = 10  # cut lines that a warning names

Running = TypeVar("Running")


def windows(
    start: Callable[[list[Unit]], Running], lines: Iterable[str | Unit | Pause], first: int, least: int, most: int
) -> Iterator[Running]:
    """Start to translate each window, and yield what `start` returns. Later windows take about `TARGET_S`.

    The first window has at most `FIRST_LINES`, later ones `least` to `most` lines; none at a `Pause`.
    """
    stream = iter(lines)
    n_lines = min(most, FIRST_LINES)
    while (units := read_window(stream, first, n_lines)) is not None:
        started = time.monotonic()
        yield start(units)
        # The next window takes about TARGET_S at the speed of this one.
        if units:
            lines_per_s = len(units) / max(time.monotonic() - started, 1e-3)
            n_lines = min(max(int(TARGET_S * lines_per_s), least), most)
        first += len(units)


def read_window(stream: Iterator[str | Unit | Pause], first: int, n_lines: int) -> list[Unit] | None:
    """Read at most `n_lines` lines, numbered from `first`; fewer if they arrive slowly, or at a `Pause`.

    Returns None at the end of the stream, an empty list if it begins with a `Pause`.
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
        # The clock starts at the first line: nobody waits before.
        deadline = min(deadline, time.monotonic() + MAX_READ_S)
        if len(units) >= n_lines or time.monotonic() > deadline:
            break
    return units or None


def one_ahead(running: Iterator[Running]) -> Iterator[Running]:
    """Yield each item after the next one has started, so that an engine in the background always has work."""
    current = next(running, None)
    while current is not None:
        # This starts the next one, before the caller waits for the current one.
        following = next(running, None)
        yield current
        current = following


class CutLines:
    """Notes the lines whose translations are cut off. At the end, one warning names them.

    With `at_once`, because somebody waits for each line, each is named when it is noted.
    """

    def __init__(self, *, at_once: bool) -> None:
        self.at_once = at_once
        self.numbers: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.warn()  # also if the caller takes no more translations than it needs

    def note(self, translations: Sequence[Translation]) -> None:
        for translation in translations:
            if translation.is_cut and translation.number not in self.numbers[-1:]:  # a line of markup has several
                self.numbers.append(translation.number)
        if self.at_once:
            self.warn()

    def warn(self) -> None:
        """Log one warning that names the lines noted so far, if there are any."""
        if not self.numbers:
            return
        # The first lines by their numbers, then how many more there are.
        named = ", ".join(map(str, self.numbers[:N_NAMED]))
        if len(self.numbers) > N_NAMED:
            named += f" and {len(self.numbers) - N_NAMED:,} more"
        lines = f"{len(self.numbers):,} lines ({named})"
        if len(self.numbers) == 1:
            lines = f"line {named}"
        message = "translation cut off at the length limit, before the model ended it: %s; "
        message += "nmt translate --max-length raises it"
        log.warning(message, lines)
        self.numbers.clear()
