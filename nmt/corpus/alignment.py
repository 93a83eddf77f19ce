"""Measure whether the two lines of a pair translate each other, and find blocks of pairs that do not.

A lexicon of words that occur together is learned from the corpus itself; names and numbers, which are the same on both
sides, count without having been learned. The agreement of a pair is the mean, over target words, of the strongest link
to a source word. Each pair has a log-likelihood ratio, estimated from the distributions of agreement and length ratio
in the pairs of the corpus and in pairs of lines far apart. A two-state Viterbi search over these ratios finds blocks.
`nmt.corpus.pairing` then finds the lines that the lines of a block belong to.

The ratio of a single pair is weak evidence, since short sentences share few words; `nmt score` ranks pairs.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from nmt.text.spans import Span
from nmt.text.words import COMPARED_WORD

MAX_WORDS = 24  # only the first words of a line are compared
MIN_TOGETHER = 2  # pairs in which two words must occur together to be linked
MIN_LINK = 1.0  # nats of pointwise mutual information
MAX_LINK = 7.0
SAME_WORD = 4.0  # the link of two equal words that are not frequent
FREQUENT = 0.001  # a word in a larger share of the lines of both sides is linked to itself only if learned
FAR = 0.38  # distance of unrelated lines, as a share of all lines; halves of a file may have been exchanged
TABLE_BITS = 20
BATCH = 1_000  # pairs compared at once
N_BINS = 24
SURE_LINK, SURE_MARGIN = 2.0, 0.5  # nats; 294 of 297 sure links in tests/translate/alignments/de-en.tsv are right
SWITCH = 14.0  # cost in nats of the beginning of a block, and of its end
MIN_CONTRAST = 0.7  # nats; if `Evidence.contrast` is less, the pairs look like unrelated lines

WORD_OR_END = re.compile(rf"\n|{COMPARED_WORD}")  # the newline is a token that marks the end of a line
Words = NDArray[np.uint32]
Feature = NDArray[np.float32]  # (2, n), agreement and length ratio (z) of pairs
STRENGTHS = (np.arange(256) * (MAX_LINK / 255)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Links between words, as a list and as a hash table of fingerprint (24 bits) and strength (8 bits)."""

    sources: Words  # (N,) source words of the links, ascending
    targets: Words  # (N,)
    strengths: NDArray[np.float32]  # (N,)
    table: NDArray[np.uint32]  # (2^TABLE_BITS,)

    def links(self, words: Words) -> tuple[NDArray[np.int64], Words, NDArray[np.float32]]:
        """List the links of source words.

        Args:
            words: (n,) hashes of source words.
        Returns:
            Indices into words, target words and strengths, (m,) each. A word that has no learned link to itself is
            linked to itself, as a name or a number is.
        """
        first = np.searchsorted(self.sources, words, "left")
        last = np.searchsorted(self.sources, words, "right")
        index, entries = ranges(first, last)
        linked_to_itself = self.sources[self.sources == self.targets]
        same = np.flatnonzero(~np.isin(words, linked_to_itself))
        return (
            np.concatenate([index, same]),
            np.concatenate([self.targets[entries], words[same]]),
            np.concatenate([self.strengths[entries], np.full(len(same), SAME_WORD, np.float32)]),
        )

    def strength(self, source: Words, target: Words) -> NDArray[np.float32]:
        """The link between each source word and each target word of a line, given their hashes: (n, S, T)."""
        keys = _keys(source)[:, :, None] ^ _keys(target)[:, None, :].byteswap()
        found = self.table[_slots(keys)]
        links: NDArray[np.float32] = STRENGTHS[found & np.uint32(0xFF)]
        known = ((found ^ (keys << np.uint32(8))) >> np.uint32(8)) == 0
        links *= known
        same = source[:, :, None] == target[:, None, :]
        if same.any():
            links[same & ~known] = SAME_WORD
        return links


def _keys(words: Words) -> Words:
    return np.asarray(words * np.uint32(0x9E3779B1), np.uint32)


def _slots(keys: Words) -> Words:
    return np.asarray((keys * np.uint32(0x85EBCA6B)) >> np.uint32(32 - TABLE_BITS), np.uint32)


