"""A search for lines that belong together in a corpus in which no pairs are known.

If a line is missing near the beginning of a file, hardly any lines with the same number belong together. Then the first
lines are paired at one offset: the offset at which both sides have their longer and shorter lines in the same places. A
first lexicon is learned from the pairs. Wrong pairs add few links to the lexicon, since the words of a wrong pair occur
together only by chance. Then the lines are paired by the lexicon, and a new lexicon is learned from the new pairs. A
few such rounds improve the pairs and the lexicon.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.corpus import alignment
from nmt.corpus.alignment import Evidence, HashedLines
from nmt.corpus.lengths import learn_lengths
from nmt.corpus.pairing import LineComparison, Run, offsets_of, read_windows
from nmt.corpus.reading import Survey

N_LEARNED = 8_000  # a lexicon is learned from this many source lines
MAX_ROUNDS = 5  # maximum number of rounds; a round pairs the lines by a lexicon, and learns a lexicon from the pairs
MIN_PAIRS = 200  # with fewer pairs, too little can be learned
Lines = NDArray[np.int64]  # numbers of lines, counted from 0


def learn_pairs(survey: Survey) -> tuple[Lines, Lines, Evidence | None]:
    """Find lines that belong together in a corpus in which no pairs are known.

    Returns:
        The source lines and the target lines of all pairs among the first `N_LEARNED` source lines, and the evidence
        learned from these pairs. If the two sides seem to be unrelated, the evidence is None.
    """
    offsets = offsets_of(survey)
    [window] = read_windows(survey, [(0, min(survey.n_source, N_LEARNED))], offsets)
    # 1. Pair all lines at one offset.
    offset = likeliest_offset(window.source.sizes, window.target.sizes, offsets)
    runs = [run_at(offset, len(window.source), len(window.target))]
    # 2. Pair the lines again by what was learned from the pairs, and repeat until the pairs stay the same.
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
    """Return the source lines and the target lines of all pairs in some runs."""
    none = np.zeros(0, np.int64)
    source = [np.arange(run.start, run.end) for run in runs]
    target = [lines + run.offset for lines, run in zip(source, runs, strict=True)]
    return np.concatenate([none, *source]), np.concatenate([none, *target])


def likeliest_offset(source_sizes: NDArray[np.int64], target_sizes: NDArray[np.int64], offsets: range) -> int:
    """Return the offset at which both sides most often have their longer and shorter lines in the same places.

    Only whether a line is longer or shorter than the line before it is compared, not its length. In a file that is
    sorted by length, neighboring lines have similar lengths, so the lengths would be alike at many offsets. A few
    blank or very long lines would also count too much.
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
    lexicon = alignment.learn_lexicon(source.words, target.words)
    lengths = learn_lengths(source.sizes, target.sizes)
    # Compare the pairs with pairs of unrelated lines: of each source line and a target line that is far away.
    n_pairs = len(source)
    unrelated = target[np.roll(np.arange(n_pairs), int(alignment.FAR * n_pairs))]
    paired_features = alignment.features(source, target, lexicon, lengths)
    unrelated_features = alignment.features(source, unrelated, lexicon, lengths)
    evidence = alignment.weigh(paired_features, unrelated_features)
    return LineComparison(lexicon, lengths, evidence)
