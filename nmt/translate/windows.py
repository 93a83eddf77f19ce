"""Windows: the lines of a stream that are translated together.

A longer window has less padding in its batches, a shorter one takes less memory and gives its lines sooner.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from nmt.errors import InputError
from nmt.text.lines import Pause
from nmt.translate.segments import Line

MAX_READ_S = 1.0  # maximum time to read the other lines of a window after the first
FIRST_LINES = 250  # lines of the first window
TARGET_S = 5.0  # time to translate a window; on slow machines later windows are shorter

T = TypeVar("T")


def start_windows(
    start: Callable[[list[Line]], T], lines: Iterable[str | Line | Pause], first: int, least: int, most: int
) -> Iterator[T]:
    """Start to translate each window, and yield what `start` returns. Later windows take about `TARGET_S`.

    The first window has at most `FIRST_LINES`, later ones `least` to `most` lines; none at a `Pause`.
    """
    stream, n_lines = iter(lines), min(most, FIRST_LINES)
    while (window := read_window(stream, first, n_lines)) is not None:
        started = time.monotonic()
        yield start(window)
        if window:
            lines_per_s = len(window) / max(time.monotonic() - started, 1e-3)
            n_lines = min(max(int(TARGET_S * lines_per_s), least), most)
        first += len(window)


def read_window(stream: Iterator[str | Line | Pause], first: int, n_lines: int) -> list[Line] | None:
    """Read at most `n_lines` lines, numbered from `first`; fewer if they arrive slowly, or at a `Pause`.

    None at the end of the stream. Empty if it begins with a `Pause`.
    """
    window: list[Line] = []
    deadline = math.inf
    for line in stream:
        if isinstance(line, Pause):
            return window
        if isinstance(line, Line):
            window.append(line)
        elif isinstance(line, str):
            window.append(Line(first + len(window), line))
        else:
            message = f"text {first + len(window)} is {line!r:.40}, not a string"
            raise InputError(message, hint="decode bytes; leave out None")
        deadline = min(deadline, time.monotonic() + MAX_READ_S)
        if len(window) >= n_lines or time.monotonic() > deadline:
            break
    return window or None
