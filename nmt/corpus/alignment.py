"""Measure whether the two lines of a pair translate each other, and find blocks of pairs that do not.

A lexicon of words that occur together is learned from the corpus itself; names and numbers, which are the same on both
sides, count without having been learned. The agreement of a pair is the mean, over target words, of the strongest link
to a source word. Each pair has a log-likelihood ratio, estimated from the distributions of agreement and length ratio
in the pairs of the corpus and in pairs of lines far apart. A two-state Viterbi search over these ratios finds blocks.
`nmt.corpus.pairing` then finds the lines that the lines of a block belong to.

The ratio of a single pair is weak evidence, since short sentences share few words; `nmt score` ranks pairs.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from nmt.corpus.lengths import Lengths
from nmt.text.spans import Span
from nmt.text.words import COMPARED_WORD

MAX_WORDS = 24  # only the first words of a line are compared
MIN_TOGETHER = 2  # pairs in which two words must occur together to be linked
MIN_LINK = 1.0  # nats of pointwise mutual information
MAX_LINK = 7.0
MIN_SURPRISE = 4.0  # nats by which two words must occur together more often than by chance
SAME_WORD = 4.0  # the link of two equal words that are not frequent
FREQUENT = 0.001  # a word in a larger share of the lines of both sides is linked to itself only if learned
FAR = 0.38  # distance of unrelated lines, as a share of all lines; halves of a file may have been exchanged
BATCH = 1_000  # pairs compared at once
N_BINS = 24
SURE_LINK, SURE_MARGIN = 2.0, 0.5  # nats; 294 of 297 sure links in tests/translate/alignments/de-en.tsv are right
SWITCH = 14.0  # cost in nats of the beginning of a block, and of its end
MIN_CONTRAST = 0.7  # nats; if `Evidence.contrast` is less, the pairs look like unrelated lines

ALIGNED_WORD = re.compile(COMPARED_WORD)
Words = NDArray[np.uint32]
Strengths = NDArray[np.float32]  # of links, in nats
Feature = NDArray[np.float32]  # (2, ...), agreement and length ratio (z) of pairs
Block = tuple[int, int]  # lines [start, end), from 0


@dataclass(frozen=True, eq=False)
class HashedLines:
    """Lines of one side, as hashes of words and as lengths. Indexing chooses lines, as in an array."""

    words: Words  # (n, MAX_WORDS), 0 after the last word
    sizes: NDArray[np.int64]  # (n,) characters

    def __getitem__(self, lines: Any) -> "HashedLines":
        return HashedLines(self.words[lines], self.sizes[lines])

    def __len__(self) -> int:
        return len(self.sizes)


def hash_lines(texts: Sequence[str]) -> HashedLines:
    sizes = np.array([len(text) for text in texts], np.int64)
    return HashedLines(hash_words(texts), sizes)


def hash_words(texts: Sequence[str]) -> Words:
    """Return hashes of the first `MAX_WORDS` words of each text: (n, MAX_WORDS), 0 where there are fewer."""
    words = np.zeros((len(texts), MAX_WORDS), np.uint32)
    for row, text in zip(words, texts, strict=True):
        words_of_text = ALIGNED_WORD.findall(text.lower())
        hashes = [hash_word(word) for word in words_of_text[:MAX_WORDS]]
        row[: len(hashes)] = hashes
    return words


@functools.lru_cache(2**17)
def hash_word(word: str) -> int:
    return crc32(word.encode("utf-8", "replace")) or 1


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Links between words."""

    keys: NDArray[np.uint64]  # (N,) source and target word of each link, see `pair_keys`; ascending
    strengths: Strengths  # (N,)

    def links(self, word: int) -> tuple[Words, Strengths]:
        """Return the target words that a source word is linked to, and the strengths of the links.

        A word that has no learned link to itself is linked to itself, as a name or a number is.
        """
        first_key = np.uint64(word << 32)
        start, end = np.searchsorted(self.keys, [first_key, first_key + 2**32])
        targets = self.keys[start:end].astype(np.uint32)
        strengths = self.strengths[start:end]
        if word not in targets:
            targets = np.append(targets, np.uint32(word))
            strengths = np.append(strengths, np.float32(SAME_WORD))
        return targets, strengths

    def strength(self, source: Words, target: Words) -> Strengths:
        """Return the link between each source word and each target word of a line: (n, S, T)."""
        is_pair = (source != 0)[:, :, None] & (target != 0)[:, None, :]  # of two words, without padding
        keys = pair_keys(source[:, :, None], target[:, None, :])[is_pair]
        index = np.searchsorted(self.keys, keys)
        index = np.minimum(index, len(self.keys) - 1)
        is_known = self.keys[index] == keys
        is_same = keys >> 32 == keys & 0xFFFFFFFF
        links = np.zeros(is_pair.shape, np.float32)
        links[is_pair] = np.where(is_known, self.strengths[index], SAME_WORD * is_same)
        return links


