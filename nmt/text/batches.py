"""Make padded batches from pairs of token ids: order of an epoch, special ids. Independent of models.

An epoch is split into pools. One pool at a time is in memory, is sorted by length and cut into batches, which are then
shuffled. The order is a function of (seed, epoch, pool), so that training resumes without saved state.
"""

import functools
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

POOL_PAIRS = 100_000
N_COST_GROUPS = 12  # groups of steps by cost: see `shuffle_batches`


class Pool(NamedTuple):
    """The pairs of a part of an epoch, in batches."""

    pairs: NDArray[np.int64]  # indices in the corpus
    source: RaggedArray  # token ids
    target: RaggedArray
    batches: list[list[int]]  # indices of pairs in the pool, in no order yet


@dataclass(frozen=True)
class Batch:
    """Token ids of B pairs, int64, padded with PAD."""

    src: Tensor  # (B, S), source ids + EOS
    tgt_in: Tensor  # (B, T), BOS + target ids
    tgt_out: Tensor  # (B, T), target ids + EOS: the labels
    lines: list[int]  # line numbers of the pairs, for messages

    @property
    def n_target_tokens(self) -> int:
        """Target tokens without padding, EOS included."""
        return int((self.tgt_out != PAD).sum())

    @property
    def n_source_tokens(self) -> int:
        """Source tokens without padding, EOS included."""
        return int((self.src != PAD).sum())

    @property
    def n_positions(self) -> int:
        """Tokens of both sides, padding included."""
        return self.src.numel() + self.tgt_out.numel()

    def split(self, n: int) -> list["Batch"]:
        """Split into n batches of pairs of similar length, so that the largest batch has as few positions as possible.

        If fewer than n batches suffice (for example, if there are fewer than n pairs), the remaining ones contain one
        dummy pair whose labels are all PAD, so its loss is 0.
        """
        if n == 1:
            return [self]
        # 1. Find the smallest limit that n batches can keep, by bisection.
        lengths, _ = self._by_length()
        too_low = int(lengths.sum()) // n - 1
        enough = self.n_positions
        while enough - too_low > 1:
            middle = (too_low + enough) // 2
            if len(slices_within(lengths, middle)) <= n:
                enough = middle
            else:
                too_low = middle

        # 2. Cut, and fill up.
        parts = self.cut(enough)
        dummy = Batch(self.src[:1], self.tgt_in[:1], torch.full_like(self.tgt_out[:1], PAD), [])
        while len(parts) < n:
            parts.append(dummy)
        return parts

    def cut(self, max_positions: int) -> list["Batch"]:
        """Sort by length and split into as few batches of at most `max_positions` as possible."""
        if self.n_positions <= max_positions:
            return [self]
        lengths, rows = self._by_length()
        batches = []
        for part in slices_within(lengths, max_positions):
            n_source, n_target = lengths[part].max(0)
            batches.append(self._take(rows[part], n_source, n_target))
        return batches

    def _by_length(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sort pairs by their longer side; return their source and target lengths (B, 2) and their row indices (B,)."""
        n_source = (self.src != PAD).sum(1)  # (B,)
        n_target = (self.tgt_out != PAD).sum(1)  # (B,)
        lengths = torch.stack([n_source, n_target], 1).numpy()  # (B, 2)
        rows = lengths.max(1).argsort(kind="stable")
        return lengths[rows], rows

    def _take(self, rows: NDArray[np.int64], n_source: int, n_target: int) -> "Batch":
        """Return the pairs with these row indices, truncated to `n_source` and `n_target` columns."""
        lines = [self.lines[row] for row in rows]
        return Batch(self.src[rows, :n_source], self.tgt_in[rows, :n_target], self.tgt_out[rows, :n_target], lines)

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        src, tgt_in, tgt_out = (side.to(device, non_blocking=True) for side in (self.src, self.tgt_in, self.tgt_out))
        return Batch(src, tgt_in, tgt_out, self.lines)


def pad(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Return token ids, padded on the right: (B, longest), int64."""
    longest = max(map(len, sequences))
    padding = [PAD] * longest
    return torch.tensor([[*ids, *padding[len(ids) :]] for ids in sequences])


def pad_source(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Return the encoder's input, ids + EOS, padded: (B, S), int64."""
    return pad([[*ids, EOS] for ids in sequences])


def collate(source: Sequence[list[int]], target: Sequence[list[int]], lines: Sequence[int]) -> Batch:
    """Pad pairs and add special ids; this is the only place that adds special ids to training pairs."""
    tgt_in = pad([[BOS, *ids] for ids in target])
    tgt_out = pad([[*ids, EOS] for ids in target])
    return Batch(pad_source(source), tgt_in, tgt_out, list(lines))


def slices_within(lengths: NDArray[np.int64], max_positions: int) -> list[slice]:
    """Split sorted pairs of these lengths (n, 2) into as few batches as possible; return the slice of each batch.

    A batch has at most `max_positions` on both sides, padding included; a pair over this limit gets its own batch.
    """
    slices = []
    start = 0
    while start < len(lengths):
        longest = np.maximum.accumulate(lengths[start:]).sum(1)  # [i]: longest source + longest target of i + 1 pairs
        n_positions = longest * np.arange(1, len(longest) + 1)  # [i]: of a batch of these i + 1 pairs, with padding
        n_fitting = int(n_positions.searchsorted(max_positions, "right"))
        end = start + max(n_fitting, 1)
        slices.append(slice(start, end))
        start = end
    return slices


def cut_batches(lengths: Sequence[tuple[int, int]] | NDArray[np.int64], batch_tokens: int) -> list[list[int]]:
    """Group pairs of given lengths (n, 2) into batches of (longest side + 1) * pairs <= `batch_tokens`; return indices.

    Pairs are sorted by the longer side, then by source minus target length, alternately ascending and descending, so
    that neighbors have similar lengths on both sides even where the longer side changes. A pair over the budget gets
    its own batch.
    """
    source, target = np.reshape(lengths, (-1, 2)).T
    longest = np.maximum(source, target)
    difference = source - target
    alternating = np.where(longest % 2, difference, -difference)
    order = np.lexsort((alternating, longest))  # by the last key first
    batches: list[list[int]] = []
    for i, length in zip(order.tolist(), longest[order].tolist(), strict=True):
        if not batches or (length + 1) * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


def pair_batches(source: Sequence[list[int]], target: Sequence[list[int]], batch_tokens: int) -> Iterator[Batch]:
    """Yield all pairs in batches, cut by `cut_batches`; `Batch.lines` holds the pairs' indices."""
    lengths = [(len(s), len(t)) for s, t in zip(source, target, strict=True)]
    for indices in cut_batches(lengths, batch_tokens):
        yield collate([source[i] for i in indices], [target[i] for i in indices], indices)


@dataclass(eq=False)
class TrainingData:
    """The training pairs as an endless, reproducible stream of batches."""

    pairs: Pairs  # after filtering
    ids: tuple[RaggedArray, RaggedArray]  # source and target token ids
    _: KW_ONLY
    batch_tokens: int  # see `cut_batches`
    seed: int  # together with the epoch, determines the order
    accumulate: int = 1  # batches per optimizer step
    mixture: Mixture | None = None  # mixing ratio of the corpora in `pairs`; None: an epoch has each pair once

    @property
    def n_epoch_pairs(self) -> int:
        """Pairs per epoch."""
        return len(self.pairs) if self.mixture is None else self.mixture.n_pairs

    @functools.cached_property
    def n_batches(self) -> int:
        """Batches per epoch, estimated from the first pool of the first epoch."""
        pool = next(self._pools(0))
        return round(len(pool.batches) * self.n_epoch_pairs / len(pool.pairs))

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `first` on."""
        n_before = 0  # batches of the pools before
        for number, pool in enumerate(self._pools(epoch)):
            lengths = pool.target.lengths
            costs = np.array([lengths[batch].sum() for batch in pool.batches])
            n_open = -n_before % self.accumulate  # batches that the last step of the pool before lacks
            order = shuffle_batches(costs, self.accumulate, n_open, seed_of(self.seed, epoch, number))
            for i in order[first:]:
                batch = pool.batches[i]
                lines = self.pairs.lines[pool.pairs[batch]].tolist()
                yield collate([pool.source[j] for j in batch], [pool.target[j] for j in batch], lines)
            first = max(first - len(order), 0)
            n_before += len(order)

    def _pools(self, epoch: int) -> Iterator[Pool]:
        """Yield the pools of an epoch."""
        n = self.n_epoch_pairs
        for start in range(0, n, POOL_PAIRS):
            positions = np.arange(start, min(start + POOL_PAIRS, n))
            pairs = shuffled(positions, n, seed_of(self.seed, epoch))
            if self.mixture is not None:
                pairs = self.mixture.pairs(pairs, epoch, self.seed)
            source, target = (ids.take(pairs) for ids in self.ids)
            lengths = np.stack([source.lengths, target.lengths], axis=1)
            yield Pool(pairs, source, target, cut_batches(lengths, self.batch_tokens))


def shuffle_batches(costs: NDArray[np.int64], accumulate: int, n_open: int, seed: int) -> list[int]:
    """Shuffle so that micro-batches of a step have similar costs, and every part of the epoch has steps of all costs.

    Similar costs save time: ranks wait for the one with the most expensive micro-batch. Short and long sentences have
    different gradients, so each of `N_COST_GROUPS` groups of steps is spread evenly over the epoch. A batch's cost is
    its number of target tokens. The first `n_open` batches complete the last step of the previous pool.
    """
    generator = torch.Generator().manual_seed(seed)

    # 1. Order batches by cost, not exactly, so that the batches of a step differ from epoch to epoch.
    rank = torch.from_numpy(costs.argsort(kind="stable").argsort())
    noise = N_COST_GROUPS * torch.rand(len(rank), generator=generator)
    by_cost = (rank + noise).argsort(stable=True)

    # 2. Neighbors make a step.
    n_steps = max(len(rank) - n_open, 0) // accumulate
    stop = n_open + n_steps * accumulate
    steps = by_cost[n_open:stop].view(n_steps, accumulate)

    # 3. Spread each group of steps evenly: one step in each of as many equal parts of the pool.
    position = torch.empty(n_steps)  # in the pool, 0-1
    for group in torch.arange(n_steps).tensor_split(N_COST_GROUPS):
        n = len(group)
        slots = torch.randperm(n, generator=generator) + torch.rand(n, generator=generator)
        position[group] = slots / n
    steps = steps[position.argsort(stable=True)]
    return list(torch.cat([by_cost[:n_open], steps.flatten(), by_cost[stop:]]).tolist())
