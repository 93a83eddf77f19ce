"""A search for the lines of two files that belong together. Lines may be missing on either side.

A run is a stretch of source lines. Their translations are all the same number of lines further down in the target file.
This number is the offset of the run. A hidden Markov model over the source lines finds the likeliest runs. It has a
state for each offset, and one for lines without a partner. The evidence for an offset is the agreement and the length
ratio of the lines that it pairs. Hunalign (Varga et al. 2005, "Parallel corpora for medium density languages") also
combines a learned lexicon with lengths.

The lexicon is learned from the lines with the same number, counted from the beginning or from the end. If lines are
missing both before and after the middle, it may tell too little.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.corpus.alignment import MAX_WORDS, SWITCH, Block, Evidence, FeatureExtractor, HashedLines, hash_lines
from nmt.corpus.reading import Survey, decode, read_spans

# This many offsets are tried below and above the expected ones, see `offsets_of`.
MARGIN = 250
MAX_OFFSETS = 10_000  # if there are more offsets to try, only lines with the same number are compared
# This many lines before and after a block of unrelated lines are paired again, too.
AROUND = 60
NO_PARTNER = -(2**62)  # stands for the offset of a line without a partner
IMPOSSIBLE = -1e6  # score of a pair whose target line does not exist


@dataclass(frozen=True)
class Run:
    """Consecutive source lines whose translations are `offset` lines further down in the target file."""

    start: int  # number of the first line, counted from 0
    end: int  # number of the line after the last line
    offset: int = 0

    @property
    def target_start(self) -> int:
        return self.start + self.offset

    @property
    def target_end(self) -> int:
        return self.end + self.offset

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        lines = f"lines {self.start + 1}-{self.end}"
        return (
            f"{lines}: the translations are lines {self.target_start + 1}-{self.target_end}" if self.offset else lines
        )


@dataclass(frozen=True, eq=False)
class Window:
    """Consecutive source lines, and all target lines that they are compared with."""

    source: HashedLines
    target: HashedLines
    source_start: int  # number of the first source line, counted from 0
    target_start: int  # number of the first target line


def read_windows(survey: Survey, blocks: Sequence[Block], offsets: range) -> Iterator[Window]:
    """Yield the source lines of each block, with the target lines at all offsets. Each file is read once."""
    target_blocks = [(max(start + offsets.start, 0), end + offsets.stop) for start, end in blocks]
    sources = read_spans(survey.files.source, blocks)
    targets = read_spans(survey.files.target, target_blocks)
    for block, target_block, source, target in zip(blocks, target_blocks, sources, targets, strict=True):
        source_lines = hash_lines([decode(raw) for raw in source])
        target_lines = hash_lines([decode(raw) for raw in target])
        yield Window(source_lines, target_lines, block[0], target_block[0])


@dataclass(frozen=True, eq=False)
class LineComparison:
    """A comparison of lines that tells translations from unrelated lines."""

    features: FeatureExtractor
    evidence: Evidence

    def rows(self, window: Window, offsets: range) -> Iterator[NDArray[np.float64]]:
        """Yield an array of shape (W,) for each source line: its scores at all W offsets.

        A score is a log-likelihood ratio, translated against unrelated. Without a target line, it is `IMPOSSIBLE`.
        """
        # 1. Number the words of all target lines, and look up their links.
        target = window.target
        vocabulary, ids = np.unique(target.words, return_inverse=True)
        ids = ids.reshape(-1, MAX_WORDS)
        n_words = np.count_nonzero(target.words, 1).astype(np.float32)
        n_words[n_words == 0] = np.nan
        source_vocabulary = np.unique(window.source.words).tolist()
        links = {word: self.features.lexicon.links(word, vocabulary) for word in source_vocabulary}
        first = window.source_start - window.target_start + offsets.start  # partner of the first line, lowest offset
        for line, words in enumerate(window.source.words, first):
            # 2. Find the strongest link of each target word to a word of this source line.
            strongest = np.full(len(vocabulary), 0 if words[0] else np.nan, np.float32)
            for word in words[words != 0].tolist():
                linked_ids, strengths = links[word]
                strongest[linked_ids] = np.maximum(strongest[linked_ids], strengths)
            # 3. Compute the score of each target line that exists. The agreement is that of `alignment.agreement`.
            partners = slice(max(line, 0), max(line + len(offsets), 0))
            agreement = strongest[ids[partners]].sum(1) / n_words[partners]
            z = self.features.lengths.z(window.source.sizes[line - first, None], target.sizes[partners])
            row = np.full(len(offsets), IMPOSSIBLE)
            n_before = partners.start - line
            row[n_before : n_before + len(z)] = -self.evidence(np.stack([agreement, z]))
            yield row


class Step(NamedTuple):
    """The best path after a line, if the line has a partner."""

    offset: int
    start: int  # the line at which this path entered the offset
    gap_start: int  # see `likeliest_runs`


def likeliest_runs(rows: Iterable[NDArray[np.float64]], first: int, offsets: range) -> list[Run]:
    """Return the runs of the likeliest path, by the Viterbi algorithm.

    It costs `SWITCH` to enter or to leave a run. Lines without a partner cost nothing.

    Args:
        rows: for each line, an array of shape (W,): log-likelihood ratios, translated against unrelated.
        first: the number of the first line.
        offsets: W offsets, in ascending steps of 1.
    """
    totals = np.zeros(len(offsets))  # score of the best path that ends at each offset
    since = np.full(len(offsets), first)  # the line at which this path entered the offset
    # Of the best path whose last line has no partner: its score, and the first of its last lines without a partner.
    gap, gap_start = 0.0, first
    steps = []
    for line, row in enumerate(rows, first):
        left = totals.max() - SWITCH
        if left > gap:
            gap, gap_start = left, line
        is_entered = totals < gap - SWITCH
        totals[is_entered] = gap - SWITCH
        since[is_entered] = line
        totals += row
        best = int(totals.argmax())
        steps.append(Step(offsets[best], int(since[best]), gap_start))
    # Follow the best path back from the last line.
    runs = []
    end = gap_start if gap > totals.max() else first + len(steps)
    while end > first:
        step = steps[end - first - 1]
        runs.append(Run(step.start, end, step.offset))
        end = steps[step.start - first].gap_start
    return runs[::-1]


class RunPath(NamedTuple):
    """Runs that do not cross, as a linked list that begins with the last run."""

    n_pairs: int
    run: Run
    before: "RunPath | None"


def without_crossings(runs: Sequence[Run]) -> list[Run]:
    """Leave out or shorten runs that cross, so that as many pairs as possible are kept.

    The remaining runs are in ascending order on both sides, and share no line.
    """
    paths: list[RunPath] = []  # for each run, the path with the most pairs that ends with this run
    for run in runs:
        best = RunPath(len(run), run, None)
        for path in paths:
            n_cut = overlap(path.run, run)
            n_pairs = path.n_pairs + len(run) - n_cut
            if n_cut < len(run) and n_pairs > best.n_pairs:
                shortened = replace(run, start=run.start + n_cut)
                best = RunPath(n_pairs, shortened, path)
        paths.append(best)
    # Follow the path with the most pairs back.
    kept = []
    path_left = max(paths, key=lambda path: path.n_pairs, default=None)
    while path_left is not None:
        kept.append(path_left.run)
        path_left = path_left.before
    return kept[::-1]


def overlap(before: Run, after: Run) -> int:
    """Return how many lines `after` must lose at its start to follow `before` on both sides."""
    return max(before.end - after.start, before.target_end - after.target_start, 0)


def offsets_of(survey: Survey) -> range:
    """Return the offsets that are tried.

    These are the offsets from 0 to the difference of the numbers of lines, and up to `MARGIN` below and above. If there
    are more than `MAX_OFFSETS`, only offset 0 is tried.
    """
    difference = survey.n_target - survey.n_source
    margin = min(MARGIN, survey.n_pairs // 2)
    lowest, highest = min(difference, 0) - margin, max(difference, 0) + margin
    offsets = range(lowest, highest + 1)
    return offsets if len(offsets) <= MAX_OFFSETS else range(1)


def find_runs(survey: Survey, is_unrelated: NDArray[np.bool_], comparison: LineComparison) -> list[Run]:
    """Return all runs of a corpus, in order.

    `is_unrelated`, of shape (n_pairs,), marks the lines in blocks of unrelated pairs.
    """
    # 1. If one file is longer, the end of the source file counts as a block, too.
    is_suspicious = np.ones(survey.n_source, bool)
    is_suspicious[: survey.n_pairs] = is_unrelated
    is_suspicious[-1] |= survey.n_source != survey.n_target
    blocks = stretches(widened(is_suspicious))
    # 2. Find the offsets of the lines in and near these blocks. The offset of all other lines is 0.
    offsets = offsets_of(survey)
    offset_of = np.zeros(survey.n_source, np.int64)
    for (start, end), window in zip(blocks, read_windows(survey, blocks, offsets), strict=True):
        offset_of[start:end] = NO_PARTNER
        rows = comparison.rows(window, offsets)
        for run in without_crossings(likeliest_runs(rows, start, offsets)):
            offset_of[run.start : run.end] = run.offset
    # 3. Join consecutive lines with the same offset. Runs of different windows may cross.
    changes = np.flatnonzero(np.diff(offset_of)) + 1
    runs = []
    for start, end in pairwise([0, *changes.tolist(), survey.n_source]):
        if offset_of[start] != NO_PARTNER:
            runs.append(Run(start, end, int(offset_of[start])))
    return without_crossings(runs)


def widened(is_suspicious: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Extend each stretch of suspicious lines by `AROUND` lines before and after the stretch."""
    counts = np.convolve(is_suspicious, np.ones(2 * AROUND + 1, np.int64))
    return np.asarray(counts[AROUND:-AROUND] > 0)


def stretches(mask: NDArray[np.bool_]) -> list[Block]:
    """Return the start and the end of each stretch of True."""
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    return [(start, end) for start, end in edges.reshape(-1, 2).tolist()]
