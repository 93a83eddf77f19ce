"""Padded batches of token ids, in a reproducible random order.

An epoch is a random order of pairs, split into pools. Only one pool is in memory at a time. Within a pool, pairs of
similar length form a batch, and the batches are shuffled. Their order depends only on the seed, the epoch and the
number of the pool. So training resumes without saved state.
"""

import functools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.seeds import seed_of
from nmt.text import BOS, EOS, PAD
from nmt.text.corpus_files import Pairs, RaggedArray
from nmt.text.permutation import Mixture, shuffled

POOL_PAIRS = 100_000  # maximum number of pairs in a pool
N_LENGTH_GROUPS = 12  # number of groups into which `spread` divides the batches; a group has similar lengths


class Pool(NamedTuple):
    """A part of an epoch: some pairs, grouped into batches."""

    pairs: NDArray[np.int64]  # index of each pair in the corpus
    source: RaggedArray  # token ids of each pair's source
    target: RaggedArray  # token ids of each pair's target
    batches: list[list[int]]  # the pairs of each batch, as indices into `pairs`; not shuffled yet


@dataclass(frozen=True)
class Batch:
    """B pairs as int64 tensors of token ids, padded with PAD."""

    src: Tensor  # (B, S), source ids followed by EOS: the encoder's input
    tgt_in: Tensor  # (B, T), BOS followed by target ids: the decoder's input
    tgt_out: Tensor  # (B, T), target ids followed by EOS: the labels
    lines: list[int]  # line number of each pair, for messages

    @property
    def n_target_tokens(self) -> int:
        """The number of target tokens: EOS is counted, padding is not."""
        return int((self.tgt_out != PAD).sum())

    @property
    def n_positions(self) -> int:
        """The number of tokens of both sides, padding included."""
        return self.src.numel() + self.tgt_out.numel()

    def split(self, n: int) -> list["Batch"]:
        """Split into n batches of pairs of similar length. The largest batch is as small as possible.

        If fewer than n batches suffice, dummy batches are added. The labels of a dummy batch are all PAD, so its loss
        is 0.
        """
        if n == 1:
            return [self]
        # Find the smallest limit of positions per batch for which n batches suffice.
        lengths, _ = self._by_length()
        smallest = int(lengths.sum()) // n
        limits = range(smallest, self.n_positions)
        index = bisect_left(limits, True, key=lambda limit: len(slices_within(lengths, limit)) <= n)
        parts = self.cut(limits.start + index)
        dummy = Batch(self.src[:1], self.tgt_in[:1], torch.full_like(self.tgt_out[:1], PAD), [])
        return parts + [dummy] * (n - len(parts))

    def cut(self, max_positions: int) -> list["Batch"]:
        """Sort the pairs by length, and split them into few batches of at most `max_positions` positions.

        A pair over this limit gets its own batch. A batch within the limit is returned unchanged.
        """
        if self.n_positions <= max_positions:
            return [self]
        lengths, rows = self._by_length()
        batches = []
        for part in slices_within(lengths, max_positions):
            i = rows[part]
            n_source, n_target = lengths[part].max(0)
            lines = [self.lines[row] for row in i]
            batches.append(Batch(self.src[i, :n_source], self.tgt_in[i, :n_target], self.tgt_out[i, :n_target], lines))
        return batches

    def _by_length(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sort the pairs by the length of their longer side.

        Returns:
            the source and target lengths of the sorted pairs, shape (B, 2).
            the row of each sorted pair in this batch, shape (B,).
        """
        n_source = (self.src != PAD).sum(1)
        n_target = (self.tgt_out != PAD).sum(1)
        lengths = torch.stack([n_source, n_target], 1).numpy()  # (B, 2)
        rows = lengths.max(1).argsort(kind="stable")
        return lengths[rows], rows

    def to(self, device: torch.device) -> "Batch":
        """Return the batch with its tensors on a device."""
        src, tgt_in, tgt_out = (side.to(device, non_blocking=True) for side in (self.src, self.tgt_in, self.tgt_out))
        return Batch(src, tgt_in, tgt_out, self.lines)


def pad(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Pad sequences of token ids on the right. Returns an int64 tensor of shape (B, longest)."""
    padding = [PAD] * max(map(len, sequences))
    return torch.tensor([[*ids, *padding[len(ids) :]] for ids in sequences])


def pad_source(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Append EOS to each sequence, and pad. Returns the encoder's input, an int64 tensor of shape (B, S)."""
    return pad([[*ids, EOS] for ids in sequences])


def collate(source: Sequence[list[int]], target: Sequence[list[int]], lines: Sequence[int]) -> Batch:
    """Add special ids to pairs of token ids, and pad them."""
    tgt_in = pad([[BOS, *ids] for ids in target])
    tgt_out = pad([[*ids, EOS] for ids in target])
    return Batch(pad_source(source), tgt_in, tgt_out, list(lines))


def slices_within(lengths: NDArray[np.int64], max_positions: int) -> list[slice]:
    """Split pairs into as few batches of consecutive pairs as possible. Returns a slice for each batch.

    A pair over `max_positions` gets its own batch.

    Args:
        lengths: source and target length of each pair, sorted by the longer side, shape (B, 2).
        max_positions: maximum number of positions of a batch: both sides, padding included.
    """
    slices = []
    start = 0
    while start < len(lengths):
        # Element i of both arrays describes a batch of the next i + 1 pairs. `longest` is the length of its longest
        # source plus that of its longest target.
        longest = np.maximum.accumulate(lengths[start:]).sum(1)
        n_positions = longest * np.arange(1, len(longest) + 1)
        n_fitting = int(n_positions.searchsorted(max_positions, "right"))
        end = start + max(n_fitting, 1)
        slices.append(slice(start, end))
        start = end
    return slices


def cut_batches(lengths: Sequence[tuple[int, int]] | NDArray[np.int64], batch_tokens: int) -> list[list[int]]:
    """Group pairs into batches of at most `batch_tokens` tokens. Returns the indices of the pairs in each batch.

    A batch counts as (length of its longest side + 1) * number of pairs. A pair over the limit gets its own batch. Each
    row of `lengths` has the source and the target length of a pair.
    """
    source, target = np.reshape(lengths, (-1, 2)).T
    # Sort by the longer side, then by source minus target: ascending and descending in turns. So neighbors have similar
    # lengths on both sides.
    longest = np.maximum(source, target)
    alternating = (source - target) * np.where(longest % 2, 1, -1)
    order = np.lexsort((alternating, longest))  # np.lexsort sorts by the last key first
    batches: list[list[int]] = []
    for i, length in zip(order.tolist(), longest[order].tolist(), strict=True):
        if not batches or (length + 1) * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


def pair_batches(source: Sequence[list[int]], target: Sequence[list[int]], batch_tokens: int) -> Iterator[Batch]:
    """Yield all pairs in batches. `Batch.lines` has the index of each pair."""
    lengths = [(len(s), len(t)) for s, t in zip(source, target, strict=True)]
    for indices in cut_batches(lengths, batch_tokens):
        yield collate([source[i] for i in indices], [target[i] for i in indices], indices)


@dataclass(eq=False)
class TrainingData:
    """The training pairs, and their batches in each epoch."""

    pairs: Pairs  # the pairs that are left after filtering
    ids: tuple[RaggedArray, RaggedArray]  # source and target token ids
    _: KW_ONLY
    batch_tokens: int  # maximum size of a batch, see `cut_batches`
    seed: int  # seed of the order of pairs and batches
    mixture: Mixture | None = None  # mixing ratio of the corpora; if None, an epoch has each pair once
    concatenate: float = 0.0  # share of the pairs that are concatenated two by two, 0-1

    @property
    def n_epoch_pairs(self) -> int:
        """The number of pairs per epoch."""
        return len(self.pairs) if self.mixture is None else self.mixture.n_pairs

    @functools.cached_property
    def n_batches(self) -> int:
        """The number of batches per epoch, estimated from the first pool of the first epoch."""
        pool = next(self._pools(0))
        n_pools = max(self.n_epoch_pairs / POOL_PAIRS, 1)
        return round(len(pool.batches) * n_pools)

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, beginning with the batch at index `first`."""
        for number, pool in enumerate(self._pools(epoch)):
            order = spread(len(pool.batches), seed_of(self.seed, epoch, number))
            for i in order[first:]:
                batch = pool.batches[i]
                lines = self.pairs.lines[pool.pairs[batch]].tolist()
                yield collate([pool.source[j] for j in batch], [pool.target[j] for j in batch], lines)
            first = max(first - len(order), 0)

    def _pools(self, epoch: int) -> Iterator[Pool]:
        """Yield the pools of an epoch."""
        n = self.n_epoch_pairs
        for start in range(0, n, POOL_PAIRS):
            positions = np.arange(start, min(start + POOL_PAIRS, n))
            pairs = shuffled(positions, n, seed_of(self.seed, epoch))
            if self.mixture is not None:
                pairs = self.mixture.pairs(pairs, epoch, self.seed)
            source, target = (ids.take(pairs) for ids in self.ids)
            if self.concatenate:
                # The pairs are in random order: concatenate the first with the second, the third with the fourth, ...
                n_concatenated = round(self.concatenate * len(pairs))
                is_first = np.ones_like(pairs, bool)  # False for the second pair of two
                is_first[1:n_concatenated:2] = False
                source, target = (ids.compact(pairs).concatenated(is_first) for ids in self.ids)
                pairs = pairs[is_first]
            lengths = np.stack([source.lengths, target.lengths], axis=1)
            yield Pool(pairs, source, target, cut_batches(lengths, self.batch_tokens))


def spread(n: int, seed: int) -> list[int]:
    """Return the indices of n batches, which are sorted by length, in a random order.

    Short and long sentences have different gradients. So each of `N_LENGTH_GROUPS` groups of batches is spread evenly
    over the whole order. A few batches in a row, such as those of a step, then represent the corpus.
    """
    generator = torch.Generator().manual_seed(seed)
    positions = torch.empty(n)  # position of each batch in the order, 0-1
    for group in torch.arange(n).tensor_split(N_LENGTH_GROUPS):
        # Divide the order into as many parts as the group has batches, and put one batch into each.
        parts = torch.randperm(len(group), generator=generator)
        places = torch.rand(len(group), generator=generator)  # in each part, 0-1
        positions[group] = (parts + places) / len(group)
    return list(positions.argsort(stable=True).tolist())
