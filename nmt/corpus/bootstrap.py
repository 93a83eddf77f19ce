"""Learn which lines belong together, and how to tell, from a corpus in which no pairs are known.

If a line is missing near the beginning, hardly any lines with the same number belong together. The first pairs are then
those of the offset at which the words of both sides depend on each other most, which shows without a lexicon. Wrong
pairs among them teach a lexicon little, since their words meet by chance; lexicon and pairs improve each other in a few
rounds.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from nmt.corpus import alignment, lengths
from nmt.corpus.alignment import Evidence, Feature, Words
from nmt.corpus.pairing import Comparison, Run, Window, lines_of, offsets_of, read_windows
from nmt.corpus.reading import Survey

N_WINDOWS, WINDOW = 8, 1_000  # stretches of source lines from which a lexicon is learned
N_BUCKETS = 128  # of words, when the strongest offset is looked for
MIN_SPREAD = 0.02  # standard deviation of a bucket: rare words must not dominate
N_TESTED, N_OTHERS = 4_000, 200  # lines, and offsets that they are compared at, to see whether both sides are related
MIN_DEPENDENCE = 5.0  # standard deviations; with 200 pairs of real corpora 7.2 and more, of unrelated lines up to 3.0
MAX_ROUNDS = 5  # of learning a lexicon and pairing lines by it
MIN_PAIRS = 200  # with fewer pairs, too little can be learned


def learn_pairs(survey: Survey) -> tuple[list[tuple[int, int]], Evidence] | None:
    """Find lines that belong together without knowing any.

    Returns:
        Pairs of line numbers from 0, in all windows of the corpus, and the evidence of the lexicon that they teach;
        None if the two sides seem to be unrelated.
    """
    offsets = offsets_of(survey)
    windows = windows_of(survey, offsets)
    offset = offsets[int(dependence(windows, offsets).argmax())]
    runs = [[clipped(Run(window.lines.start, window.lines.stop, offset), window)] for window in windows]
    comparison = learn_comparison(windows, runs)
    for _ in range(MAX_ROUNDS):
        if comparison is None:
            return None
        before, runs = runs, [comparison.runs(window, offsets) for window in windows]
        if runs == before:
            break
        comparison = learn_comparison(windows, runs)
    if comparison is None or comparison.evidence.contrast < alignment.MIN_CONTRAST:
        return None
    pairs = []
    for run in chain.from_iterable(runs):
        pairs += [(line, line + run.offset) for line in range(run.start, run.end)]
    return pairs, comparison.evidence


def windows_of(survey: Survey, offsets: range) -> list[Window]:
    """The whole corpus as a window or, of a long one, windows at equal distances."""
    if survey.n_source <= N_WINDOWS * WINDOW:
        return list(read_windows(survey, [(0, survey.n_source)], offsets))
    starts = np.linspace(0, survey.n_source - WINDOW, N_WINDOWS).astype(int).tolist()
    return list(read_windows(survey, [(start, start + WINDOW) for start in starts], offsets))


def dependence(windows: Sequence[Window], offsets: range) -> NDArray[np.float64]:
    """How much the words of both sides depend on each other at each offset: (W,).

    If lines are unrelated, the covariance matrix of the words of both sides is near zero. The measure is its squared
    Frobenius norm, times the number of lines (with linear kernels, the Hilbert-Schmidt independence criterion of
    Gretton et al. 2005). It needs no lexicon. Words count by buckets of their hashes.
    """
    sides = [(buckets_of(window.source.words), buckets_of(window.target.words)) for window in windows]
    norms = []
    for offset in offsets:
        covariance = np.zeros((N_BUCKETS, N_BUCKETS), np.float32)
        n_lines = 0
        for window, (source, target) in zip(windows, sides, strict=True):
            shift = window.source.first + offset - window.target.first  # of indices
            start, end = max(0, -shift), min(len(source), len(target) - shift)
            if start < end:
                covariance += source[start:end].T @ target[start + shift : end + shift]
                n_lines += end - start
        norms.append(float((covariance**2).sum()) / max(n_lines, 1))
    return np.array(norms)


def buckets_of(words: Words) -> NDArray[np.float32]:
    """Which buckets the words of each line are in, standardized over the lines: (n, N_BUCKETS)."""
    counts = np.zeros((len(words), N_BUCKETS), np.float32)
    rows, columns = np.nonzero(words)
    counts[rows, words[rows, columns] % N_BUCKETS] = 1
    counts -= counts.mean(0)
    return np.asarray(counts / np.maximum(counts.std(0), MIN_SPREAD), np.float32)


def clipped(run: Run, window: Window) -> Run:
    """The part of a run whose target lines are in the window."""
    start = max(run.start, window.target.first - run.offset)
    end = min(run.end, window.target.first + len(window.target.sizes) - run.offset)
    return replace(run, start=start, end=max(start, end))


def learn_comparison(windows: Sequence[Window], runs: Sequence[Sequence[Run]]) -> Comparison | None:
    """Learn from the pairs of the runs of each window; None if they are too few."""
    words: tuple[list[Words], list[Words]] = ([], [])
    sizes: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
    for window, runs_of_window in zip(windows, runs, strict=True):
        for run in runs_of_window:
            for side, lines, offset in ((0, window.source, 0), (1, window.target, run.offset)):
                start = run.start + offset - lines.first
                words[side].append(lines.words[start : start + len(run)])
                sizes[side].append(lines.sizes[start : start + len(run)])
    if sum(len(part) for part in words[0]) < MIN_PAIRS:
        return None
    source, target = np.concatenate(words[0]), np.concatenate(words[1])
    source_sizes, target_sizes = np.concatenate(sizes[0]), np.concatenate(sizes[1])
    lexicon = alignment.learn(source, target)
    usual = lengths.learn(source_sizes, target_sizes)
    distance = int(alignment.FAR * len(source))  # of unrelated lines

    def features(target: Words, target_sizes: NDArray[np.int64]) -> Feature:
        agreement = alignment.agreement(source, target, lexicon)
        return np.stack([agreement, usual.z(source_sizes, target_sizes)])

    paired = features(target, target_sizes)
    unrelated = features(np.roll(target, distance, 0), np.roll(target_sizes, distance))
    return Comparison(lexicon, usual, alignment.weigh(paired, unrelated))


def are_related(source: Sequence[str], target: Sequence[str]) -> bool:
    """Whether the words of lines with the same number depend on each other more than those of other lines."""
    window = Window(lines_of(source[:N_TESTED]), lines_of(target[:N_TESTED]))
    reach = min(len(source) // 4, N_OTHERS // 2)
    norms = dependence([window], range(-reach, reach + 1))
    others = np.delete(norms, reach)
    median = np.median(others)
    spread = lengths.NORMAL * np.median(np.abs(others - median))
    return bool(norms[reach] - median > MIN_DEPENDENCE * spread)
