"""Spans: parts of a text by where they start and end."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

Span = tuple[int, int]  # start and end of a part of a text, in characters


def indices_between(spans: Sequence[Span], start: int, end: int) -> range:
    """Return the indices of the spans within text[start:end]; `spans` are sorted and do not overlap."""
    first = bisect_left(spans, start, key=lambda span: span[0])
    stop = bisect_right(spans, end, key=lambda span: span[1])
    return range(first, max(first, stop))


def replaced(text: str, spans: Sequence[Span], new: Sequence[str]) -> str:
    """Return the text with each span, in ascending order, replaced by the new string of the same index."""
    written, cursor = "", 0
    for (start, end), string in zip(spans, new, strict=True):
        written += text[cursor:start] + string
        cursor = end
    return written + text[cursor:]
