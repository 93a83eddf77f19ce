"""A measure of whether two lines translate each other, and a search for blocks of unrelated pairs.

A lexicon is learned from the corpus itself. It links source words to target words that occur in the same pairs. Equal
words, such as names and numbers, need not be learned. The agreement of a pair is the mean, over target words, of the
strongest link to a source word.

The measure is the log-likelihood ratio of a pair's agreement and lengths, unrelated against translated. Both
likelihoods are estimated from the corpus. Its pairs count as translations, and lines that are far apart count as
unrelated. A Viterbi search over all pairs finds the blocks. `nmt.corpus.pairing` then finds the right partners of the
lines in a block.

For a single pair, the measure is weak evidence, since short sentences share few words. To rank pairs, use `nmt score`.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import regex
from numpy.typing import NDArray

from nmt.corpus.lengths import Lengths, learn_lengths
from nmt.text.spans import Span
from nmt.text.words import COMPARED_WORD

MAX_WORDS = 24  # only the first words of a line are compared
MIN_TOGETHER = 2  # linked words occur together in at least this many pairs
MIN_LINK = 1.0  # nats; minimum pointwise mutual information of two linked words
MAX_LINK = 7.0  # nats; maximum strength of a link
MIN_SURPRISE = 4.0  # nats; minimum evidence that linked words do not occur together by chance
SAME_WORD = 4.0  # nats; strength of the link between equal words, such as names
FREQUENT = 0.001  # a source word is frequent if it is in more than this share of the lines
# Two lines are taken as unrelated if their distance is this share of the length of the file. The share is not 0.5,
# because in a file with exchanged halves, lines at this distance are translations.
FAR = 0.38
N_UNRELATED = 2_000  # maximum number of pairs of unrelated lines that are compared at once
BATCH = 1_000  # number of pairs that are compared at once
N_BINS = 24  # maximum number of bins of a histogram
# A sure link has at least the strength `SURE_LINK`. It is stronger than any other link of its two words, by at least
# `SURE_MARGIN`. Both are in nats. In tests/translate/alignments/de-en.tsv, 294 of 297 sure links are right.
SURE_LINK, SURE_MARGIN = 2.0, 0.5
SWITCH = 14.0  # nats; cost of each change of state in a Viterbi search
MIN_CONTRAST = 0.7  # nats; if `Evidence.contrast` is less, the pairs look like unrelated lines

ALIGNED_WORD = regex.compile(COMPARED_WORD)
ASCII_WORD = re.compile(r"[^\W_]+")  # matches the same as `ALIGNED_WORD` in ASCII text, in a third of the time
Words = NDArray[np.uint32]
Strengths = NDArray[np.float32]  # strengths of links, in nats
Feature = NDArray[np.float32]  # shape (2, ...): for each pair, the agreement and the z-score of the length ratio
Block = tuple[int, int]  # lines [start, end), counted from 0


@dataclass(frozen=True, eq=False)
class HashedLines:
    """Some lines, as hashes of words and as lengths. Indexing selects lines, as in an array."""

    words: Words  # shape (n, MAX_WORDS); 0 after the last word
    sizes: NDArray[np.int64]  # shape (n,); number of characters of each line

    def __getitem__(self, lines: Any) -> "HashedLines":
        return HashedLines(self.words[lines], self.sizes[lines])


def hash_lines(texts: Sequence[str]) -> HashedLines:
    sizes = np.array([len(text) for text in texts], np.int64)
    return HashedLines(hash_words(texts), sizes)


def hash_words(texts: Sequence[str]) -> Words:
    """Return the hashes of the first words of each text.

    The array has the shape (n, MAX_WORDS). It is 0 after the last word.
    """
    words = np.zeros((len(texts), MAX_WORDS), np.uint32)
    for row, text in zip(words, texts, strict=True):
        pattern = ASCII_WORD if text.isascii() else ALIGNED_WORD
        words_of_text = pattern.findall(text)[:MAX_WORDS]
        hashes = [hash_word(word) for word in words_of_text]
        row[: len(hashes)] = hashes
    return words


@functools.lru_cache(2**17)
def hash_word(word: str) -> int:
    return crc32(word.lower().encode("utf-8", "replace")) or 1


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Links between source words and target words."""

    keys: NDArray[np.uint64]  # shape (N,), ascending; the two words of each link, see `pair_keys`
    strengths: Strengths  # shape (N,)

    def links(self, word: int, vocabulary: Words) -> tuple[NDArray[np.int64], Strengths]:
        """Return the links of a source word to words of a vocabulary.

        A word without a link to itself gets one of strength `SAME_WORD`, since it may be a name.

        Args:
            vocabulary: target words, ascending.
        Returns:
            The indices of the linked words in the vocabulary, and the strengths of the links.
        """
        first_key = np.uint64(word << 32)
        start, end = np.searchsorted(self.keys, [first_key, first_key + 2**32])
        targets = self.keys[start:end].astype(np.uint32)
        strengths = self.strengths[start:end]
        if word not in targets:
            targets = np.append(targets, np.uint32(word))
            strengths = np.append(strengths, np.float32(SAME_WORD))
        # Leave out the targets that are not in the vocabulary.
        indices = np.searchsorted(vocabulary, targets)
        indices = np.minimum(indices, len(vocabulary) - 1)
        is_known = vocabulary[indices] == targets
        return indices[is_known], strengths[is_known]

    def strength(self, source: Words, target: Words) -> Strengths:
        """Return the strength of the link of each source word to each target word. 0 means no link.

        The shape is (n, S, T), for n pairs of S source words and T target words.
        """
        is_pair = (source != 0)[:, :, None] & (target != 0)[:, None, :]  # False for padding
        keys = pair_keys(source[:, :, None], target[:, None, :])[is_pair]
        index = np.searchsorted(self.keys, keys)
        index = np.minimum(index, len(self.keys) - 1)
        is_known = self.keys[index] == keys
        is_same = keys >> 32 == keys & 0xFFFFFFFF
        links = np.zeros(is_pair.shape, np.float32)
        links[is_pair] = np.where(is_known, self.strengths[index], SAME_WORD * is_same)
        return links


