"""Pairs of ids to padded batches: the order of an epoch, subword sampling, and where special ids are added.

An epoch is cut into pools; a pool is encoded, sorted by length, cut into batches of even shape, and the batches
are shuffled. Order and sampling are functions of (seed, epoch, pool): nothing has to be saved to go on in the
middle. Of the corpus, which is on disk, memory holds a pool's order and, with sampling, its ids. Knows nothing of
models.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.seeds import seed_of
from nmt.text import BOS, EOS, PAD
from nmt.text.corpus import Pairs, Rows, shuffled
from nmt.text.tokenizer import Tokenizers

POOL_PAIRS = 100_000  # pairs that are encoded and sorted together
N_KINDS = 12  # of steps


@dataclass(frozen=True)
class Batch:
    """Padded ids of B pairs.

    Attributes:
        src: (B, S) int64, source ids + EOS, then PAD.
        tgt_in: (B, T) int64, BOS + target ids, then PAD.
        tgt_out: (B, T) int64, target ids + EOS, then PAD: what `tgt_in` must predict.
        lines: the pairs' line numbers, for messages.
    """

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    lines: list[int]

    @property
    def n_target_tokens(self) -> int:
        return int((self.tgt_out != PAD).sum())

    @property
    def n_source_tokens(self) -> int:
        return int((self.src != PAD).sum())

    @property
    def n_positions(self) -> int:
        return self.src.numel() + self.tgt_out.numel()

    def part(self, i: int, n: int) -> "Batch":
        """Every n-th row from the i-th on; where there is none, one whose targets are all padding: no loss."""
        if i >= len(self.src):
            return Batch(self.src[:1], self.tgt_in[:1], torch.full_like(self.tgt_out[:1], PAD), [])
        rows = slice(i, None, n)
        return Batch(self.src[rows], self.tgt_in[rows], self.tgt_out[rows], self.lines[rows])

    def to(self, device: torch.device) -> "Batch":
        move = {name: getattr(self, name).to(device, non_blocking=True) for name in ("src", "tgt_in", "tgt_out")}
        return Batch(**move, lines=self.lines)


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, longest) int64: rows of ids, filled with PAD on the right."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def pad_source(rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, S) int64: what the encoder reads, ids + EOS."""
    return pad([[*row, EOS] for row in rows])


def collate(source: Sequence[list[int]], target: Sequence[list[int]], lines: Sequence[int]) -> Batch:
    """The one place where a training pair gets its special ids."""
    return Batch(
        src=pad_source(source),
        tgt_in=pad([[BOS, *ids] for ids in target]),
        tgt_out=pad([[*ids, EOS] for ids in target]),
        lines=list(lines),
    )


def cut_batches(lengths: Sequence[tuple[int, int]] | NDArray[np.int64], batch_tokens: int) -> list[list[int]]:
    """Cut pairs into batches with (longest side + 1) x pairs <= `batch_tokens` and little padding.

    Sorted by the longer side; among equals by source minus target, upwards and downwards in turn, so that
    neighbours are alike on both sides even where the longer side changes.

    Args:
        lengths: (n, 2) pieces of each pair's source and target, without special ids.
        batch_tokens: a pair too long for it gets a batch of its own.
    Returns:
        indices of the pairs of each batch.
    """

    source, target = np.reshape(lengths, (-1, 2)).T
    longest, difference = np.maximum(source, target), source - target
    order = np.lexsort((np.where(longest % 2, difference, -difference), longest))
    batches: list[list[int]] = []
    current: list[int] = []
    for i, length in zip(order.tolist(), longest[order].tolist(), strict=True):
        if current and (length + 1) * (len(current) + 1) > batch_tokens:
            batches.append(current)
            current = []
        current.append(i)
    return [*batches, current] if current else batches


