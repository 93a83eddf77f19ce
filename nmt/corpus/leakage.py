"""Repeated sentences: within a corpus, and between train, dev and test.

Two sentences are almost the same if at most one word is added, removed or replaced, regardless of case, punctuation and
word order. Each sentence has a key of all its words, and for each word a key of all the other words. Sentences that are
almost the same share a key. Unlike MinHash, this finds all of them, and no others.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.corpus.alignment import Words
from nmt.text.corpus import first_occurrences, hash_buckets

MIN_WORDS = 8  # characters in scripts without spaces; in shorter sentences, one word makes a great difference
MANY = 5  # different translations of one sentence
Keys = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Index:
    """The sorted keys of the sentences on one side of a corpus, and the line number of each key."""

    keys: Keys
    lines: NDArray[np.int64]


def near_keys(hashes: Words, starts: NDArray[np.int64], first: int) -> Index:
    """The keys of lines, given the result of `alignment.hashed`; `first` is the number of the first line."""
    mixed = (hashes.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])  # modulo 2^64
    totals, n_words = sums[starts[1:]] - sums[starts[:-1]], np.diff(starts)
    line_of_word = np.repeat(np.arange(len(totals)), n_words)
    is_long = n_words >= MIN_WORDS
    kept = is_long[line_of_word]
    keys = np.concatenate([totals[is_long], totals[line_of_word[kept]] - mixed[kept]])
    lines = first + np.concatenate([np.flatnonzero(is_long), line_of_word[kept]])
    order = np.argsort(keys, kind="stable")
    return Index(keys[order], lines[order])


def matches(own: Index, other: Index) -> NDArray[np.int64]:
    """Lines of one corpus and of another that share a key, each pair once: (n, 2)."""
    low, high = (np.searchsorted(other.keys, own.keys, side) for side in ("left", "right"))
    n = high - low
    which = np.repeat(np.arange(len(own.keys)), n)
    places = np.arange(len(which)) - np.repeat(np.cumsum(n) - n, n) + low[which]
    return np.unique(np.stack([own.lines[which], other.lines[places]], 1), axis=0)


def with_many(texts: Keys, pairs: Keys) -> NDArray[np.int64]:
    """Indices of texts that occur in `MANY` or more different pairs."""
    is_first = first_occurrences(pairs)
    found = []
    for bucket in hash_buckets(texts):
        firsts = bucket[is_first[bucket]]
        values, counts = np.unique(texts[firsts], return_counts=True)
        found.append(bucket[np.isin(texts[bucket], values[counts >= MANY])])
    return np.sort(np.concatenate(found))
