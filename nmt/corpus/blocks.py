"""Find blocks of lines whose translations have other line numbers, and the offset of these translations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmt.corpus import alignment
from nmt.corpus.alignment import MAX_WORDS, SWITCH, Evidence
from nmt.corpus.examine import Usual
from nmt.corpus.gathered import Gathered
from nmt.corpus.reading import CorpusFiles, decode, lines_at

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
        return (
            f"{lines}: the translation is {n} {'line' if n == 1 else 'lines'} {'below' if self.offset > 0 else 'above'}"
        )


@dataclass(frozen=True)
class Comparison:
    """Compares any source lines with any target lines."""

    usual: Usual
    evidence: Evidence
    source: dict[int, str]  # by index from 0
    target: dict[int, str]

    def matrix(self, lines: Sequence[int], candidates: Sequence[int]) -> NDArray[np.float64]:
        """Log-likelihood ratios, unrelated against translated: (lines, candidates)."""
        texts = [self.source[i] for i in lines], [self.target[j] for j in candidates]
        left, right = map(alignment.words_of, texts)
        sizes = [np.array([*map(len, side)]) for side in texts]
        found = np.empty((len(lines), len(candidates)))
        for i in range(len(lines)):
            agreement = alignment.agreement(
                np.broadcast_to(left[i], (len(candidates), MAX_WORDS)), right, self.usual.lexicon
            )
            z = self.usual.lengths.z(np.full(len(candidates), sizes[0][i]), sizes[1])
            found[i] = self.evidence(agreement, z)
        return found

    def at_offset(self, lines: Sequence[int], offset: int | None) -> NDArray[np.float64]:
        """The ratios of source lines with the target lines at an offset: (lines,); 0 where there is no target line."""
        found = np.zeros(len(lines))
        places = [i for i, line in enumerate(lines) if offset is not None and line + offset in self.target]
        if places and offset is not None:
            texts = [self.source[lines[i]] for i in places], [self.target[lines[i] + offset] for i in places]
            source, target = map(alignment.words_of, texts)
            agreement = alignment.agreement(source, target, self.usual.lexicon)
            z = self.usual.lengths.z(*(np.array([*map(len, side)]) for side in texts))
            found[places] = self.evidence(agreement, z)
        return found


def find(found: Gathered, usual: Usual, evidence: Evidence) -> list[Span]:
    """All spans of lines whose translations have other line numbers or are missing."""
    blocks = alignment.blocks(evidence(*found.features()[0]))
    per_block = max(1, min(MAX_WINDOWS, MAX_WINDOWS_IN_ALL // max(len(blocks), 1)))
    windows = {block: windows_of(block, per_block) for block in blocks}
    near = [w for of_block in windows.values() for w in of_block]
    comparison = read(
        found.files,
        usual,
        evidence,
        (i for w in near for i in w),
        (i for w in near for i in range(w.start - MAX_OFFSET, w.stop + MAX_OFFSET)),
    )
    spans: list[Span] = []
    for (start, end), of_block in windows.items():
        offsets: list[int | None] = []
        for window in of_block:
            offsets.append(offset_of(window, comparison, offsets[-1] if offsets else None))
        spans += meet([Span(w.start, w.stop, k) for w, k in zip(of_block, offsets, strict=True)], start, end)
    return refined(spans, found, usual, evidence)


def windows_of(block: tuple[int, int], n_max: int) -> list[range]:
    start, end = block
    n = max(1, min(n_max, (end - start) // WINDOW))
    firsts = np.linspace(start, max(start, end - WINDOW), n).astype(int).tolist()
    return [range(first, min(first + WINDOW, end)) for first in firsts]


def read(
    files: CorpusFiles, usual: Usual, evidence: Evidence, source: Iterable[int], target: Iterable[int]
) -> Comparison:
    """Read these lines of both sides, numbered from 0, to compare them."""
    sides = []
    for paths, wanted in zip(files.sides, (source, target), strict=True):
        lines = lines_at(paths, [i + 1 for i in wanted if i >= 0])
        sides.append({number - 1: decode(raw, number) for number, raw in lines.items()})
    return Comparison(usual, evidence, *sides)


def offset_of(window: range, comparison: Comparison, guess: int | None) -> int | None:
    """The offset at which the lines of a window best match the target; None if none matches well enough.

    Args:
        guess: an offset that is returned without a search if the lines clearly match there.
    """
    if guess is not None and comparison.at_offset(window, guess).mean() < CLEAR:
        return guess
    candidates = [j for j in range(window.start - MAX_OFFSET, window.stop + MAX_OFFSET) if j in comparison.target]
    ratios = comparison.matrix(window, candidates)
    totals = {}
    for offset in range(candidates[0] - window.stop + 1, candidates[-1] - window.start + 1):
        diagonal = ratios.diagonal(offset + window.start - candidates[0])
        if 2 * len(diagonal) > len(window):
            totals[offset] = float(diagonal.sum())
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
    tiles = tiled(spans, found.n_pairs)
    around = [
        range(max((a.start + a.end) // 2, b.start - WINDOW), min((b.start + b.end + 1) // 2, b.start + WINDOW))
        for a, b in pairwise(tiles)
    ]
    target = (
        i + tile.offset
        for tiles_of, lines in zip(pairwise(tiles), around, strict=True)
        for tile in tiles_of
        if tile.offset is not None
        for i in lines
    )
    comparison = read(found.files, usual, evidence, (i for lines in around for i in lines), target)
    cuts = [0]
    for (a, b), lines in zip(pairwise(tiles), around, strict=True):
        ratios = comparison.at_offset(lines, a.offset), comparison.at_offset(lines, b.offset)
        cuts.append(lines.start + alignment.place_edge(*ratios))
    cuts.append(found.n_pairs)
    moved = [Span(start, end, tile.offset) for tile, (start, end) in zip(tiles, pairwise(cuts), strict=True)]
    return [span for span in moved if span.start < span.end and span.offset != 0]