def words_of(texts: Sequence[str]) -> Words:
    """Hashes of the first `MAX_WORDS` words of each text: (n, MAX_WORDS), 0 where there are fewer."""
    tokens = WORD_OR_END.findall("\n".join([*texts, ""]).lower())
    known: dict[str, int] = {"\n": 0}
    for token in set(tokens):
        known.setdefault(token, crc32(token.encode("utf-8", "replace")) or 1)
    hashes = np.fromiter(map(known.__getitem__, tokens), np.uint32, len(tokens))
    bounds = np.concatenate([[0], np.flatnonzero(hashes == 0) + 1])
    lengths = np.diff(bounds)  # the newline at the end included, whose hash is 0
    places = np.arange(len(hashes)) - np.repeat(bounds[:-1], lengths)
    kept = places < MAX_WORDS
    found = np.zeros((len(texts), MAX_WORDS), np.uint32)
    found[np.repeat(np.arange(len(texts)), lengths)[kept], places[kept]] = hashes[kept]
    return found


def learn(source: Words, target: Words) -> Lexicon:
    """Link words that occur together significantly often, with their pointwise mutual information as strength."""
    n = len(source)
    own, own_counts = np.unique(distinct(source), return_counts=True)
    other, other_counts = np.unique(distinct(target), return_counts=True)
    together = []
    for start in range(0, n, BATCH):
        left, right = source[start : start + BATCH], target[start : start + BATCH]
        both = (left[:, :, None].astype(np.uint64) << np.uint64(32)) | right[:, None, :]
        both = distinct(both.reshape(len(left), -1))
        together.append(both[((both >> np.uint64(32)) != 0) & ((both & np.uint64(0xFFFFFFFF)) != 0)])
    keys, counts = np.unique(np.concatenate(together), return_counts=True)
    keys, counts = keys[counts >= MIN_TOGETHER], counts[counts >= MIN_TOGETHER]
    left, right = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    n_left, n_right = own_counts[np.searchsorted(own, left)], other_counts[np.searchsorted(other, right)]
    expected = n_left * n_right / n
    links = np.log(counts / expected)
    surprise = counts * links - (counts - expected)  # nats: the log-likelihood ratio of two Poisson rates
    kept = (links > MIN_LINK) & (surprise > 4.0)
    # A frequent word of both languages, such as "in" or "war", is no evidence: store a link of 0 for it.
    frequent = np.intersect1d(own[own_counts > max(3, FREQUENT * n)], other[other_counts > max(3, FREQUENT * n)])
    left, right = np.concatenate([frequent, left[kept]]), np.concatenate([frequent, right[kept]])
    links = np.concatenate([np.zeros(len(frequent)), links[kept]])
    left, right = left.astype(np.uint32), right.astype(np.uint32)
    order = np.argsort(links, kind="stable")  # the strongest of the links in a slot overwrites the others
    keys = _keys(left[order]) ^ _keys(right[order]).byteswap()
    table = np.zeros(2**TABLE_BITS, np.uint32)
    levels = np.clip(links[order] * (255 / MAX_LINK), 0, 255).astype(np.uint32)
    table[_slots(keys)] = keys << np.uint32(8) | levels
    order = np.argsort(left, kind="stable")
    strengths = np.minimum(links[order], MAX_LINK).astype(np.float32)
    return Lexicon(left[order], right[order], strengths, table)