def pair_keys(source: Words, target: Words) -> NDArray[np.uint64]:
    """Return two words as one number."""
    return np.asarray(source.astype(np.uint64) << 32 | target, np.uint64)


def learn_lexicon(source: Words, target: Words) -> Lexicon:
    """Link words that occur together significantly often, with their pointwise mutual information as strength."""
    n = len(source)
    # 1. Count in how many pairs each word occurs, and each two words together.
    source_words, source_counts = np.unique(distinct(source), return_counts=True)
    target_words, target_counts = np.unique(distinct(target), return_counts=True)
    together = []
    for start in range(0, n, BATCH):
        batch = slice(start, start + BATCH)
        keys = pair_keys(source[batch, :, None], target[batch, None, :])
        together.append(distinct(keys.reshape(len(keys), -1)))
    keys, counts = np.unique(np.concatenate(together), return_counts=True)
    keys, counts = keys[counts >= MIN_TOGETHER], counts[counts >= MIN_TOGETHER]
    # 2. Keep the pairs of words that occur together more often than by chance.
    n_sources = source_counts[np.searchsorted(source_words, keys >> 32)]
    n_targets = target_counts[np.searchsorted(target_words, keys.astype(np.uint32))]
    expected = n_sources * n_targets / n
    links = np.log(counts / expected)  # nats: pointwise mutual information
    surprise = counts * links - (counts - expected)  # nats: the log-likelihood ratio of two Poisson rates
    is_linked = (links > MIN_LINK) & (surprise > MIN_SURPRISE)
    keys, links = keys[is_linked], np.minimum(links[is_linked], MAX_LINK)
    # 3. A frequent word of both languages, such as "in" or "war", is no evidence: store a link of 0 for it.
    often = max(3, FREQUENT * n)
    frequent = np.intersect1d(source_words[source_counts > often], target_words[target_counts > often])
    frequent = np.union1d(frequent, np.zeros(1, np.uint32))  # the padding: a lexicon is never empty
    unlinked = np.setdiff1d(pair_keys(frequent, frequent), keys)
    keys = np.concatenate([keys, unlinked])
    links = np.concatenate([links, np.zeros(len(unlinked))])
    order = np.argsort(keys)
    return Lexicon(keys[order], links[order].astype(np.float32))


