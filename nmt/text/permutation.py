"""Random choices of training pairs that depend only on a seed: permutations, mixtures of corpora, held-out pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.seeds import seed_of

ROUNDS = 6  # number of rounds of the Feistel network; in theory 4 suffice (Luby & Rackoff 1988)

Numbers = NDArray[np.int64]
Digests = NDArray[np.uint64]


def shuffled(index: Numbers, n: int, seed: int) -> Numbers:
    """Return the entries at `index` of a pseudo-random permutation of the numbers 0 to n - 1.

    The permutation is not stored. A Feistel network permutes the numbers below a power of 4 that is at least n.
    Results of n or more are permuted again (cycle walking, Black & Rogaway 2002). numpy's permutation is not used,
    because it may change between versions, and a resumed run must keep its order.
    """
    n_half_bits = max((n - 1).bit_length() + 1, 2) // 2
    mask = (1 << n_half_bits) - 1
    keys = [seed_of(seed, number) << 32 for number in range(ROUNDS)]
    entries: NDArray[Any] = index.astype(np.uint64)  # arithmetic modulo 2^64
    # Permute all entries. Repeat this for the entries that are not less than n.
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
    """Return the result of splitmix64's finalizer for x. Each bit of the result depends on all bits of x."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@dataclass(frozen=True)
class Mixture:
    """The pairs of an epoch: all pairs of the first corpus, and some pairs of each other corpus.

    Before rounding, an epoch has N = sizes[0] / (1 - sum of the shares) pairs. Each other corpus contributes
    round(share * N) of them, at least one. It is read in a random order, and each epoch continues where the last one
    stopped. After its last pair, it is read again in a new order.
    """

    sizes: Sequence[int]  # number of pairs of each corpus; the corpora are concatenated
    shares: Sequence[float]  # share of an epoch's pairs, 0-1, for each corpus except the first

    @property
    def n_drawn(self) -> list[int]:
        """The number of pairs of each corpus in an epoch."""
        n_epoch = self.sizes[0] / (1 - sum(self.shares))
        return [self.sizes[0], *(max(round(share * n_epoch), 1) for share in self.shares)]

    @property
    def n_pairs(self) -> int:
        """The number of pairs in an epoch."""
        return sum(self.n_drawn)

    def pairs(self, entries: Numbers, epoch: int, seed: int) -> Numbers:
        """Return the indices of the training pairs at some positions of an epoch.

        `entries` are the positions before the epoch is shuffled, from 0 to `n_pairs` - 1.
        """
        indices = entries.copy()  # position i of the first corpus is its pair i
        first_pair = first_entry = self.sizes[0]  # the first pair and position of the corpus in the loop
        for number, (size, n_in_epoch) in enumerate(zip(self.sizes[1:], self.n_drawn[1:], strict=True)):
            is_inside = (entries >= first_entry) & (entries < first_entry + n_in_epoch)
            # Count the pairs of this corpus that are read before each entry. This gives the number of complete passes
            # over the corpus and a position in the next pass.
            n_read = epoch * n_in_epoch + entries[is_inside] - first_entry
            passes, positions = np.divmod(n_read, size)
            chosen = np.empty_like(positions)
            for i in np.unique(passes):
                # Each pass has its own order.
                in_pass = passes == i
                chosen[in_pass] = shuffled(positions[in_pass], size, seed_of(seed, number, int(i), 0))
            indices[is_inside] = first_pair + chosen
            first_pair += size
            first_entry += n_in_epoch
        return indices


def hold_out(
    source: Digests, target: Digests, n_held_out: int, seed: int, n_candidates: int | None = None
) -> tuple[Numbers, NDArray[np.bool_]]:
    """Choose random pairs to hold out, and remove all pairs that share a sentence with them.

    Prefers pairs with rare sentences, so that few pairs are removed.

    Args:
        source, target: digests of the source and the target of each pair.
        n_held_out: number of pairs to hold out.
        seed: seed of the random choice.
        n_candidates: only the first `n_candidates` pairs can be held out; None means all pairs.
    Returns:
        the sorted indices of the held-out pairs, and a mask of the pairs that remain.
    """
    # Sort the candidates by how often their sentences occur, and equal candidates at random.
    n_alike = (n_occurrences(source) + n_occurrences(target))[:n_candidates]
    order = shuffled(np.arange(len(n_alike)), len(n_alike), seed)
    chosen = np.lexsort((order, n_alike))[:n_held_out]
    shares_sentence = np.isin(source, source[chosen]) | np.isin(target, target[chosen])
    return np.sort(chosen), ~shares_sentence


def first_occurrences(digests: Digests) -> NDArray[np.bool_]:
    """Return a mask that is true for each digest that occurs for the first time."""
    _, first_indices = np.unique(digests, return_index=True)
    return np.isin(np.arange(len(digests)), first_indices)


def n_occurrences(digests: Digests) -> Numbers:
    """Return how often each digest occurs."""
    _, inverse, counts = np.unique(digests, return_inverse=True, return_counts=True)
    return counts[inverse]
