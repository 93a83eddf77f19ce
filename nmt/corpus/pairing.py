"""A search for the lines of two files that belong together, where lines are missing or were added on either side.

A run is a stretch of source lines whose translations are all the same number of lines further down in the target file.
This number is the offset of the run. A hidden Markov model over the source lines finds the likeliest runs. The model
has one state for each offset, and one state for lines without a partner. Each change of state has a cost. The evidence
for an offset is the agreement and the length ratio of the lines that are paired at this offset. Hunalign (Varga et al.
2005, "Parallel corpora for medium density languages") also combines a learned lexicon with lengths.

The lexicon is learned from pairs. If no pairs are known yet, `nmt.corpus.bootstrap` finds the first pairs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.corpus.alignment import MAX_WORDS, SWITCH, Block, Evidence, HashedLines, Lexicon, Strengths, Words, hash_lines
from nmt.corpus.lengths import Lengths
from nmt.corpus.reading import Survey, decode, read_spans

# All offsets from 0 to the difference of the numbers of lines are tried, and this many offsets below and above these.
MARGIN = 250
MAX_OFFSETS = 10_000  # if there are more offsets to try, only lines with the same number are compared
# When a block of unrelated lines is paired again, this many lines before and after the block are paired again, too. The
# edge of two runs is placed by a comparison of this many lines before and after the edge.
AROUND = 60
# Two runs have a common edge if at most this many source lines are between the runs. Source lines whose translations
# must be missing, because the offset of the second run is lower, do not count.
TOUCHING = 3
N_CELLS = 500_000  # number of pairs of lines that are compared at once
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
        if self.offset == 0:
            return lines
        distance = abs(self.offset)
        unit = "line" if distance == 1 else "lines"
        where = "below" if self.offset > 0 else "above"
        return f"{lines}: the translation is {distance} {unit} {where}"


@dataclass(frozen=True, eq=False)
class Window:
    """Consecutive source lines, and all target lines that they are compared with."""

    source: HashedLines
    target: HashedLines
    source_start: int  # number of the first source line, counted from 0
    target_start: int  # number of the first target line

    @property
    def lines(self) -> range:
        """Return the numbers of the source lines."""
        return range(self.source_start, self.source_start + len(self.source))

    def source_lines(self, lines: range) -> HashedLines:
        return self.source[lines.start - self.source_start : lines.stop - self.source_start]

    def target_lines(self, lines: range) -> HashedLines:
        return self.target[lines.start - self.target_start : lines.stop - self.target_start]

    def partners(self, lines: range, offsets: range) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return the partner of each source line at each offset: the target line that is `offset` lines further down.

        Returns:
            Two arrays of shape (n, W), for n source lines and W offsets. The first array says whether the partner
            exists. The second array is the index of the partner in `target`. If the partner does not exist, the second
            array has the index of the nearest target line instead.
        """
        numbers = np.array(lines)[:, None] + np.array(offsets)
        indices = numbers - self.target_start
        last = len(self.target) - 1
        return (indices >= 0) & (indices <= last), np.clip(indices, 0, last)

    def agreement(self, lines: range, offsets: range, lexicon: Lexicon) -> Strengths:
        """Return the agreement of each source line with the target line at each offset.

        Returns:
            An array of shape (n, W), for n source lines and W offsets. The agreement is the mean, over target words, of
            the strongest link to a word of the source line, as in `alignment.agreement`. The agreement is NaN if one
            of the two lines has no words, or the target line does not exist.
        """
        source_words = self.source_lines(lines).words  # shape (n, MAX_WORDS)
        exists, partners = self.partners(lines, offsets)
        # 1. Number the words of all target lines that are compared.
        first = partners.min()
        target_words = self.target.words[first : partners.max() + 1]
        vocabulary, ids = np.unique(target_words, return_inverse=True)
        ids = ids.reshape(-1, MAX_WORDS)
        links = links_between(np.unique(source_words), vocabulary, lexicon)
        # 2. For each source line, sum up the strongest links of the words of each target line.
        sums = np.empty(partners.shape, np.float32)
        for row, words in enumerate(source_words):
            strongest = np.zeros(len(vocabulary), np.float32)  # strongest link of each target word to this source line
            for word in words[words != 0].tolist():
                linked_ids, strengths = links[word]
                strongest[linked_ids] = np.maximum(strongest[linked_ids], strengths)
            target_ids = ids[partners[row] - first]  # shape (W, MAX_WORDS)
            sums[row] = strongest[target_ids].sum(1)
        # 3. Divide the sums by the numbers of words of the target lines.
        n_words = np.count_nonzero(target_words, 1)[partners - first]
        has_words = exists & (n_words > 0) & (source_words[:, :1] != 0)
        means = sums / np.maximum(n_words, 1)
        return np.where(has_words, means, np.nan).astype(np.float32)