def distinct(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct values of each row, concatenated."""
    ordered = np.sort(rows, 1)
    is_first = np.ones(rows.shape, bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return np.asarray(ordered[is_first])


def agreement(source: Words, target: Words, lexicon: Lexicon) -> Strengths:
    """Return the mean over target words of the strongest link to a word of the source: (n,); NaN without words."""
    result = np.empty(len(source), np.float32)
    for start in range(0, len(source), BATCH):
        batch = slice(start, start + BATCH)
        result[batch] = agreement_of_batch(source[batch], target[batch], lexicon)
    return result


def features(source: HashedLines, target: HashedLines, lexicon: Lexicon, lengths: Lengths) -> Feature:
    """Return agreement and length ratio (z) of pairs: (2, n)."""
    length_ratio = lengths.z(source.sizes, target.sizes)
    return np.stack([agreement(source.words, target.words, lexicon), length_ratio])


def agreement_of_batch(source: Words, target: Words, lexicon: Lexicon) -> NDArray[np.float64]:
    n_source = np.count_nonzero(source, 1)
    n_target = np.count_nonzero(target, 1)
    # Leave out the columns without words, which are the last ones.
    width, height = max(n_source.max(), 1), max(n_target.max(), 1)
    links = lexicon.strength(source[:, :width], target[:, :height])
    sums = links.max(1).sum(1)  # (n,)
    has_words = (n_source > 0) & (n_target > 0)
    return np.where(has_words, sums / np.maximum(n_target, 1), np.nan)


def sure_links(source: Sequence[str], target: Sequence[str], lexicon: Lexicon) -> list[list[tuple[Span, Span]]]:
    """Return words of each pair that surely translate each other: each is by far the strongest link of the other."""
    # İ is two characters in lower case, which would move the spans.
    source = [text.replace("İ", "I") for text in source]
    target = [text.replace("İ", "I") for text in target]
    links = lexicon.strength(hash_words(source), hash_words(target))
    # Compare each link with the second strongest of its words.
    is_sure = links >= SURE_LINK
    second_of_target = np.sort(links, 1)[:, -2:-1, :]
    second_of_source = np.sort(links, 2)[:, :, -2:-1]
    is_sure &= links - second_of_target >= SURE_MARGIN
    is_sure &= links - second_of_source >= SURE_MARGIN
    # Say where they are.
    source_spans = [word_spans(text) for text in source]
    target_spans = [word_spans(text) for text in target]
    spans: list[list[tuple[Span, Span]]] = [[] for _ in source]
    for pair, source_word, target_word in np.argwhere(is_sure).tolist():
        source_span = source_spans[pair][source_word]
        target_span = target_spans[pair][target_word]
        spans[pair].append((source_span, target_span))
    return spans


def word_spans(text: str) -> list[Span]:
    return [match.span() for match in ALIGNED_WORD.finditer(text)]


class Histogram(NamedTuple):
    """Log-likelihood ratios, unrelated against translated, by the bins of a feature."""

    edges: NDArray[np.float64]  # (bins - 1,), ascending
    ratios: NDArray[np.float64]  # (bins,) nats


@dataclass(frozen=True, eq=False)
class Evidence:
    """What agreement and length ratio (z) of a pair say about whether the lines translate each other."""

    histograms: list[Histogram]  # of agreement and length ratio
    contrast: float  # mean ratio of unrelated lines, nats; near 0 if the corpus is unrelated throughout

    def __call__(self, pairs: Feature) -> NDArray[np.float64]:
        """Return log-likelihood ratios, unrelated against translated. An unknown feature (NaN) says nothing."""
        total = np.zeros(pairs.shape[1:])
        for values, (edges, ratios) in zip(pairs, self.histograms, strict=True):
            bins = np.searchsorted(edges, values)
            total += np.where(np.isnan(values), 0, ratios[bins])
        return total


def weigh(paired: Feature, unrelated: Feature) -> Evidence:
    """Estimate log-likelihood ratios from the features of pairs and of unrelated lines."""
    histograms = []
    contrast = 0.0
    for of_pairs, of_unrelated in zip(paired, unrelated, strict=True):
        of_pairs = of_pairs[~np.isnan(of_pairs)]
        of_unrelated = of_unrelated[~np.isnan(of_unrelated)]
        # Bins with as many values each.
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


def shares_of_bins(values: NDArray[np.float32], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the values in each bin, with two more values in each bin."""
    bins = np.searchsorted(edges, values)
    counts = np.bincount(bins, minlength=len(edges) + 1) + 2
    return np.asarray(counts / counts.sum())


class BlockPath(NamedTuple):
    """The blocks of a path of states, as a linked list from the last one."""

    start: int
    end: int
    before: "BlockPath | None"


def blocks(ratios: NDArray[np.float64]) -> list[Block]:
    """Return the blocks of unrelated pairs: the likeliest path of two states, where a switch costs `SWITCH`."""
    # The best paths that end outside of a block, and in a block that begins at `start`: their log-likelihoods, and the
    # blocks that have ended.
    outside, blocks_outside = 0.0, None
    inside, blocks_inside, start = -np.inf, None, 0
    for line, ratio in enumerate(ratios.tolist()):
        if outside - SWITCH > inside:
            inside, blocks_inside, start = outside - SWITCH, blocks_outside, line
        elif inside - SWITCH > outside:
            outside, blocks_outside = inside - SWITCH, BlockPath(start, line, blocks_inside)
        inside += ratio
    if inside > outside:
        blocks_outside = BlockPath(start, len(ratios), blocks_inside)
    # Follow the better path back.
    result = []
    path = blocks_outside
    while path is not None:
        result.append((path.start, path.end))
        path = path.before
    return result[::-1]
