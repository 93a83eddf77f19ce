"""Orders of the training pairs that are functions of a seed: permutations, mixtures of corpora, held-out pairs."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.seeds import seed_of

ROUNDS = 6  # of the Feistel network; in theory 4 suffice (Luby & Rackoff 1988)

Numbers = NDArray[np.int64]
Digests = NDArray[np.uint64]


def shuffled(index: Numbers, n: int, seed: int) -> Numbers:
    """Return entries of a pseudo-random permutation of n numbers, by index, without storing the permutation.

    A Feistel network permutes all numbers of 2k bits. Results of n or more are permuted again until they are less
    than n (cycle walking, Black & Rogaway 2002). numpy's permutation is not used, because it may change between
    versions, and resumed runs must keep their order and dev pairs.
    """
    n_bits = (n - 1).bit_length()
    n_half_bits = max(n_bits + 1, 2) // 2
    mask = (1 << n_half_bits) - 1
    keys = [seed_of(seed, number) << 32 for number in range(ROUNDS)]
    entries: NDArray[Any] = index.astype(np.uint64)  # arithmetic modulo 2^64
    # Permute all entries, then again those that are still too large.
    todo = np.arange(len(entries))
    while len(todo):
        left = entries[todo] >> n_half_bits
        right = entries[todo] & mask
        for key in keys:
            mixed = mixed_bits(right + key) & mask
            left, right = right, left ^ mixed
        entries[todo] = left << n_half_bits | right
        todo = todo[entries[todo] >= n]
    return entries.astype(np.int64)


def mixed_bits(x: Any) -> Any:
    """Return x after the finalizer of splitmix64: each bit of the result depends on all bits of x."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@dataclass(frozen=True)
class Mixture:
    """Selects the pairs of an epoch: all pairs of the first corpus, and a share of the epoch from each other corpus.

    An epoch has N = sizes[0] / (1 - sum of the shares) pairs: round(share * N), at least one, from each other corpus.
    Each other corpus is read in a random order, which continues in the next epoch. After all of its pairs were read, it
    is read again in a new order. So any two pairs of a corpus were read equally often, or one of them once more.
    """

    sizes: Sequence[int]  # number of pairs of each corpus; the corpora are concatenated
    shares: Sequence[float]  # share of an epoch's pairs, 0-1, for each corpus except the first

    @functools.cached_property
    def n_drawn(self) -> list[int]:
        """The number of pairs of each corpus in an epoch."""
        n_epoch = self.sizes[0] / (1 - sum(self.shares))
        from_others = [max(round(share * n_epoch), 1) for share in self.shares]
        return [self.sizes[0], *from_others]

    @property
    def n_pairs(self) -> int:
        """The number of pairs in an epoch."""
        return sum(self.n_drawn)

    def pairs(self, entries: Numbers, epoch: int, seed: int) -> Numbers:
        """Return the indices of pairs for positions (0 to `n_pairs` - 1) in an epoch that is not shuffled yet."""
        indices = entries.copy()  # already right for the first corpus
        first_pair = first_entry = self.sizes[0]  # of the corpus in the loop
        for number, share_of_corpus in enumerate(self.n_drawn[1:]):
            size = self.sizes[number + 1]
            is_inside = (entries >= first_entry) & (entries < first_entry + share_of_corpus)
            # How many pairs of this corpus were read before each entry: whole passes, and a position in the pass.
            n_read = epoch * share_of_corpus + entries[is_inside] - first_entry
            passes, positions = np.divmod(n_read, size)
            chosen = np.empty_like(positions)
            for i in np.unique(passes):
                # Each pass has its own order.
                in_pass = passes == i
                seed_of_pass = seed_of(seed, number, int(i), 0)
                chosen[in_pass] = shuffled(positions[in_pass], size, seed_of_pass)
            indices[is_inside] = first_pair + chosen
            first_pair += size
            first_entry += share_of_corpus
        return indices


def hold_out(
    source: Digests, target: Digests, n_held_out: int, seed: int, n_candidates: int | None = None
) -> tuple[Numbers, NDArray[np.bool_]]:
    """Choose random pairs to hold out, and remove all other pairs that share a sentence with them.

    Prefers sentences that occur once, because holding them out removes no other pair.

    Args:
        source, target: digests of the sides of all pairs.
        n_candidates: pairs are chosen from so many first ones; None for all.
    Returns:
        sorted indices of pairs that are held out, and a mask of those that remain.
    """
    if n_candidates is None:
        n_candidates = len(source)
    # How often the sentences of each pair occur; pairs that are equally rare are in a random order.
    n_alike = n_occurrences(source) + n_occurrences(target)
    order = shuffled(np.arange(n_candidates), n_candidates, seed)
    by_rarity = np.lexsort((order, n_alike[:n_candidates]))
    chosen = by_rarity[:n_held_out]
    shares_source = np.isin(source, source[chosen])
    shares_target = np.isin(target, target[chosen])
    return np.sort(chosen), ~(shares_source | shares_target)


def first_occurrences(digests: Digests) -> NDArray[np.bool_]:
    """Return a mask of the digests that no equal digest precedes."""
    is_first = np.zeros(len(digests), bool)
    _, first_indices = np.unique(digests, return_index=True)
    is_first[first_indices] = True
    return is_first


def n_occurrences(digests: Digests) -> Numbers:
    """Return how often each digest occurs."""
    _, inverse, counts = np.unique(digests, return_inverse=True, return_counts=True)
    return counts[inverse]