def pair_keys(source: Words, target: Words) -> NDArray[np.uint64]:
    """Return a 64-bit key for each pair of words. It consists of the two hashes, the source first."""
    return np.asarray(source.astype(np.uint64) << 32 | target, np.uint64)


def learn_lexicon(source: Words, target: Words) -> Lexicon:
    """Learn links between words that occur together significantly often.

    The strength of a link is the pointwise mutual information of the two words.
    """
    n = len(source)
    # 1. Count the pairs in which each word occurs, and those in which two words occur together.
    source_words, source_counts = np.unique(distinct_in_rows(source), return_counts=True)
    target_words, target_counts = np.unique(distinct_in_rows(target), return_counts=True)
    together = []
    for start in range(0, n, BATCH):
        batch = slice(start, start + BATCH)
        keys = pair_keys(source[batch, :, None], target[batch, None, :])
        keys_of_pairs = keys.reshape(len(keys), -1)
        together.append(distinct_in_rows(keys_of_pairs))
    keys, counts = np.unique(np.concatenate(together), return_counts=True)
    is_frequent = counts >= MIN_TOGETHER
    keys, counts = keys[is_frequent], counts[is_frequent]
    # 2. Keep the pairs of words that occur together more often than by chance.
    n_sources = source_counts[np.searchsorted(source_words, keys >> 32)]
    n_targets = target_counts[np.searchsorted(target_words, keys.astype(np.uint32))]
    expected = n_sources * n_targets / n
    links = np.log(counts / expected)  # nats: pointwise mutual information
    surprise = counts * links - (counts - expected)  # nats: the log-likelihood ratio of two Poisson rates
    is_linked = (links > MIN_LINK) & (surprise > MIN_SURPRISE)
    keys = keys[is_linked]
    links = np.minimum(links[is_linked], MAX_LINK)
    # 3. A frequent word, such as "war", may have another meaning in the other language. If no link to itself was
    # learned, the strength of this link is 0 instead of `SAME_WORD`.
    frequent = source_words[source_counts > max(3, FREQUENT * n)]
    frequent = np.union1d(frequent, np.zeros(1, np.uint32))  # with 0, the padding, a lexicon is never empty
    unlinked = np.setdiff1d(pair_keys(frequent, frequent), keys)
    keys = np.concatenate([keys, unlinked])
    links = np.concatenate([links, np.zeros(len(unlinked))])
    order = np.argsort(keys)
    return Lexicon(keys[order], links[order].astype(np.float32))


