"""Find blocks of lines that are not paired with their translations.

If the sides have different numbers of lines, the offset of the last block is known: their last lines belong together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.corpus import alignment
from nmt.corpus.alignment import Evidence
from nmt.corpus.examine import Gathered, Usual
from nmt.corpus.reading import CorpusFiles, decode, lines_at

N_SAMPLED = 400  # lines of the last block
AROUND = 60  # lines that are compared above and below a place where it may begin


@dataclass(frozen=True)
class Span:
    """Consecutive lines whose translations are `offset` lines further down; 0 if it is unknown where they are."""

    start: int  # from 0
    end: int  # exclusive
    offset: int = 0

    def __str__(self) -> str:
        lines = f"lines {self.start + 1}-{self.end}"
        n = abs(self.offset)
        where = f": the translation is {n} {'line' if n == 1 else 'lines'} {'below' if self.offset > 0 else 'above'}"
        return lines + where if n else lines


def find(found: Gathered, usual: Usual, evidence: Evidence) -> list[Span]:
    """All blocks of lines that are not paired with their translations."""
    survey = found.survey
    ratios = evidence(found.paired)
    ratios[found.lines_of("exchanged") - 1] = 0  # the lexicon has a direction
    spans = [Span(start, end) for start, end in alignment.blocks(ratios)]
    offset = survey.n_target - survey.n_source
    if not offset or not spans or spans[-1].end < survey.n_pairs:
        return spans

    block = spans.pop()
    low, high = max(block.start - AROUND, -offset, 0), survey.n_source
    edge = high  # first line whose translation is `offset` lines below: among a sample, then exactly
    for step in (max((high - low) // N_SAMPLED, 1), 1):
        lines = range(low, high, step)
        ratios = evidence(usual.compare(*read(survey.files, lines, offset)))
        n_before = alignment.place_edge(np.zeros(len(lines)), ratios)
        if n_before == len(lines):
            return [*spans, block]
        edge = lines[n_before]
        low, high = lines[max(n_before - 1, 0)], min(edge + AROUND, high)
    start = edge + min(offset, 0)  # of the lines without a partner, if these are source lines
    between = [Span(block.start, start)] if block.start < start else []
    return [*spans, *between, Span(start, survey.n_pairs, offset)]


def read(
    files: CorpusFiles, lines: Sequence[int], offset: int
) -> tuple[list[alignment.Words], list[NDArray[np.int64]]]:
    """The words and the lengths of source lines, numbered from 0, and of the target lines `offset` lines below."""
    words, sizes = [], []
    for paths, first in zip(files.sides, (1, 1 + offset), strict=True):
        raw = lines_at(paths, [line + first for line in lines])
        texts = [decode(raw[line + first]) for line in lines]
        words.append(alignment.words_of(texts))
        sizes.append(np.array([*map(len, texts)], np.int64))
    return words, sizes
