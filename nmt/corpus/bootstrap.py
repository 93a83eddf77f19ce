"""A search for lines that belong together in a corpus in which no pairs are known.

If a line is missing near the beginning of a file, hardly any lines with the same number belong together. Then all lines
are paired at one offset: the offset at which the words of both sides depend on each other most. This dependence is
measured without a lexicon. A first lexicon is learned from the pairs. Wrong pairs add few links to the lexicon, since
the words of a wrong pair occur together only by chance. Then the lines are paired by the lexicon, and a new lexicon is
learned from the new pairs. A few such rounds improve the pairs and the lexicon.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.corpus import alignment
from nmt.corpus.alignment import Evidence, HashedLines, Words, hash_lines
from nmt.corpus.lengths import NORMAL, learn_lengths
from nmt.corpus.pairing import LineComparison, Run, Window, offsets_of, read_windows
from nmt.corpus.reading import Survey

N_WINDOWS, WINDOW = 8, 1_000  # a lexicon is learned from this many windows, of this many source lines each
N_BUCKETS = 128  # number of buckets into which `dependence` sorts words by their hashes
MIN_SPREAD = 0.02  # minimum of the standard deviation that `buckets_of` divides by, so that rare words do not dominate
N_TESTED, N_OTHERS = 4_000, 200  # limits of `are_related`: number of lines, and number of offsets other than 0
# `are_related` measures how far the dependence at offset 0 is above the median dependence at other offsets. The sides
# are related if the difference is more than this many standard deviations. For 200 pairs of real corpora, the
# difference is at least 7.2 standard deviations; for unrelated lines, it is at most 3.0.
MIN_DEPENDENCE = 5.0
MAX_ROUNDS = 5  # maximum number of rounds; a round pairs the lines by a lexicon, and learns a lexicon from the pairs
MIN_PAIRS = 200  # with fewer pairs, too little can be learned


def learn_pairs(survey: Survey) -> tuple[list[tuple[int, int]], Evidence | None]:
    """Find lines that belong together in a corpus in which no pairs are known.

    Returns:
        The pairs of line numbers, counted from 0, in all windows of the corpus, and the evidence learned from these
        pairs. If the two sides seem to be unrelated, there are no pairs, and the evidence is None.
    """
    offsets = offsets_of(survey)
    windows = windows_of(survey, offsets)
    # 1. Pair all lines at the offset at which the words of both sides depend on each other most.
    best = int(dependence(windows, offsets).argmax())
    runs = [runs_at(offsets[best], window) for window in windows]
    comparison = learn_comparison(windows, runs)
    # 2. Pair the lines again by what was learned from the pairs, and repeat until the pairs stay the same.
    for _ in range(MAX_ROUNDS):
        if comparison is None:
            return [], None
        runs_before = runs
        runs = [comparison.runs(window, offsets) for window in windows]
        if runs == runs_before:
            break
        comparison = learn_comparison(windows, runs)
    if comparison is None or comparison.evidence.contrast < alignment.MIN_CONTRAST:
        return [], None
    # 3. List the pairs.
    pairs = []
    for runs_of_window in runs:
        for run in runs_of_window:
            pairs += [(line, line + run.offset) for line in range(run.start, run.end)]
    return pairs, comparison.evidence


def windows_of(survey: Survey, offsets: range) -> list[Window]:
    """Return one window with the whole corpus; if the corpus is long, `N_WINDOWS` evenly spaced windows."""
    blocks = [(0, survey.n_source)]
    if survey.n_source > N_WINDOWS * WINDOW:
        starts = np.linspace(0, survey.n_source - WINDOW, N_WINDOWS)
        blocks = [(start, start + WINDOW) for start in starts.astype(int).tolist()]
    return list(read_windows(survey, blocks, offsets))


def runs_at(offset: int, window: Window) -> list[Run]:
    """Return a list with one run: the source lines of a window whose target lines at an offset are in the window, too.

    If there are no such lines, return [].
    """
    target_end = window.target_start + len(window.target)
    start = max(window.lines.start, window.target_start - offset)
    end = min(window.lines.stop, target_end - offset)
    return [Run(start, end, offset)] if start < end else []


def dependence(windows: Sequence[Window], offsets: range) -> NDArray[np.float64]:
    """Return an array of shape (W,): how much the words of both sides depend on each other at each of W offsets.

    If lines are unrelated, the covariances between source words and target words are near zero. The measure is the
    squared Frobenius norm of the matrix of these covariances, times the number of lines (the Hilbert-Schmidt
    independence criterion of Gretton et al. 2005 with linear kernels). No lexicon is needed. Words in the same hash
    bucket count as the same word.
    """
    sources = [buckets_of(window.source.words) for window in windows]
    targets = [buckets_of(window.target.words) for window in windows]
    norms = np.zeros(len(offsets))
    for i, offset in enumerate(offsets):
        # Sum over the source lines whose target lines at this offset are in the same window.
        covariance = np.zeros((N_BUCKETS, N_BUCKETS), np.float32)
        n_lines = 0
        for window, source, target in zip(windows, sources, targets, strict=True):
            for run in runs_at(offset, window):
                source_start = run.start - window.source_start
                target_start = run.target_start - window.target_start
                left = source[source_start : source_start + len(run)]
                right = target[target_start : target_start + len(run)]
                covariance += left.T @ right
                n_lines += len(run)
        norm = (covariance**2).sum()
        norms[i] = norm / max(n_lines, 1)
    return norms


def buckets_of(words: Words) -> NDArray[np.float32]:
    """Return an array of shape (n, N_BUCKETS): whether each of n lines has a word in each bucket, standardized.

    Before standardization, a value is 1 if the line has a word in the bucket, else 0. Then the values of each bucket
    are standardized over the lines: the mean becomes 0, and the standard deviation becomes 1 (less for a rare bucket).
    """
    buckets = np.zeros((len(words), N_BUCKETS), np.float32)
    rows, columns = np.nonzero(words)
    buckets[rows, words[rows, columns] % N_BUCKETS] = 1
    buckets -= buckets.mean(0)
    buckets /= np.maximum(buckets.std(0), MIN_SPREAD)
    return buckets


def learn_comparison(windows: Sequence[Window], runs: Sequence[Sequence[Run]]) -> LineComparison | None:
    """Learn a comparison from the pairs in the runs of each window. Return None for fewer than `MIN_PAIRS` pairs."""
    # Collect the source lines and the target lines of all pairs.
    sources, targets = [], []
    for window, runs_of_window in zip(windows, runs, strict=True):
        for run in runs_of_window:
            sources.append(window.source_lines(range(run.start, run.end)))
            targets.append(window.target_lines(range(run.target_start, run.target_end)))
    n_pairs = sum(len(lines) for lines in sources)
    if n_pairs < MIN_PAIRS:
        return None
    source, target = concatenated(sources), concatenated(targets)
    lexicon = alignment.learn_lexicon(source.words, target.words)
    lengths = learn_lengths(source.sizes, target.sizes)
    # Compare the pairs with pairs of unrelated lines: of each source line and a target line that is far away.
    distance = int(alignment.FAR * n_pairs)
    unrelated = target[(np.arange(n_pairs) - distance) % n_pairs]
    paired_features = alignment.features(source, target, lexicon, lengths)
    unrelated_features = alignment.features(source, unrelated, lexicon, lengths)
    evidence = alignment.weigh(paired_features, unrelated_features)
    return LineComparison(lexicon, lengths, evidence)


def concatenated(parts: Sequence[HashedLines]) -> HashedLines:
    words = np.concatenate([part.words for part in parts])
    sizes = np.concatenate([part.sizes for part in parts])
    return HashedLines(words, sizes)


def are_related(source: Sequence[str], target: Sequence[str]) -> bool:
    """Return whether the words of both sides depend on each other more at offset 0 than at other offsets."""
    window = Window(hash_lines(source[:N_TESTED]), hash_lines(target[:N_TESTED]), 0, 0)
    reach = min(len(source) // 4, N_OTHERS // 2)
    norms = dependence([window], range(-reach, reach + 1))
    # Compare the dependence at offset 0 with the dependence at other offsets. The median is a robust estimate of
    # the mean, and `NORMAL` times the median absolute deviation is a robust estimate of the standard deviation.
    norms_elsewhere = np.delete(norms, reach)
    median = np.median(norms_elsewhere)
    spread = NORMAL * np.median(np.abs(norms_elsewhere - median))
    return bool(norms[reach] - median > MIN_DEPENDENCE * spread)
