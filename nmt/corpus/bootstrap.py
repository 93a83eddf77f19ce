"""A search for lines that belong together in a corpus in which no pairs are known.

If a line is missing near the beginning of a file, hardly any lines with the same number belong together. So the first
lines are paired at one offset, where long and short lines are in the same places on both sides. A lexicon is learned
from these pairs. Wrong pairs do little harm, since their words occur together only by chance. Then the lines are paired
by the lexicon, and a new lexicon is learned. A few such rounds improve the pairs and the lexicon.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.corpus import alignment
from nmt.corpus.alignment import Evidence, HashedLines
from nmt.corpus.pairing import LineComparison, Run, offsets_of, read_windows
from nmt.corpus.reading import Survey

N_LEARNED = 8_000  # a lexicon is learned from this many source lines
MAX_ROUNDS = 5  # maximum number of rounds of learning a lexicon and pairing the lines
MIN_PAIRS = 200  # with fewer pairs, too little can be learned
Lines = NDArray[np.int64]  # numbers of lines, counted from 0


def learn_pairs(survey: Survey) -> tuple[Lines, Lines, Evidence | None]:
    """Find lines that belong together in a corpus in which no pairs are known.

    Returns:
        The source lines and the target lines of the pairs, and the evidence learned from them. Only the first
        `N_LEARNED` source lines are paired. The evidence is None if the pairs are too few or seem to be unrelated.
    """
    offsets = offsets_of(survey)
    [window] = read_windows(survey, [(0, min(survey.n_source, N_LEARNED))], offsets)
    # 1. Pair all lines at one offset.
    offset = likeliest_offset(window.source.sizes, window.target.sizes, offsets)
    runs = [run_at(offset, len(window.source), len(window.target))]
    # 2. Learn from the pairs, and pair the lines again, until the pairs stay the same.
    runs_before: list[Run] = []
    for _ in range(MAX_ROUNDS):
        if runs == runs_before:
            break
        source, target = lines_of(runs)
        if len(source) < MIN_PAIRS:
            return source, target, None
        comparison = learn_comparison(window.source[source], window.target[target])
        runs_before, runs = runs, comparison.runs(window, offsets)
    is_related = comparison.evidence.contrast >= alignment.MIN_CONTRAST
    return source, target, comparison.evidence if is_related else None


def run_at(offset: int, n_source: int, n_target: int) -> Run:
    """Return the longest run at an offset. It is empty if no two lines have this offset."""
    start = max(-offset, 0)
    return Run(start, max(min(n_source, n_target - offset), start), offset)


def lines_of(runs: Sequence[Run]) -> tuple[Lines, Lines]:
    """Return the source lines and the target lines of all pairs in the runs."""
    none = np.zeros(0, np.int64)
    source = [np.arange(run.start, run.end) for run in runs]
    target = [lines + run.offset for lines, run in zip(source, runs, strict=True)]
    return np.concatenate([none, *source]), np.concatenate([none, *target])


def likeliest_offset(source_sizes: NDArray[np.int64], target_sizes: NDArray[np.int64], offsets: range) -> int:
    """Return the offset at which the lengths of lines rise and fall together on both sides.

    The lengths themselves are not compared. In a file that is sorted by length, they would fit at many offsets.
    """
    source, target = np.sign(np.diff(source_sizes)), np.sign(np.diff(target_sizes))
    scores = []
    for offset in offsets:
        run = run_at(offset, len(source), len(target))
        product = source[run.start : run.end] @ target[run.target_start : run.target_end]
        scores.append(product / math.sqrt(max(len(run), 1)))  # a random product grows with the root of the length
    return offsets[int(np.argmax(scores))]


def learn_comparison(source: HashedLines, target: HashedLines) -> LineComparison:
    """Learn a comparison from the lines of n pairs."""
    features = alignment.learn_features(source, target)
    # A source line and a target line far away are a pair of unrelated lines.
    n_pairs = len(source)
    unrelated = target[np.roll(np.arange(n_pairs), int(alignment.FAR * n_pairs))]
    evidence = alignment.weigh(features(source, target), features(source, unrelated))
    return LineComparison(features, evidence)