def ranges(first: NDArray[np.int64], last: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The integers of the ranges [first, last), concatenated: for each, the index of its range and its value."""
    counts = last - first
    index = np.repeat(np.arange(len(counts)), counts)
    begins = np.cumsum(counts) - counts  # of each range, in the concatenation
    values = np.arange(len(index)) - begins[index] + first[index]
    return index, values


def distinct(rows: NDArray[Any]) -> NDArray[Any]:
    """The distinct values of each row, concatenated."""
    ordered = np.sort(rows, 1)
    is_new = np.concatenate([np.ones((len(rows), 1), bool), ordered[:, 1:] != ordered[:, :-1]], 1)
    return np.asarray(ordered[is_new])


def agreement(source: Words, target: Words, lexicon: Lexicon) -> NDArray[np.float32]:
    """The mean over target words of the strongest link to a word of the source: (n,); NaN without words."""
    found = np.empty(len(source), np.float32)
    for start in range(0, len(source), BATCH):
        left, right = source[start : start + BATCH], target[start : start + BATCH]
        n_words = (right != 0).sum(1)
        wide, tall = max(int((left != 0).sum(1).max()), 1), max(int(n_words.max()), 1)  # padding is at the end
        left, right = left[:, :wide], right[:, :tall]
        links = lexicon.strength(left, right)
        links[left == 0] = 0
        strongest = links.max(1) * (right != 0)
        none = (n_words == 0) | (left[:, 0] == 0)
        found[start : start + BATCH] = np.where(none, np.nan, strongest.sum(1) / np.maximum(n_words, 1))
    return found


def sure_links(source: Sequence[str], target: Sequence[str], lexicon: Lexicon) -> list[list[tuple[Span, Span]]]:
    """Words of each pair that surely translate each other: each is by far the strongest link of the other."""
    sides = [[text.replace("İ", "I") for text in side] for side in (source, target)]  # two characters in lower case
    words = [*map(words_of, sides)]
    links = lexicon.strength(*words) * (words[0] != 0)[:, :, None] * (words[1] != 0)[:, None, :]
    is_sure = links >= SURE_LINK
    for axis in (1, 2):
        is_sure &= links - np.sort(links, axis).take([-2], axis) >= SURE_MARGIN
    spans = [[[match.span() for match in WORD_OR_END.finditer(text)] for text in side] for side in sides]
    found: list[list[tuple[Span, Span]]] = [[] for _ in source]
    for i, s, t in np.argwhere(is_sure).tolist():
        found[i].append((spans[0][i][s], spans[1][i][t]))
    return found


@dataclass(frozen=True, eq=False)
class Evidence:
    """Log-likelihood ratios, unrelated against translated, by agreement and by length ratio (z)."""

    bounds: tuple[NDArray[np.float64], NDArray[np.float64]]
    ratios: tuple[NDArray[np.float64], NDArray[np.float64]]
    contrast: float  # mean ratio of unrelated lines, nats; near 0 if the corpus is unrelated throughout

    def __call__(self, pairs: Feature) -> NDArray[np.float64]:
        total = np.zeros(pairs.shape[1])
        for values, bounds, ratios in zip(pairs, self.bounds, self.ratios, strict=True):
            found = ratios[np.searchsorted(bounds, values)]
            total += np.where(np.isnan(values), 0.0, found)
        return total


def weigh(true: Feature, unrelated: Feature, is_true: NDArray[np.bool_] | None = None) -> Evidence:
    """Estimate log-likelihood ratios from histograms of features of the pairs `is_true` and of lines far apart."""
    bounds, ratios, contrast = [], [], 0.0
    for own, other in zip(true, unrelated, strict=True):
        own = own if is_true is None else own[is_true]
        own, other = own[~np.isnan(own)], other[~np.isnan(other)]
        pooled = np.concatenate([own, other])
        edges = np.unique(np.quantile(pooled, np.linspace(0, 1, N_BINS + 1)[1:-1])) if len(pooled) else np.zeros(1)
        counts = [np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) + 2.0 for x in (own, other)]
        shares = [count / count.sum() for count in counts]
        ratio = np.log(shares[1] / shares[0])
        bounds.append(edges)
        ratios.append(ratio)
        contrast += float((shares[1] * ratio).sum())
    return Evidence((bounds[0], bounds[1]), (ratios[0], ratios[1]), contrast)


def blocks(ratios: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Blocks [start, end) of unrelated pairs: the likeliest path of two states, where a switch costs `SWITCH`."""
    inside, outside = -np.inf, 0.0  # log-likelihood of the best path that ends in a block, and outside
    entered, left = np.zeros(len(ratios), bool), np.zeros(len(ratios), bool)  # whether they switch at i
    for i, ratio in enumerate(ratios.tolist()):
        entered[i], left[i] = outside - SWITCH > inside, inside - SWITCH > outside
        inside, outside = max(inside, outside - SWITCH) + ratio, max(outside, inside - SWITCH)
    found: list[tuple[int, int]] = []
    is_inside, end = inside > outside, len(ratios)
    for i in reversed(range(len(ratios))):
        if is_inside and entered[i]:
            found.append((i, end))
            is_inside = False
        elif not is_inside and left[i]:
            is_inside, end = True, i
    return found[::-1]


def place_edge(before: NDArray[np.float64], after: NDArray[np.float64]) -> int:
    """The index i at which one state gives way to another: it maximizes sum(before[:i]) + sum(after[i:])."""
    sums_before = np.concatenate([[0.0], np.cumsum(before)])
    sums_after = np.concatenate([np.cumsum(after[::-1])[::-1], [0.0]])
    return int((sums_before + sums_after).argmax())
