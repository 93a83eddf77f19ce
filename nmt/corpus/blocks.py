"""Find blocks of lines whose translations have other line numbers, and the offset of these translations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmt.corpus import alignment
from nmt.corpus.alignment import SWITCH, Evidence, Words
from nmt.corpus.examine import Gathered, Usual
from nmt.corpus.reading import decode, lines_at

MAX_OFFSET = 300  # lines up or down that are searched for translations
WINDOW = 60  # source lines for which one offset is searched
MAX_WINDOWS = 40  # in a block
MAX_WINDOWS_IN_ALL = 400
CLEAR = -2.0  # a mean log-likelihood ratio below this shows that lines are paired with their translations


@dataclass(frozen=True)
class Span:
    """Consecutive lines whose translations are `offset` lines further down; None if no translations are nearby."""

    start: int  # from 0
    end: int  # exclusive
    offset: int | None

    def __str__(self) -> str:
        lines = f"lines {self.start + 1}-{self.end}"
        if self.offset is None:
            return f"{lines}: no line nearby is the translation"
        n = abs(self.offset)
        where = f"{n} {'line' if n == 1 else 'lines'} {'below' if self.offset > 0 else 'above'}"
        return f"{lines}: the translation is {where}"


@dataclass(frozen=True)
class Lines:
    """Lines of one side, numbered from 0."""

    rows: dict[int, int]  # by number
    words: Words  # (n, MAX_WORDS)
    sizes: NDArray[np.int64]

    @classmethod
    def read(cls, paths: Sequence[Path], wanted: Iterable[int]) -> "Lines":
        found = lines_at(paths, [i + 1 for i in wanted if i >= 0])
        texts = [decode(raw, number) for number, raw in found.items()]
        rows = {number - 1: row for row, number in enumerate(found)}
        return cls(rows, alignment.words_of(texts), np.array([*map(len, texts)], np.int64))


@dataclass(frozen=True)
class Comparison:
    """Compares any source lines with any target lines."""

    usual: Usual
    evidence: Evidence
    source: Lines
    target: Lines

    def at_offset(self, lines: Sequence[int], offset: int | None) -> NDArray[np.float64]:
        """Log-likelihood ratios of source lines with the target lines at an offset: (lines,); 0 where there is none."""
        found = np.zeros(len(lines))
        places = [i for i, line in enumerate(lines) if offset is not None and line + offset in self.target.rows]
        if places and offset is not None:
            left = [self.source.rows[lines[i]] for i in places]
            right = [self.target.rows[lines[i] + offset] for i in places]
            words = self.source.words[left], self.target.words[right]
            sizes = self.source.sizes[left], self.target.sizes[right]
            found[places] = self.evidence(*self.usual.compare(words, sizes))
        return found


def find(found: Gathered, usual: Usual, evidence: Evidence) -> list[Span]:
    """All spans of lines whose translations have other line numbers or are missing."""
    blocks = alignment.blocks(evidence(*found.true))
    per_block = max(1, min(MAX_WINDOWS, MAX_WINDOWS_IN_ALL // max(len(blocks), 1)))
    windows = {block: windows_of(block, per_block) for block in blocks}
    near = [w for of_block in windows.values() for w in of_block]
    source = Lines.read(found.survey.files.source, (i for w in near for i in w))
    target_of = (i for w in near for i in range(w.start - MAX_OFFSET, w.stop + MAX_OFFSET))
    comparison = Comparison(usual, evidence, source, Lines.read(found.survey.files.target, target_of))
    spans: list[Span] = []
    for (start, end), of_block in windows.items():
        in_block: list[Span] = []
        for window in of_block:
            offset = offset_of(window, comparison, in_block[-1].offset if in_block else None)
            in_block.append(Span(window.start, window.stop, offset))
        spans += meet(in_block, start, end)
    return refined(spans, found, usual, evidence)


def windows_of(block: tuple[int, int], n_max: int) -> list[range]:
    start, end = block
    n = max(1, min(n_max, (end - start) // WINDOW))
    firsts = np.linspace(start, max(start, end - WINDOW), n).astype(int).tolist()
    return [range(first, min(first + WINDOW, end)) for first in firsts]


def offset_of(window: range, comparison: Comparison, guess: int | None) -> int | None:
    """The offset at which the lines of a window best match the target, perhaps `guess`; None if none is good enough."""
    if guess is not None and comparison.at_offset(window, guess).mean() < CLEAR:
        return guess
    totals = {
        offset: comparison.at_offset(window, offset).sum()
        for offset in range(-MAX_OFFSET, MAX_OFFSET + 1)
        if 2 * sum(line + offset in comparison.target.rows for line in window) > len(window)
    }
    best = min(totals, key=totals.__getitem__)
    return best if totals[best] < -SWITCH / 2 else None


def meet(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """Join neighboring spans of the same offset, then extend all spans to meet mid-gap and to fill [start, end)."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].offset == span.offset:
            joined[-1] = Span(joined[-1].start, span.end, span.offset)
        else:
            joined.append(span)
    cuts = [start, *[(a.end + b.start) // 2 for a, b in pairwise(joined)], end]
    return [Span(a, b, span.offset) for span, (a, b) in zip(joined, pairwise(cuts), strict=True) if a < b]


def tiled(spans: Sequence[Span], n_pairs: int) -> list[Span]:
    """The spans, and spans of offset 0 for all lines between them."""
    cuts = [0, *(cut for span in spans for cut in (span.start, span.end)), n_pairs]
    between = [Span(start, end, 0) for start, end in zip(cuts[::2], cuts[1::2], strict=True)]
    tiles = [between[0], *(tile for both in zip(spans, between[1:], strict=True) for tile in both)]
    return [tile for tile in tiles if tile.start < tile.end]


def refined(spans: Sequence[Span], found: Gathered, usual: Usual, evidence: Evidence) -> list[Span]:
    """Move the edges of the spans to where the ratios change."""
    tiles = tiled(spans, found.survey.n_pairs)
    around = [
        range(max((a.start + a.end) // 2, b.start - WINDOW), min((b.start + b.end + 1) // 2, b.start + WINDOW))
        for a, b in pairwise(tiles)
    ]
    offsets = [(a.offset, b.offset) for a, b in pairwise(tiles)]
    wanted = (i + k for both, lines in zip(offsets, around, strict=True) for k in both if k is not None for i in lines)
    source = Lines.read(found.survey.files.source, (i for lines in around for i in lines))
    comparison = Comparison(usual, evidence, source, Lines.read(found.survey.files.target, wanted))
    cuts = [0]
    for (before, after), lines in zip(offsets, around, strict=True):
        ratios = comparison.at_offset(lines, before), comparison.at_offset(lines, after)
        cuts.append(lines.start + alignment.place_edge(*ratios))
    cuts.append(found.survey.n_pairs)
    moved = [Span(start, end, tile.offset) for tile, (start, end) in zip(tiles, pairwise(cuts), strict=True)]
    return [span for span in moved if span.start < span.end and span.offset != 0]