def links_between(
    source_words: Words, vocabulary: Words, lexicon: Lexicon
) -> dict[int, tuple[NDArray[np.int64], Strengths]]:
    """Return the links of each source word to words of a sorted vocabulary.

    The links of a word are two arrays: the indices of the linked words in the vocabulary, and the strengths.
    """
    result = {}
    for word in source_words.tolist():
        targets, strengths = lexicon.links(word)
        # Leave out the targets that are not in the vocabulary.
        ids = np.searchsorted(vocabulary, targets)
        ids = np.minimum(ids, len(vocabulary) - 1)
        is_in_vocabulary = vocabulary[ids] == targets
        result[word] = ids[is_in_vocabulary], strengths[is_in_vocabulary]
    return result


def read_windows(survey: Survey, blocks: Sequence[Block], offsets: range) -> Iterator[Window]:
    """Yield, for each block, a window: the source lines of the block, and the target lines at all offsets.

    Each file is read once.
    """
    target_blocks = []
    for start, end in blocks:
        target_start = max(start + offsets.start, 0)
        target_end = max(end + offsets.stop, target_start)
        target_blocks.append((target_start, target_end))
    sources = read_spans(survey.files.source, blocks)
    targets = read_spans(survey.files.target, target_blocks)
    for block, target_block, source, target in zip(blocks, target_blocks, sources, targets, strict=True):
        source_lines = hash_lines([decode(raw) for raw in source])
        target_lines = hash_lines([decode(raw) for raw in target])
        yield Window(source_lines, target_lines, block[0], target_block[0])