class TrainingData:
    """The training pairs as an endless, reproducible stream of batches.

    Args:
        pairs: what is left after filtering.
        ids: of the best segmentation of each pair's source and target.
        tokenizers: for both sides.
        batch_tokens: the budget of a batch.
        together: batches of an optimiser step.
        seed: with the epoch, decides order and sampling.
        sampling_alpha: subword regularisation's smoothing; 0 takes the best segmentation always.
        max_length: a drawn segmentation longer than this gives way to the best one.

    Attributes:
        n_batches: in an epoch, as far as the very first pool tells; others differ a little.
    """

    def __init__(
        self,
        pairs: Pairs,
        ids: tuple[Rows, Rows],
        tokenizers: Tokenizers,
        *,
        batch_tokens: int,
        together: int = 1,
        seed: int,
        sampling_alpha: float = 0.0,
        max_length: int = 1_000_000,
    ) -> None:
        self.pairs = pairs
        self.ids = ids
        self.tokenizers = tokenizers
        self.batch_tokens = batch_tokens
        self.together = together
        self.seed = seed
        self.sampling_alpha = sampling_alpha
        self.max_length = max_length
        self.n_batches = self.count_batches(0, batch_tokens)

    def count_batches(self, epoch: int, batch_tokens: int) -> int:
        """The batches of an epoch that is cut by this budget, estimated from its first pool."""
        rows, *_, cut = next(self._pools(epoch, batch_tokens))
        return round(len(cut) * len(self.pairs) / len(rows))

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch in its order, from the `first` on."""
        n_before = 0
        for pool, (rows, source, target, cut) in enumerate(self._pools(epoch, self.batch_tokens)):
            lengths = target.lengths
            costs = np.array([lengths[batch].sum() for batch in cut])
            lead = -n_before % self.together
            for i in _order(costs, self.together, lead, seed_of(self.seed, epoch, pool))[first:]:
                batch = cut[i]
                yield collate(
                    [source[j] for j in batch],
                    [target[j] for j in batch],
                    self.pairs.lines[rows[batch]].tolist(),
                )
            first = max(first - len(cut), 0)
            n_before += len(cut)

    def _pools(self, epoch: int, batch_tokens: int) -> Iterator[tuple[NDArray[np.int64], Rows, Rows, list[list[int]]]]:
        """Each pool of an epoch: its pairs, their ids on both sides, and the batches as indices into these."""
        n = len(self.pairs)
        for pool, start in enumerate(range(0, n, POOL_PAIRS)):
            places = np.arange(start, min(start + POOL_PAIRS, n))
            rows = shuffled(places, n, seed_of(self.seed, epoch))
            source, target = self._encode(rows, seed_of(self.seed, epoch, pool))
            lengths = np.stack([source.lengths, target.lengths], axis=1)
            yield rows, source, target, cut_batches(lengths, batch_tokens)

    def _encode(self, rows: NDArray[np.int64], seed: int) -> list[Rows]:
        best = [ids.take(rows) for ids in self.ids]
        if not self.sampling_alpha:
            return best
        pairs = [self.pairs[i] for i in rows]
        sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
        drawn = []
        for n, tokenizer in enumerate((self.tokenizers.source, self.tokenizers.target)):
            found = tokenizer.sample_all(sides[n], alpha=self.sampling_alpha, seed=seed_of(seed, n))
            fitting = [ids if len(ids) <= self.max_length else best[n][i] for i, ids in enumerate(found)]
            drawn.append(Rows.of(fitting, self.ids[n].values.dtype))
        return drawn


def _order(costs: NDArray[np.int64], together: int, lead: int, seed: int) -> list[int]:
    """A random order of batches in which those of a step cost the same and every three dozen steps have all kinds.

    Workers wait for the one whose batch takes longest. And short and long sentences, close and free translations
    ask for other gradients; thus each twelfth of the steps, by cost, is spread evenly over the epoch.

    Args:
        costs: of each batch, its target pieces, which tell short targets from long ones.
        together: batches of a step.
        lead: how many the step lacks that is under way.
        seed: decides all.
    """
    generator = torch.Generator().manual_seed(seed)
    rank = torch.from_numpy(costs.argsort(kind="stable").argsort())
    by_cost = (rank + N_KINDS * torch.rand(len(rank), generator=generator)).argsort(stable=True)
    n_steps = max(len(rank) - lead, 0) // together
    steps = by_cost[lead : lead + n_steps * together].view(n_steps, together)
    when = torch.empty(n_steps)  # 0-1
    for alike in torch.arange(n_steps).tensor_split(N_KINDS):
        place = torch.randperm(len(alike), generator=generator) + torch.rand(len(alike), generator=generator)
        when[alike] = place / len(alike)
    steps = steps[when.argsort(stable=True)].flatten()
    order: list[int] = torch.cat([by_cost[:lead], steps, by_cost[lead + len(steps) :]]).tolist()
    return order


def useful_share(batches: Sequence[Batch]) -> float:
    """Share of the padded positions of both sides that hold real tokens, 0-1."""
    real = sum(batch.n_source_tokens + batch.n_target_tokens for batch in batches)
    return real / max(sum(batch.n_positions for batch in batches), 1)
