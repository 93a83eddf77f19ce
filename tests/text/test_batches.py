"""Batches stay within the budget, an epoch has every pair once, and its order is a function of seed and epoch."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nmt.config import TokenizerSettings
from nmt.seeds import seed_of
from nmt.text import BOS, EOS, PAD, batches
from nmt.text.batches import Batch, TrainingData, collate, cut_batches, shuffle_batches
from nmt.text.corpus import Mixture, Pairs, RaggedArray, shuffled, write_pairs
from nmt.text.lines import Pair
from nmt.text.tokenizer import Tokenizers
from nmt.text.tokenizer_training import train_tokenizer

PAIRS = [
    Pair(line, "the cat sat on the mat " * (1 + line % 5) + str(line), "die Katze saß da " * (1 + line % 3) + str(line))
    for line in range(1, 61)
]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    texts = [pair.source for pair in PAIRS] + [pair.target for pair in PAIRS]
    model = train_tokenizer(texts, TokenizerSettings(vocab_size=330)).model
    return Tokenizers.from_models(model, model, nfkc_source=False)


Make = Callable[..., TrainingData]


@pytest.fixture(scope="module")
def data_of(folder: Path, tokenizers: Tokenizers) -> Make:
    write_pairs(folder, PAIRS)

    def make(*, seed: int = 1, **options: Any) -> TrainingData:
        ids = (
            RaggedArray.from_lists(tokenizers.source.encode_all([pair.source for pair in PAIRS])),
            RaggedArray.from_lists(tokenizers.target.encode_all([pair.target for pair in PAIRS])),
        )
        return TrainingData(Pairs(folder), ids, batch_tokens=200, seed=seed, **options)

    return make


def plain(found: list[Batch]) -> list[tuple[list[int], list[list[int]], list[list[int]], list[list[int]]]]:
    """Batches as lists, which can be compared with ==."""
    return [(b.lines, b.src.tolist(), b.tgt_in.tolist(), b.tgt_out.tolist()) for b in found]


IDS = st.lists(st.integers(EOS + 1, 99), max_size=6)
PAIRS_OF_IDS = st.lists(st.tuples(IDS, IDS), min_size=1, max_size=6)
IdPairs = list[tuple[list[int], list[int]]]


def whole(pairs: IdPairs) -> Batch:
    return collate([s for s, _ in pairs], [t for _, t in pairs], range(7, 7 + len(pairs)))


@hypothesis_settings(max_examples=60)
@given(PAIRS_OF_IDS)
def test_collate_adds_special_ids_and_padding(pairs: IdPairs) -> None:
    batch = whole(pairs)
    for i, (s, t) in enumerate(pairs):
        src, tgt_in, tgt_out = (x[i].tolist() for x in (batch.src, batch.tgt_in, batch.tgt_out))
        assert src == [*s, EOS] + [PAD] * (batch.src.size(1) - len(s) - 1)
        n_padding = batch.tgt_in.size(1) - len(t) - 1
        assert tgt_in == [BOS, *t] + [PAD] * n_padding
        assert tgt_out == [*t, EOS] + [PAD] * n_padding
    assert batch.src.size(1) == max(len(s) for s, _ in pairs) + 1
    assert batch.tgt_in.shape == batch.tgt_out.shape == (len(pairs), max(len(t) for _, t in pairs) + 1)
    assert {x.dtype for x in (batch.src, batch.tgt_in, batch.tgt_out)} == {torch.int64}
    assert batch.lines == list(range(7, 7 + len(pairs)))
    assert batch.n_source_tokens == sum(len(s) + 1 for s, _ in pairs)
    assert batch.n_target_tokens == sum(len(t) + 1 for _, t in pairs)
    assert batch.n_positions == batch.src.numel() + batch.tgt_out.numel()
    assert batch.to(torch.device("meta")).lines == batch.lines


def n_padded(group: IdPairs) -> int:
    """Return source plus target positions of a batch of these pairs, with special ids and padding."""
    return len(group) * (max(len(s) for s, _ in group) + max(len(t) for _, t in group) + 2)


def groupings(pairs: IdPairs) -> Iterator[list[IdPairs]]:
    """Yield all ways to split the sorted pairs into batches."""
    ordered = sorted(pairs, key=lambda pair: max(map(len, pair)))
    for cuts in product([False, True], repeat=len(ordered) - 1):
        bounds = [0, *(i for i, is_cut in enumerate(cuts, 1) if is_cut), len(ordered)]
        yield [ordered[start:end] for start, end in pairwise(bounds)]


def rows(parts: Sequence[Batch]) -> list[tuple[int, list[list[int]]]]:
    """Return line number and token ids without padding of each pair, sorted by line number."""
    return sorted(
        (line, [side[i][side[i] != PAD].tolist() for side in (part.src, part.tgt_in, part.tgt_out)])
        for part in parts
        for i, line in enumerate(part.lines)
    )


@hypothesis_settings(max_examples=100)
@given(PAIRS_OF_IDS, st.integers(1, 4))
def test_the_largest_part_of_a_batch_is_as_small_as_possible(pairs: IdPairs, n: int) -> None:
    parts = whole(pairs).split(n)
    assert len(parts) == n
    assert rows(parts) == rows([whole(pairs)])
    fewest = min(max(map(n_padded, groups)) for groups in groupings(pairs) if len(groups) <= n)
    assert max(part.n_positions for part in parts if part.lines) == fewest
    assert all((len(part.src), part.n_target_tokens) == (1, 0) for part in parts if not part.lines)


@hypothesis_settings(max_examples=100)
@given(PAIRS_OF_IDS, st.integers(1, 100))
def test_a_batch_is_cut_into_as_few_parts_as_the_limit_allows(pairs: IdPairs, limit: int) -> None:
    parts = whole(pairs).cut(limit)
    assert rows(parts) == rows([whole(pairs)])
    assert all(part.n_positions <= limit or len(part.src) == 1 for part in parts)
    fitting = (g for g in groupings(pairs) if all(n_padded(group) <= limit or len(group) == 1 for group in g))
    assert len(parts) == min(map(len, fitting))


LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60)


def reference_cut(lengths: Sequence[tuple[int, int]], batch_tokens: int) -> list[list[int]]:
    """A simple implementation of `cut_batches`, with lists."""

    def key(i: int) -> tuple[int, int, int]:
        source, target = lengths[i]
        longest = max(source, target)
        return longest, source - target if longest % 2 else target - source, i

    batches: list[list[int]] = [[]]
    for i in sorted(range(len(lengths)), key=key):
        if batches[-1] and (max(lengths[i]) + 1) * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return [batch for batch in batches if batch]


@hypothesis_settings(max_examples=100)
@given(LENGTHS, st.integers(8, 300))
def test_batches_are_sorted_and_as_full_as_the_budget_allows(lengths: list[tuple[int, int]], batch_tokens: int) -> None:
    """A pair over the budget gets its own batch."""
    assert cut_batches(lengths, batch_tokens) == reference_cut(lengths, batch_tokens)


def costs_of(n: int) -> NDArray[np.int64]:
    return np.random.default_rng(n).permutation(n) + 1000


@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 5, 12, 13, 123, 240])
def test_the_order_of_batches_is_a_permutation_determined_by_the_seed(n: int, accumulate: int) -> None:
    for n_open in range(accumulate):
        orders = [shuffle_batches(costs_of(n), accumulate, n_open, seed) for seed in (1, 1, 2)]
        assert sorted(orders[0]) == [*range(n)]
        assert orders[0] == orders[1]
        assert n < 12 or orders[0] != orders[2]


@pytest.mark.parametrize("n_open", [0, 1])
def test_the_batches_of_a_step_cost_alike(n_open: int) -> None:
    costs = costs_of(241)
    order = shuffle_batches(costs, 2, n_open, 1)[n_open:]
    steps = [*zip(order[::2], order[1::2], strict=False)]
    assert len(steps) == 120
    assert max(abs(costs[i] - costs[j]) for i, j in steps) <= 2 * batches.N_COST_GROUPS  # of costs from 1000 to 1240


def test_every_part_of_an_epoch_has_steps_of_all_costs() -> None:
    costs = np.arange(20 * batches.N_COST_GROUPS)  # 20 per group
    order = shuffle_batches(costs, 1, 0, 1)
    stretch = 3 * batches.N_COST_GROUPS + 1  # contains a whole twentieth of the epoch, with a step of each group
    for start in range(len(order) - stretch):
        kinds = np.array(order[start : start + stretch]) / 20
        assert np.diff(np.sort(kinds)).max() < 2.5  # groups; no large range of costs is absent


def test_the_first_batches_of_a_pool_complete_the_step_before(data_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled_pools: list[tuple[int, int]] = []  # batches, and how many of them belong to the open step

    def spy(costs: NDArray[np.int64], accumulate: int, n_open: int, seed: int) -> list[int]:
        shuffled_pools.append((len(costs), n_open))
        return shuffle_batches(costs, accumulate, n_open, seed)

    monkeypatch.setattr(batches, "POOL_PAIRS", 17)
    monkeypatch.setattr(batches, "shuffle_batches", spy)
    n_before = len(list(data_of(accumulate=3).batches(0)))
    assert sum(n for n, _ in shuffled_pools) == n_before
    assert {n_open for _, n_open in shuffled_pools} == {0, 1, 2}
    for n, n_open in reversed(shuffled_pools):
        n_before -= n
        assert (n_before + n_open) % 3 == 0


@pytest.mark.parametrize("pool", [batches.POOL_PAIRS, 17])
def test_an_epoch_of_a_mixture_goes_on_with_others(data_of: Make, monkeypatch: pytest.MonkeyPatch, pool: int) -> None:
    """Corpora of 20, 30 and 10 pairs. An epoch has all 20, 10 of the 30, and all 10, which each epoch repeats."""
    monkeypatch.setattr(batches, "POOL_PAIRS", pool)
    data = data_of(mixture=Mixture([20, 30, 10], [0.25, 0.25]))
    assert data.n_epoch_pairs == 40
    epochs = [[line for batch in data.batches(epoch) for line in batch.lines] for epoch in range(3)]
    for lines in epochs:
        assert sorted(line for line in lines if line <= 20) == [*range(1, 21)]
        assert sum(20 < line <= 50 for line in lines) == 10
        assert sorted(line for line in lines if line > 50) == [*range(51, 61)]
    assert sorted(line for lines in epochs for line in lines if 20 < line <= 50) == [*range(21, 51)]
    whole = plain(list(data.batches(2)))
    assert plain(list(data_of(seed=2, mixture=data.mixture).batches(2))) != whole
    assert data.n_batches == pytest.approx(len(whole), rel=0.3)
    for first in (1, len(whole) // 2):
        assert plain(list(data.batches(2, first))) == whole[first:]
    assert plain(list(data_of(mixture=data.mixture).batches(2))) == whole, "whatever was read before"


def reference_batches(tokenizers: Tokenizers, epoch: int, pool_pairs: int) -> Iterator[Batch]:
    """A simple implementation of `TrainingData.batches`, with lists in memory."""
    for pool, start in enumerate(range(0, len(PAIRS), pool_pairs)):
        order = shuffled(np.arange(len(PAIRS)), len(PAIRS), seed_of(1, epoch)).tolist()[start : start + pool_pairs]
        sides = [PAIRS[i].source for i in order], [PAIRS[i].target for i in order]
        ids = [tokenizer.encode_all(texts) for tokenizer, texts in zip(tokenizers, sides, strict=True)]
        cut = reference_cut([(len(s), len(t)) for s, t in zip(*ids, strict=True)], 200)
        costs = np.array([sum(len(ids[1][j]) for j in rows) for rows in cut])
        for i in shuffle_batches(costs, 1, 0, seed_of(1, epoch, pool)):
            source, target = ([side[j] for j in cut[i]] for side in ids)
            yield collate(source, target, [PAIRS[order[j]].line for j in cut[i]])


@pytest.mark.parametrize("pool", [batches.POOL_PAIRS, 17])
def test_batches_from_disk_equal_the_reference(
    data_of: Make, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch, pool: int
) -> None:
    monkeypatch.setattr(batches, "POOL_PAIRS", pool)
    data = data_of()
    for epoch in range(3):
        expected = plain(list(reference_batches(tokenizers, epoch, pool)))
        assert plain(list(data.batches(epoch))) == expected
        for first in (1, 5, len(expected) - 1, len(expected), len(expected) + 3):
            assert plain(list(data.batches(epoch, first))) == expected[first:]
    assert data.n_batches == pytest.approx(len(list(data.batches(0))), rel=0.2 if pool == 17 else 0)
