"""Make padded batches from pairs of token ids: order of an epoch, special ids. Independent of models.

An epoch is split into pools. One pool at a time is in memory, is sorted by length and cut into batches, which are then
shuffled. The order is a function of (seed, epoch, pool), so that training resumes without saved state.
"""

import functools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

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

# Indices of a pool's pairs in the corpus, token ids of both sides, and for each batch its indices within the pool.
Pool = tuple[NDArray[np.int64], list[RaggedArray], list[list[int]]]


@dataclass(frozen=True)
class Batch:
    """Token ids of B pairs, int64, padded with PAD."""

    src: Tensor  # (B, S), source ids + EOS
    tgt_in: Tensor  # (B, T), BOS + target ids
    tgt_out: Tensor  # (B, T), target ids + EOS: the labels
    lines: list[int]  # line numbers of the pairs, for messages

    @property
    def n_target_tokens(self) -> int:
        return int((self.tgt_out != PAD).sum())

    @property
    def n_source_tokens(self) -> int:
        return int((self.src != PAD).sum())

    @property
    def n_positions(self) -> int:
        return self.src.numel() + self.tgt_out.numel()

    def split(self, n: int) -> list["Batch"]:
        """Split into n batches of pairs of similar length, so that the largest batch has as few positions as possible.

        If fewer than n batches suffice (for example, if there are fewer than n pairs), the remaining ones contain one
        dummy pair whose labels are all PAD, so its loss is 0.
        """
        if n == 1:
            return [self]
        lengths, _ = self._by_length()
        fewest, most = int(lengths.sum()) // n, self.n_positions
        parts = self.cut(bisect_left(range(most), True, fewest, key=lambda limit: len(spans(lengths, limit)) <= n))
        dummy = Batch(self.src[:1], self.tgt_in[:1], torch.full_like(self.tgt_out[:1], PAD), [])
        return parts + [dummy] * (n - len(parts))

    def cut(self, max_positions: int) -> list["Batch"]:
        """Sort by length and split into as few batches of at most `max_positions` as possible, see `spans`."""
        if self.n_positions <= max_positions:
            return [self]
        lengths, rows = self._by_length()
        return [self._take(rows[span], *lengths[span].max(0)) for span in spans(lengths, max_positions)]

    def _by_length(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sort pairs by their longer side; return their source and target lengths (B, 2) and their row indices (B,)."""
        lengths = torch.stack([(side != PAD).sum(1) for side in (self.src, self.tgt_out)], 1).numpy()
        rows = lengths.max(1).argsort(kind="stable")
        return lengths[rows], rows

    def _take(self, rows: NDArray[np.int64], n_source: int, n_target: int) -> "Batch":
        """Return the pairs with these row indices, truncated to `n_source` and `n_target` columns."""
        lines = [self.lines[row] for row in rows]
        return Batch(self.src[rows, :n_source], self.tgt_in[rows, :n_target], self.tgt_out[rows, :n_target], lines)

    def to(self, device: torch.device) -> "Batch":
        move = {name: getattr(self, name).to(device, non_blocking=True) for name in ("src", "tgt_in", "tgt_out")}
        return Batch(**move, lines=self.lines)


def pad(sequences: Sequence[Sequence[int]]) -> Tensor:
    """(B, longest) int64: token ids, padded on the right."""
    longest = max(map(len, sequences))
    return torch.tensor([[*ids, *[PAD] * (longest - len(ids))] for ids in sequences])


def pad_source(sequences: Sequence[Sequence[int]]) -> Tensor:
    """(B, S) int64: encoder input, ids + EOS."""
    return pad([[*ids, EOS] for ids in sequences])


def collate(source: Sequence[list[int]], target: Sequence[list[int]], lines: Sequence[int]) -> Batch:
    """Pad pairs and add special ids; this is the only place that adds special ids to training pairs."""
    tgt_in, tgt_out = pad([[BOS, *ids] for ids in target]), pad([[*ids, EOS] for ids in target])
    return Batch(pad_source(source), tgt_in, tgt_out, list(lines))


def spans(lengths: NDArray[np.int64], max_positions: int) -> list[slice]:
    """Split sorted pairs of these lengths (n, 2) into as few batches as possible; return the slice of each batch.

    A batch has at most `max_positions` on both sides, padding included; a pair over this limit gets its own batch.
    """
    found, start = [], 0
    while start < len(lengths):
        longest = np.maximum.accumulate(lengths[start:]).sum(1)  # [i]: longest source + longest target of i + 1 pairs
        n_positions = longest * np.arange(1, len(longest) + 1)  # [i]: of a batch of these i + 1 pairs, with padding
        end = start + max(int(n_positions.searchsorted(max_positions, "right")), 1)
        found.append(slice(start, end))
        start = end
    return found


def cut_batches(lengths: Sequence[tuple[int, int]] | NDArray[np.int64], batch_tokens: int) -> list[list[int]]:
    """Group pairs of given lengths (n, 2) into batches of (longest side + 1) * pairs <= `batch_tokens`; return indices.

    Pairs are sorted by the longer side, then by source minus target length, alternately ascending and descending, so
    that neighbors have similar lengths on both sides even where the longer side changes. A pair over the budget gets
    its own batch.
    """
    source, target = np.reshape(lengths, (-1, 2)).T
    longest, difference = np.maximum(source, target), source - target
    order = np.lexsort((np.where(longest % 2, difference, -difference), longest))
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
        return len(self.pairs) if self.mixture is None else self.mixture.n_pairs

    @functools.cached_property
    def n_batches(self) -> int:
        """Batches per epoch, estimated from the first pool of the first epoch."""
        pairs, _, batches = next(self._pools(0))
        return round(len(batches) * self.n_epoch_pairs / len(pairs))

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `first` on."""
        n_before = 0
        for number, (pairs, (source, target), batches) in enumerate(self._pools(epoch)):
            lengths = target.lengths
            costs = np.array([lengths[batch].sum() for batch in batches])
            n_open = -n_before % self.accumulate
            for i in shuffle_batches(costs, self.accumulate, n_open, seed_of(self.seed, epoch, number))[first:]:
                batch = batches[i]
                lines = self.pairs.lines[pairs[batch]].tolist()
                yield collate([source[j] for j in batch], [target[j] for j in batch], lines)
            first = max(first - len(batches), 0)
            n_before += len(batches)

    def _pools(self, epoch: int) -> Iterator[Pool]:
        n = self.n_epoch_pairs
        for start in range(0, n, POOL_PAIRS):
            pairs = shuffled(np.arange(start, min(start + POOL_PAIRS, n)), n, seed_of(self.seed, epoch))
            if self.mixture is not None:
                pairs = self.mixture.pairs(pairs, epoch, self.seed)
            sides = [ids.take(pairs) for ids in self.ids]
            yield pairs, sides, cut_batches(np.stack([side.lengths for side in sides], axis=1), self.batch_tokens)


def shuffle_batches(costs: NDArray[np.int64], accumulate: int, n_open: int, seed: int) -> list[int]:
    """Shuffle so that micro-batches of a step have similar costs, and every part of the epoch has steps of all costs.

    Similar costs save time: ranks wait for the one with the most expensive micro-batch. Short and long sentences have
    different gradients, so each of `N_COST_GROUPS` groups of steps is spread evenly over the epoch. A batch's cost is
    its number of target tokens. The first `n_open` batches complete the last step of the previous pool.
    """
    generator = torch.Generator().manual_seed(seed)
    rank = torch.from_numpy(costs.argsort(kind="stable").argsort())
    by_cost = (rank + N_COST_GROUPS * torch.rand(len(rank), generator=generator)).argsort(stable=True)
    n_steps = max(len(rank) - n_open, 0) // accumulate
    steps = by_cost[n_open : n_open + n_steps * accumulate].view(n_steps, accumulate)
    when = torch.empty(n_steps)  # position in the pool, 0-1
    for group in torch.arange(n_steps).tensor_split(N_COST_GROUPS):
        slots = torch.randperm(len(group), generator=generator) + torch.rand(len(group), generator=generator)
        when[group] = slots / len(group)
    steps = steps[when.argsort(stable=True)].flatten()
    return list(torch.cat([by_cost[:n_open], steps, by_cost[n_open + len(steps) :]]).tolist())