@dataclass(frozen=True, eq=False)
class LineComparison:
    """What is needed to tell translations from unrelated lines: a lexicon, the usual lengths, and the evidence."""

    lexicon: Lexicon
    lengths: Lengths
    evidence: Evidence

    def scores(self, window: Window, lines: range, offsets: range) -> NDArray[np.float64]:
        """Return an array of shape (n, W): the score of each of n source lines at each of W offsets.

        The score is the log-likelihood ratio, translated against unrelated, of the source line and the target line at
        this offset. If the target line does not exist, the score is `IMPOSSIBLE`.
        """
        exists, partners = window.partners(lines, offsets)
        agreement = window.agreement(lines, offsets, self.lexicon)
        sizes = window.source_lines(lines).sizes
        z = self.lengths.z(sizes[:, None], window.target.sizes[partners])
        ratios = self.evidence(np.stack([agreement, z]))
        return np.where(exists, -ratios, IMPOSSIBLE)

    def rows(self, window: Window, offsets: range) -> Iterator[NDArray[np.float64]]:
        """Yield, for each source line, an array of shape (W,): the scores of the line at all W offsets."""
        step = max(N_CELLS // len(offsets), 1)
        lines = window.lines
        for start in range(0, len(lines), step):
            yield from self.scores(window, lines[start : start + step], offsets)

    def runs(self, window: Window, offsets: range) -> list[Run]:
        """Return the runs of a window, in order. No line is in two runs."""
        if len(window.target) == 0:
            return []
        runs = likeliest_runs(self.rows(window, offsets), window.source_start, offsets)
        return self.with_exact_edges(without_crossings(runs), window)

    def with_exact_edges(self, runs: list[Run], window: Window) -> list[Run]:
        """Move each common edge of two runs to the place with the greatest sum of the scores of both runs."""
        placed = runs[:1]
        for after in runs[1:]:
            before = placed[-1]
            n_missing = max(before.offset - after.offset, 0)  # source lines between the runs without a partner
            if after.start - before.end <= n_missing + TOUCHING:
                # Compare both offsets on the lines around the edge.
                start, end = max(before.start, before.end - AROUND), min(after.end, after.start + AROUND)
                lines = range(start, end)
                scores_before = self.scores_at(window, lines, before.offset)
                scores_after = self.scores_at(window, lines, after.offset)
                # If the first k of these lines belong to the block `before`, the block `after` begins at the line with
                # index k + n_missing.
                n_edges = len(lines) - n_missing
                edge = start + place_edge(scores_before[:n_edges], scores_after[n_missing:])
                placed[-1] = replace(before, end=edge)
                after = replace(after, start=edge + n_missing)
            placed.append(after)
        return [run for run in placed if run.start < run.end]

    def scores_at(self, window: Window, lines: range, offset: int) -> NDArray[np.float64]:
        """Return an array of shape (n,): the scores of source lines at one offset."""
        return self.scores(window, lines, range(offset, offset + 1))[:, 0]


def place_edge(before: NDArray[np.float64], after: NDArray[np.float64]) -> int:
    """Return the index i at which the first state ends: the i with the greatest sum(before[:i]) + sum(after[i:])."""
    sums_before = np.concatenate([[0.0], np.cumsum(before)])
    sums_after = np.concatenate([np.cumsum(after[::-1])[::-1], [0.0]])
    return int((sums_before + sums_after).argmax())


def likeliest_runs(rows: Iterable[NDArray[np.float64]], first: int, offsets: range) -> list[Run]:
    """Return the runs of the likeliest path through the states of all lines, by the Viterbi algorithm.

    Args:
        rows: for each line, an array of shape (W,): log-likelihood ratios, translated against unrelated.
        first: the number of the first line.
        offsets: W offsets, in ascending steps of 1.
    """
    no_partner = len(offsets)  # the state of lines without a partner, whose score is 0
    totals = np.zeros(len(offsets) + 1)  # score of the best path that ends in each state
    since = np.full(len(offsets) + 1, first)  # the line at which this path entered the state
    steps = []  # after each line: the last state of the best path, and the line at which the path entered this state
    for line, row in enumerate(rows, first):
        # The best path that enters a state comes from the state with the greatest total.
        entry = totals.max() - SWITCH
        is_entered = totals < entry
        totals[is_entered] = entry
        since[is_entered] = line
        totals[:no_partner] += row
        state = int(totals.argmax())
        steps.append((state, int(since[state])))
    # Follow the best path back from the last line.
    runs = []
    end = first + len(steps)
    while end > first:
        state, start = steps[end - first - 1]
        if state != no_partner:
            runs.append(Run(start, end, offsets[state]))
        end = start
    return runs[::-1]


class RunPath(NamedTuple):
    """Runs that do not cross, as a linked list that begins with the last run."""

    n_pairs: int
    run: Run
    before: "RunPath | None"


def without_crossings(runs: Sequence[Run]) -> list[Run]:
    """Leave out or shorten runs until the runs are in ascending order on both sides, and no line is in two runs.

    As many pairs as possible are kept.
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
    """Return how many lines must be removed from the start of `after`, so that it follows `before` on both sides."""
    return max(before.end - after.start, before.target_end - after.target_start, 0)


def joined_runs(runs: Sequence[Run]) -> list[Run]:
    """Join runs that follow each other without a gap and have the same offset."""
    result = [*runs[:1]]
    for before, run in pairwise(runs):
        if before.end == run.start and before.offset == run.offset:
            result[-1] = replace(result[-1], end=run.end)
        else:
            result.append(run)
    return result


def offsets_of(survey: Survey) -> range:
    """Return the offsets that are tried.

    All offsets between 0 and the difference of the numbers of lines are tried, and `MARGIN` offsets below and above.
    But if this would be more than `MAX_OFFSETS` offsets, only offset 0 is tried.
    """
    difference = survey.n_target - survey.n_source
    margin = min(MARGIN, survey.n_pairs // 2)
    lowest, highest = min(difference, 0) - margin, max(difference, 0) + margin
    offsets = range(lowest, highest + 1)
    return offsets if len(offsets) <= MAX_OFFSETS else range(1)


def find_runs(survey: Survey, unrelated: Sequence[Block], comparison: LineComparison) -> list[Run]:
    """Return all runs of a corpus, in order.

    Args:
        unrelated: blocks of pairs whose two lines, which have the same number, do not belong together.
    """
    suspicious = [*unrelated]
    if survey.n_source != survey.n_target:
        suspicious.append((survey.n_pairs, survey.n_source))
    offsets = offsets_of(survey)
    blocks = widened(suspicious, survey.n_source)
    # Between the blocks, lines with the same number belong together.
    runs = []
    done = 0  # number of source lines whose runs were found
    for (start, end), window in zip(blocks, read_windows(survey, blocks, offsets), strict=True):
        runs.append(Run(done, min(start, survey.n_pairs)))
        runs += comparison.runs(window, offsets)
        done = end
    runs.append(Run(done, survey.n_pairs))
    # Runs of different windows may also cross.
    runs = [run for run in runs if run.start < run.end]
    return joined_runs(without_crossings(runs))


def widened(blocks: Sequence[Block], n_lines: int) -> list[Block]:
    """Extend each block by `AROUND` lines before and after the block. Join blocks that then touch or overlap."""
    result: list[Block] = []
    for block_start, block_end in blocks:
        start = max(block_start - AROUND, 0)
        end = min(block_end + AROUND, n_lines)
        if result and start <= result[-1][1]:
            start, _ = result.pop()
        result.append((start, end))
    return result
