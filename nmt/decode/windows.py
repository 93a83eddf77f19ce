"""Windows of source lines: how many lines are read ahead, and how ranks share them.

A window is translated as a whole before its first line is written, so that lines of similar length can share a
batch. It bounds memory, too.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from nmt.decode.segments import Line, TextHypothesis, Translation
from nmt.distributed import gather, merged, mine, n_ranks, rank
from nmt.errors import InputError
from nmt.text.lines import Pause

MAX_LINES = 2_000
MAX_CHARACTERS = 1_000_000
MAX_READ_S = 1.0  # after the first line of a window has come
FIRST_LINES = 250
TARGET_S = 5.0  # time to translate a window; on slow machines later windows are shorter


def numbered(lines: Iterable[str | Pause], first: int) -> Iterator[Line | Pause]:
    """Number lines from `first` on; a line that is not a string is an InputError."""
    number = first
    for line in lines:
        if isinstance(line, Pause):
            yield line
            continue
        if not isinstance(line, str):
            raise InputError(f"text {number} is {line!r:.40}, not a string", hint="decode bytes; leave out None")
        yield Line(number, line)
        number += 1


def next_window(stream: Iterator[Line | Pause], n_lines: int) -> list[Line]:
    """The next window of at most `n_lines` per rank: read by the first rank, sent to all; empty at the end."""
    if n_ranks() == 1:
        return read_window(stream, n_lines)
    window = read_window(stream, n_lines * n_ranks()) if rank() == 0 else []
    return [Line(*line) for line in json.loads(gather(json.dumps(window).encode())[0])]


def read_window(stream: Iterator[Line | Pause], n_lines: int) -> list[Line]:
    """At most `n_lines`; fewer if lines are long or come slowly, or before a `Pause`."""
    window: list[Line] = []
    n_characters = 0
    started = math.inf
    for line in stream:
        if isinstance(line, Line):
            window.append(line)
            n_characters += len(line.text)
            started = min(started, time.monotonic())
        elif window:
            break
        if len(window) >= n_lines or n_characters > MAX_CHARACTERS or time.monotonic() - started > MAX_READ_S:
            break
    return window


def translate_on_ranks(
    window: Sequence[Line], translate: Callable[[Sequence[Line]], list[Translation]]
) -> list[Translation]:
    """Translate a window: each rank translates a share and returns all translations, in order."""
    if n_ranks() == 1:
        return translate(window)
    by_length = sorted(window, key=lambda line: len(line.text))  # so that shares take equally long
    shares = gather(json.dumps(translate(mine(by_length)), default=vars).encode())
    found = zip(by_length, merged([json.loads(share) for share in shares]), strict=True)
    of_line = {line.number: [TextHypothesis(**h) for h in translation["hypotheses"]] for line, translation in found}
    return [Translation(line.text, of_line[line.number]) for line in window]
