"""Find which lines of two files belong together where lines are missing or were added, on either side.

A run is a stretch of source lines whose translations are all the same number of lines further down, its offset. The
likeliest runs come from a hidden Markov model over the source lines. It has a state per offset and one for lines
without a partner, a cost for each change of state, and as evidence the agreement and the length ratio of the lines that
a state pairs. Hunalign (Varga et al. 2005, "Parallel corpora for medium density languages") also combines a learned
lexicon with lengths.

The lexicon is learned from pairs; where none are known yet, `nmt.corpus.bootstrap` finds some.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nmt.corpus import alignment
from nmt.corpus.alignment import SWITCH, Evidence, Lexicon, Words
from nmt.corpus.lengths import Lengths
from nmt.corpus.reading import Survey, decode, read_spans

MARGIN = 250  # offsets that are tried below 0 and beyond the difference of the numbers of lines
MAX_OFFSETS = 10_000  # if the numbers of lines differ by more, only lines of the same number are compared
AROUND = 60  # lines before and after a block of unrelated lines that are paired together with it
TOUCHING = 3  # two runs have a common edge if at most so many lines more than necessary lie between them
N_CELLS = 500_000  # pairs of lines that are compared at once
IMPOSSIBLE = -1e6  # score of a pair whose target line does not exist


@dataclass(frozen=True)
class Run:
    """Consecutive source lines whose translations are `offset` lines further down."""

    start: int  # from 0
    end: int  # exclusive
    offset: int = 0

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        n = abs(self.offset)
        where = "below" if self.offset > 0 else "above"
        place = f": the translation is {n} {'line' if n == 1 else 'lines'} {where}" if n else ""
        return f"lines {self.start + 1}-{self.end}{place}"


@dataclass(frozen=True, eq=False)
class Lines:
    """Consecutive lines of one side, as words and lengths."""

    first: int  # number of the first line, from 0
    words: Words  # (n, MAX_WORDS)
    sizes: NDArray[np.int64]  # (n,) characters


def lines_of(texts: Sequence[str], first: int = 0) -> Lines:
    """The words and lengths of consecutive texts, of which the first is line number `first`."""
    sizes = np.array([len(text) for text in texts], np.int64)
    return Lines(first, alignment.words_of(texts), sizes)


class Window:
    """Consecutive source lines, and all target lines that they are compared with.

    `occurrences` holds word and line number of every target word in one integer, ascending, so that the lines with a
    word are found by bisection.
    """

    def __init__(self, source: Lines, target: Lines) -> None:
        self.source = source
        self.target = target
        self.n_words = (target.words != 0).sum(1)
        rows, columns = np.nonzero(target.words)
        self.occurrences = np.sort(_keys(target.words[rows, columns], rows))

    @property
    def lines(self) -> range:
        return range(self.source.first, self.source.first + len(self.source.sizes))

    def agreement(self, lines: range, offsets: range, lexicon: Lexicon) -> NDArray[np.float32]:
        """Compare source lines with the target lines at all offsets.

        Returns:
            (n, W): the mean over target words of the strongest link to a word of the source line, as
            `alignment.agreement` has it; NaN if either line has no words, or if there is no such target line.
        """
        first_source, first_target = self.source.first, self.target.first
        source = self.source.words[lines.start - first_source : lines.stop - first_source]
        # The target words that each line is linked to, each with its strongest link.
        rows, columns = np.nonzero(source)
        index, targets, strengths = lexicon.links(source[rows, columns])
        rows = rows[index]
        order = np.lexsort((strengths, targets, rows))
        rows, targets, strengths = rows[order], targets[order], strengths[order]
        is_strongest = np.ones(len(rows), bool)
        is_strongest[:-1] = (rows[1:] != rows[:-1]) | (targets[1:] != targets[:-1])
        rows, targets, strengths = rows[is_strongest], targets[is_strongest], strengths[is_strongest]
        # Where these words occur in the target lines that are compared.
        lowest = rows + lines.start + offsets.start - first_target  # index of a target line
        begins = np.searchsorted(self.occurrences, _keys(targets, np.maximum(lowest, 0)))
        ends = np.searchsorted(self.occurrences, _keys(targets, np.maximum(lowest + len(offsets), 0)))
        index, places = alignment.ranges(begins, ends)
        found_in = (self.occurrences[places] & np.uint64(0xFFFFFFFF)).astype(np.int64)
        # Sum the links of each pair of lines, and divide by the words of the target line.
        columns = found_in - lowest[index]
        cells = rows[index] * len(offsets) + columns
        sums = np.bincount(cells, strengths[index], len(lines) * len(offsets))
        sums = sums.reshape(len(lines), len(offsets))
        exists, partners = self.partners(lines, offsets)
        n_words = self.n_words[partners]
        has_words = exists & (n_words > 0) & (source[:, :1] != 0)
        return np.where(has_words, sums / np.maximum(n_words, 1), np.nan).astype(np.float32)

    def partners(self, lines: range, offsets: range) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Whether the target lines at all offsets exist, and their indices in `target`, clipped: (n, W) each."""
        indices = np.arange(lines.start, lines.stop)[:, None] + np.array(offsets) - self.target.first
        last = len(self.target.sizes) - 1
        return (indices >= 0) & (indices <= last), np.clip(indices, 0, last)


