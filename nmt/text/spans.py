"""Spans: parts of a text, given by their start and end."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

Span = tuple[int, int]  # the start and end of a part of a text, in characters; the end is exclusive


def indices_between(spans: Sequence[Span], start: int, end: int) -> range:
    """Return the indices of the spans that lie within text[start:end]. `spans` must be sorted and must not overlap."""
    first = bisect_left(spans, start, key=lambda span: span[0])
    stop = bisect_right(spans, end, key=lambda span: span[1])
    return range(first, max(first, stop))


def replaced(text: str, replacements: Iterable[tuple[Span, str]]) -> str:
    """Replace spans of a text by strings. The spans must be in ascending order."""
    written, cursor = "", 0
    for (start, end), string in replacements:
        written += text[cursor:start] + string
        cursor = end
    return written + text[cursor:]