def distinct_in_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct values of each row, joined to one array."""
    ordered = np.sort(rows, 1)
    is_first = np.ones(rows.shape, bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return np.asarray(ordered[is_first])


def agreement(source: Words, target: Words, lexicon: Lexicon) -> Strengths:
    """Return the agreement of each pair, of shape (n,).

    The agreement is the mean, over target words, of the strongest link to a source word. It is NaN if a side has no
    words.
    """
    result = np.empty(len(source), np.float32)
    for start in range(0, len(source), BATCH):
        batch = slice(start, start + BATCH)
        result[batch] = agreement_of_batch(source[batch], target[batch], lexicon)
    return result


@dataclass(frozen=True, eq=False)
class FeatureExtractor:
    """What was learned from some pairs, to compute the features of any pairs."""

    lexicon: Lexicon
    lengths: Lengths

    def __call__(self, source: HashedLines, target: HashedLines) -> Feature:
        """Return the two features of each pair, of shape (2, n). See `Feature`."""
        length_ratio = self.lengths.z(source.sizes, target.sizes)
        return np.stack([agreement(source.words, target.words, self.lexicon), length_ratio])


def learn_features(source: HashedLines, target: HashedLines) -> FeatureExtractor:
    """Learn a lexicon and the usual lengths from pairs."""
    lexicon = learn_lexicon(source.words, target.words)
    return FeatureExtractor(lexicon, learn_lengths(source.sizes, target.sizes))


def agreement_of_batch(source: Words, target: Words, lexicon: Lexicon) -> NDArray[np.float64]:
    n_source = np.count_nonzero(source, 1)
    n_target = np.count_nonzero(target, 1)
    # Leave out the last columns, in which no line has a word.
    width = max(n_source.max(), 1)
    height = max(n_target.max(), 1)
    links = lexicon.strength(source[:, :width], target[:, :height])
    sums = links.max(1).sum(1)  # shape (n,)
    has_words = (n_source > 0) & (n_target > 0)
    return np.where(has_words, sums / np.maximum(n_target, 1), np.nan)


def sure_links(source: Sequence[str], target: Sequence[str], lexicon: Lexicon) -> list[list[tuple[Span, Span]]]:
    """Return, for each pair, the spans of words that surely translate each other.

    The link of two such words is strong, and clearly stronger than their other links.
    """
    links = lexicon.strength(hash_words(source), hash_words(target))
    # Compare each link with the second strongest link of its target word and of its source word.
    is_sure = links >= SURE_LINK
    second_of_target = np.sort(links, 1)[:, -2:-1, :]
    second_of_source = np.sort(links, 2)[:, :, -2:-1]
    is_sure &= links - second_of_target >= SURE_MARGIN
    is_sure &= links - second_of_source >= SURE_MARGIN
    # Find the spans of the linked words.
    source_spans = [aligned_word_spans(text) for text in source]
    target_spans = [aligned_word_spans(text) for text in target]
    spans: list[list[tuple[Span, Span]]] = [[] for _ in source]
    for pair, source_word, target_word in np.argwhere(is_sure).tolist():
        source_span = source_spans[pair][source_word]
        target_span = target_spans[pair][target_word]
        spans[pair].append((source_span, target_span))
    return spans


def aligned_word_spans(text: str) -> list[Span]:
    return [match.span() for match in ALIGNED_WORD.finditer(text)]


class Histogram(NamedTuple):
    """The log-likelihood ratio, unrelated against translated, of each bin of a feature."""

    edges: NDArray[np.float64]  # shape (bins - 1,), ascending
    ratios: NDArray[np.float64]  # shape (bins,), in nats


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence that the lines of a pair are unrelated."""

    histograms: list[Histogram]  # of the agreement and of the length ratio
    contrast: float  # mean log-likelihood ratio of unrelated lines, in nats; near 0 if all pairs are unrelated

    def __call__(self, pairs: Feature) -> NDArray[np.float64]:
        """Return the log-likelihood ratio of each pair, unrelated against translated. A NaN feature adds 0."""
        total = np.zeros(pairs.shape[1:])
        for values, (edges, ratios) in zip(pairs, self.histograms, strict=True):
            bins = np.searchsorted(edges, values)
            total += np.where(np.isnan(values), 0, ratios[bins])
        return total


def weigh(paired: Feature, unrelated: Feature) -> Evidence:
    """Estimate the evidence from the features of pairs and of unrelated lines."""
    histograms = []
    contrast = 0.0
    for of_pairs, of_unrelated in zip(paired, unrelated, strict=True):
        of_pairs = of_pairs[~np.isnan(of_pairs)]
        of_unrelated = of_unrelated[~np.isnan(of_unrelated)]
        # Each bin gets about the same number of values.
        pooled = np.concatenate([of_pairs, of_unrelated])
        edges = np.zeros(1)
        if len(pooled):
            inner = np.linspace(0, 1, N_BINS + 1)[1:-1]
            edges = np.unique(np.quantile(pooled, inner))
        shares = shares_of_bins(of_pairs, edges)
        shares_of_unrelated = shares_of_bins(of_unrelated, edges)
        ratios = np.log(shares_of_unrelated / shares)
        histograms.append(Histogram(edges, ratios))
        contrast += float((shares_of_unrelated * ratios).sum())
    return Evidence(histograms, contrast)


def unrelated_pairs(source: HashedLines, target: HashedLines) -> tuple[HashedLines, HashedLines]:
    """Return some source lines of n pairs, each with a target line that is far away."""
    n = len(source.sizes)
    some = np.linspace(0, n - 1, min(N_UNRELATED, n)).astype(int)
    distance = int(FAR * n)
    return source[some], target[(some + distance) % n]


def shares_of_bins(values: NDArray[np.float32], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the values in each bin. As smoothing, each bin gets two more values."""
    bins = np.searchsorted(edges, values)
    counts = np.bincount(bins, minlength=len(edges) + 1) + 2
    return np.asarray(counts / counts.sum())


def in_blocks(ratios: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether each pair is in a block of unrelated pairs.

    A Viterbi search with two states, inside and outside of a block, finds the blocks. `ratios` are the log-likelihood
    ratios of the pairs, unrelated against translated.
    """
    # For each line: the lead of the best path inside of a block over the best path outside.
    leads = []
    lead = -SWITCH
    for ratio in ratios.tolist():
        lead = min(max(lead, -SWITCH), SWITCH) + ratio
        leads.append(lead)
    # Follow the better path back.
    states = []
    is_inside = lead > 0
    for previous_lead in [*leads[-2::-1], 0.0]:
        states.append(is_inside)
        is_inside = previous_lead > (-SWITCH if is_inside else SWITCH)
    return np.array(states[::-1])