def read_windows(survey: Survey, spans: Sequence[tuple[int, int]], offsets: range) -> Iterator[Window]:
    """Read source lines [start, end) of each span, and the target lines at all offsets, in one pass over the files."""
    target_spans = []
    for start, end in spans:
        target_start = max(start + offsets.start, 0)
        target_spans.append((target_start, max(end + offsets.stop, target_start)))
    sources = read_spans(survey.files.source, spans)
    targets = read_spans(survey.files.target, target_spans)
    for (first, _), (target_first, _), source, target in zip(spans, target_spans, sources, targets, strict=True):
        source_texts = [decode(raw) for raw in source]
        target_texts = [decode(raw) for raw in target]
        yield Window(lines_of(source_texts, first), lines_of(target_texts, target_first))


def _keys(words: Words, lines: NDArray[np.int64]) -> NDArray[np.uint64]:
    return (words.astype(np.uint64) << np.uint64(32)) | lines.astype(np.uint64)


@dataclass(frozen=True, eq=False)
class Comparison:
    """What tells translations from unrelated lines."""

    lexicon: Lexicon
    lengths: Lengths
    evidence: Evidence

    def scores(self, window: Window, lines: range, offsets: range) -> NDArray[np.float64]:
        """Log-likelihood ratios, translated against unrelated, of pairs of a source line and an offset: (n, W)."""
        agreement = window.agreement(lines, offsets, self.lexicon)
        exists, partners = window.partners(lines, offsets)
        sizes = window.source.sizes[lines.start - window.source.first : lines.stop - window.source.first]
        z = self.lengths.z(np.broadcast_to(sizes[:, None], partners.shape), window.target.sizes[partners])
        ratios = self.evidence(np.stack([agreement.reshape(-1), z.reshape(-1)])).reshape(partners.shape)
        return np.where(exists, -ratios, IMPOSSIBLE)

    def scores_at(self, window: Window, lines: range, offset: int) -> NDArray[np.float64]:
        """The scores of source lines at one offset: (n,)."""
        return self.scores(window, lines, range(offset, offset + 1))[:, 0]

    def runs(self, window: Window, offsets: range) -> list[Run]:
        """The runs of a window, in order; no line is in two of them."""
        if not len(window.target.sizes):
            return []
        step = max(N_CELLS // len(offsets), 1)
        lines = window.lines
        parts = (lines[i : i + step] for i in range(0, len(lines), step))
        scores = (self.scores(window, part, offsets) for part in parts)
        runs = without_crossings(likeliest_runs(scores, lines.start, offsets))
        return self.with_exact_edges(runs, window)

    def with_exact_edges(self, runs: list[Run], window: Window) -> list[Run]:
        """Move the common edge of two runs to where the scores of both sum up to the most."""
        placed = runs[:1]
        for after in runs[1:]:
            before = placed[-1]
            n_between = max(before.offset - after.offset, 0)  # source lines whose partners are missing
            if after.start - before.end <= n_between + TOUCHING:
                lines = range(max(before.start, before.end - AROUND), min(after.end, after.start + AROUND))
                scores_before = self.scores_at(window, lines, before.offset)
                scores_after = self.scores_at(window, lines, after.offset)
                # If the edge is after k lines, `after` begins with line k + n_between.
                n_edges = len(lines) - n_between
                end = lines.start + alignment.place_edge(scores_before[:n_edges], scores_after[n_between:])
                placed[-1] = replace(before, end=end)
                after = replace(after, start=end + n_between)
            placed.append(after)
        return [run for run in placed if run.start < run.end]


def likeliest_runs(scores: Iterable[NDArray[np.float64]], first: int, offsets: range) -> list[Run]:
    """The runs of the likeliest path through the states of all lines, by the Viterbi algorithm.

    Args:
        scores: log-likelihood ratios, translated against unrelated, (n, W) each, of consecutive lines.
        first: the number of the first line.
        offsets: W offsets, in ascending steps of 1.
    """
    no_partner = len(offsets)  # this state pairs a line with none and has the score 0
    totals = np.zeros(len(offsets) + 1)  # of the best path that ends in each state
    since = np.full(len(offsets) + 1, first)  # the line at which that path entered the state
    best_states: list[int] = []  # after each line: the state in which the best path ends, and since when
    best_since: list[int] = []
    for row in (row for part in scores for row in part):
        # A state is entered from the best of all states.
        entered = totals < totals.max() - SWITCH
        totals[entered] = totals.max() - SWITCH
        since[entered] = first + len(best_states)
        totals[:no_partner] += row
        best = int(totals.argmax())
        best_states.append(best)
        best_since.append(int(since[best]))
    # Follow the best path back from the last line.
    runs = []
    end = len(best_states)
    while end > 0:
        state, start = best_states[end - 1], best_since[end - 1]
        if state != no_partner:
            runs.append(Run(start, first + end, offsets[state]))
        end = start - first
    return runs[::-1]


def without_crossings(runs: Sequence[Run]) -> list[Run]:
    """Leave out or shorten runs so that each target line has one partner and lines ascend; keep the most pairs."""
    totals: list[int] = []  # pairs, at most, in runs up to this one and with it
    previous: list[int] = []  # the run before this one, or -1
    for i, run in enumerate(runs):
        totals.append(len(run))
        previous.append(-1)
        for j in range(i):
            n_kept = len(run) - overlap(runs[j], run)
            if n_kept > 0 and totals[j] + n_kept > totals[i]:
                totals[i], previous[i] = totals[j] + n_kept, j
    kept: list[Run] = []
    i = int(np.argmax(totals)) if totals else -1
    while i >= 0:
        before = previous[i]
        shared = overlap(runs[before], runs[i]) if before >= 0 else 0
        kept.append(replace(runs[i], start=runs[i].start + shared))
        i = before
    return kept[::-1]


def overlap(before: Run, after: Run) -> int:
    """How many lines `after` must begin later so that all its lines, on both sides, come after those of `before`."""
    return max(before.end - after.start, before.end + before.offset - after.start - after.offset, 0)


def joined(runs: Sequence[Run]) -> list[Run]:
    """Join runs that follow each other without a gap and have the same offset."""
    result: list[Run] = []
    for run in runs:
        if result and result[-1].end == run.start and result[-1].offset == run.offset:
            result[-1] = replace(result[-1], end=run.end)
        else:
            result.append(run)
    return result


def offsets_of(survey: Survey) -> range:
    """The offsets that are tried: those around 0 and around the difference of the numbers of lines."""
    difference = survey.n_target - survey.n_source
    margin = min(MARGIN, survey.n_pairs // 2)
    offsets = range(min(difference, 0) - margin, max(difference, 0) + margin + 1)
    return offsets if len(offsets) <= MAX_OFFSETS else range(1)


def find_runs(survey: Survey, unrelated: Sequence[tuple[int, int]], comparison: Comparison) -> list[Run]:
    """All runs of a corpus, in order.

    Args:
        unrelated: blocks [start, end) of lines that do not belong to the lines with the same number.
    """
    suspicious = list(unrelated)
    if survey.n_source != survey.n_target:
        suspicious.append((survey.n_pairs, survey.n_source))
    offsets = offsets_of(survey)
    runs = []
    done = 0  # lines
    spans = widened(suspicious, survey.n_source)
    for (start, end), window in zip(spans, read_windows(survey, spans, offsets), strict=True):
        runs.append(Run(done, min(start, survey.n_pairs)))
        runs += comparison.runs(window, offsets)
        done = end
    runs.append(Run(done, survey.n_pairs))
    return joined(without_crossings([run for run in runs if run.start < run.end]))


def widened(blocks: Sequence[tuple[int, int]], n_lines: int) -> list[tuple[int, int]]:
    """Blocks with `AROUND` lines before and after them; those that then touch are joined."""
    spans: list[tuple[int, int]] = []
    for block_start, block_end in blocks:
        start, end = max(block_start - AROUND, 0), min(block_end + AROUND, n_lines)
        if spans and start <= spans[-1][1]:
            start, _ = spans.pop()
        spans.append((start, end))
    return spans
