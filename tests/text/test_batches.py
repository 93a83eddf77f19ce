"""Batches stay within the budget, an epoch has every pair once, and its order is a function of seed and epoch."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt.config import TokenizerSettings
from nmt.text import BOS, EOS, PAD, batches
from nmt.text.batches import Batch, TrainingData, collate, cut_batches, spread
from nmt.text.corpus_files import Pairs, RaggedArray, write_pairs
from nmt.text.lines import Pair
from nmt.text.permutation import Mixture
from nmt.text.tokenizer import Tokenizers
from nmt.text.tokenizer_training import train_tokenizer

LINES = range(1, 61)
SOURCE = [f"{n}" + " the cat sat on the mat" * (1 + n % 5) for n in LINES]
TARGET = [f"{n}" + " die Katze saß da" * (1 + n % 3) for n in LINES]
BATCH_TOKENS = 200
SMALL_POOL = 17  # pairs
# Corpora of 20, 30 and 10 pairs. An epoch has all 20, 10 of the 30, and all 10, which each epoch repeats.
MIXTURE = Mixture([20, 30, 10], [0.25, 0.25])

IdPairs = list[tuple[list[int], list[int]]]
IDS = st.lists(st.integers(EOS + 1, 99), max_size=6)
PAIRS_OF_IDS = st.lists(st.tuples(IDS, IDS), min_size=1, max_size=6)

# --- one batch --------------------------------------------------------------------------------------------


def test_collate_adds_special_ids_and_padding() -> None:
    batch = collate([[5], [6, 7]], [[8, 9], []], lines=[1, 5])
    result = batch.src.tolist()
    assert result == [[5, EOS, PAD], [6, 7, EOS]]
    result = batch.tgt_in.tolist()
    assert result == [[BOS, 8, 9], [BOS, PAD, PAD]]
    result = batch.tgt_out.tolist()
    assert result == [[8, 9, EOS], [EOS, PAD, PAD]]
    assert batch.lines == [1, 5]


def test_a_batch_knows_its_size() -> None:
    batch = collate([[5], [6, 7]], [[8, 9, 4], []], lines=[1, 2])
    assert batch.n_target_tokens == 5
    assert batch.n_positions == 14  # two rows of 3 and of 4


def whole(pairs: IdPairs) -> Batch:
    """One batch of all pairs."""
    source, target = zip(*pairs, strict=True)
    return collate(source, target, range(len(pairs)))


def n_padded(group: IdPairs) -> int:
    """Source plus target positions of a batch of these pairs, with special ids and padding."""
    sources, targets = zip(*group, strict=True)
    n_source = 1 + max(map(len, sources))
    n_target = 1 + max(map(len, targets))
    return len(group) * (n_source + n_target)


def length_of_pair(pair: tuple[list[int], list[int]]) -> int:
    return max(map(len, pair))


def groupings(pairs: IdPairs) -> Iterator[list[IdPairs]]:
    """Yield all ways to split the sorted pairs into batches."""
    ordered = sorted(pairs, key=length_of_pair)
    for n_cuts in range(len(ordered)):
        for cuts in combinations(range(1, len(ordered)), n_cuts):
            bounds = pairwise([0, *cuts, len(ordered)])
            yield [ordered[start:end] for start, end in bounds]


def largest(parts: Sequence[Batch]) -> int:
    return max(part.n_positions for part in parts)


def without_padding(ids: Tensor) -> list[int]:
    return ids[ids != PAD].tolist()


def rows(parts: Sequence[Batch]) -> dict[int, object]:
    """The token ids of each pair without padding, by its line."""
    found: dict[int, object] = {}
    for part in parts:
        for i, line in enumerate(part.lines):  # a pair without a loss has no line
            sides = part.src[i], part.tgt_in[i], part.tgt_out[i]
            found[line] = list(map(without_padding, sides))
    return found


@given(PAIRS_OF_IDS, st.integers(1, 100))
def test_a_batch_is_cut_into_as_few_parts_as_the_limit_allows(pairs: IdPairs, limit: int) -> None:
    def fits(group: IdPairs) -> bool:
        return n_padded(group) <= limit or len(group) == 1

    parts = whole(pairs).cut(limit)
    result = rows(parts)
    assert result == rows([whole(pairs)])
    for part in parts:
        if len(part.src) > 1:
            assert part.n_positions <= limit
    n_parts = [len(groups) for groups in groupings(pairs) if all(map(fits, groups))]
    assert len(parts) == min(n_parts)


@given(PAIRS_OF_IDS, st.integers(1, 8))
def test_the_largest_part_of_a_batch_is_as_small_as_possible(pairs: IdPairs, n: int) -> None:
    """If fewer parts suffice, the others are a pair without a loss."""
    batch = whole(pairs)
    parts = batch.split(n)
    assert rows(parts) == rows([batch])
    assert len(parts) == n
    # The least limit at which cutting the batch gives at most n parts.
    limit = 0
    while len(batch.cut(limit)) > n:
        limit += 1
    with_pairs = [part for part in parts if part.lines]
    result = largest(with_pairs)
    assert result == largest(batch.cut(limit))
    for part in parts:
        if not part.lines:
            assert len(part.src) == 1
            assert part.n_target_tokens == 0


# --- which pairs are a batch ------------------------------------------------------------------------------

LENGTH = st.integers(0, 30)
LENGTHS = st.lists(st.tuples(LENGTH, LENGTH), max_size=60)  # of source and target


def sort_key(lengths: tuple[int, int]) -> tuple[int, int]:
    """The longer side, then the difference of the sides, alternately ascending and descending."""
    source, target = lengths
    longest = max(source, target)
    is_odd = longest % 2 == 1
    return longest, source - target if is_odd else target - source


@given(LENGTHS, st.integers(8, 300))
def test_batches_are_sorted_and_as_full_as_the_budget_allows(lengths: list[tuple[int, int]], budget: int) -> None:
    """A pair over the budget gets its own batch."""
    cut = cut_batches(lengths, budget)
    order = list(chain.from_iterable(cut))
    result = sorted(order)
    assert result == list(range(len(lengths)))
    keys = [(sort_key(lengths[i]), i) for i in order]
    assert keys == sorted(keys)
    n_positions = [1 + max(pair) for pair in lengths]
    for batch in cut:
        if len(batch) > 1:
            assert n_positions[batch[-1]] * len(batch) <= budget
    for batch, following in pairwise(cut):
        longest = n_positions[following[0]]
        assert longest * (len(batch) + 1) > budget, "the next pair does not fit"


# --- their order ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 5, 13, 240])
def test_the_order_of_batches_is_a_permutation(n: int) -> None:
    order = spread(n, seed=1)
    assert sorted(order) == list(range(n))


def test_every_part_of_an_epoch_has_batches_of_all_lengths() -> None:
    order = np.array(spread(20 * batches.N_LENGTH_GROUPS, seed=1))
    n = 3 * batches.N_LENGTH_GROUPS + 1  # contains a whole twentieth of the epoch, with a batch of each group
    for start in range(len(order) - n):
        part = np.sort(order[start : start + n])
        assert np.diff(part / 20).max() < 2.5, "no large range of lengths is absent"


# --- an epoch ---------------------------------------------------------------------------------------------

MakeData = Callable[..., TrainingData]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    settings = TokenizerSettings(vocab_size=330)
    model = train_tokenizer(SOURCE + TARGET, settings)
    return Tokenizers.from_models(model, model, nfkc_source=False)


@pytest.fixture(scope="module")
def make_data(folder: Path, tokenizers: Tokenizers) -> MakeData:
    """A function that returns the training data of `SOURCE` and `TARGET`."""
    pairs = list(map(Pair, LINES, SOURCE, TARGET))
    write_pairs(folder, pairs)
    source = RaggedArray.from_lists(tokenizers.source.encode_all(SOURCE))
    target = RaggedArray.from_lists(tokenizers.target.encode_all(TARGET))

    def make(*, seed: int = 1, **options: Any) -> TrainingData:
        return TrainingData(Pairs(folder), (source, target), batch_tokens=BATCH_TOKENS, seed=seed, **options)

    return make


@pytest.fixture(params=[batches.POOL_PAIRS, SMALL_POOL], ids=["one pool", "small pools"])
def pool_pairs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(batches, "POOL_PAIRS", request.param)
    return int(request.param)


def plain(batch: Batch) -> list[object]:
    """A batch as lists, which can be compared with ==."""
    sides = batch.src, batch.tgt_in, batch.tgt_out
    return [batch.lines, *map(Tensor.tolist, sides)]


def epoch_of(data: TrainingData, epoch: int, first: int = 0) -> list[list[object]]:
    return [plain(batch) for batch in data.batches(epoch, first)]


def lines_of(data: TrainingData, epoch: int) -> list[int]:
    lines = []
    for batch in data.batches(epoch):
        lines += batch.lines
    return lines


of_every_kind = pytest.mark.parametrize("options", [{}, {"mixture": MIXTURE}, {"concatenate": 0.6}], ids=str)


def test_an_epoch_has_every_pair_once(make_data: MakeData, tokenizers: Tokenizers, pool_pairs: int) -> None:
    lines = []
    for batch in make_data().batches(0):
        source_texts = [SOURCE[line - 1] for line in batch.lines]
        target_texts = [TARGET[line - 1] for line in batch.lines]
        source = tokenizers.source.encode_all(source_texts)
        target = tokenizers.target.encode_all(target_texts)
        expected = collate(source, target, batch.lines)
        assert plain(batch) == plain(expected)
        longest = 1 + max(map(len, source + target))
        assert longest * len(source) <= BATCH_TOKENS
        lines += batch.lines
    assert sorted(lines) == list(LINES)


def test_pairs_are_concatenated_two_by_two(make_data: MakeData, tokenizers: Tokenizers, pool_pairs: int) -> None:
    numbers: list[str] = []  # the line number at the beginning of each text
    n_pairs = set()  # how many pairs the rows of the batches have
    for batch in make_data(concatenate=0.5).batches(0):
        for source, target in zip(batch.src.tolist(), batch.tgt_in.tolist(), strict=True):
            of_source = re.findall(r"\d+", tokenizers.source.decode(source))
            assert re.findall(r"\d+", tokenizers.target.decode(target)) == of_source
            numbers += of_source
            n_pairs.add(len(of_source))
    assert sorted(map(int, numbers)) == list(LINES)
    assert n_pairs == {1, 2}


@of_every_kind
def test_the_order_is_a_function_of_seed_and_epoch(
    make_data: MakeData, pool_pairs: int, options: dict[str, Any]
) -> None:
    data = make_data(**options)
    first, second = epoch_of(data, 0), epoch_of(data, 1)
    assert first != second
    assert epoch_of(make_data(**options), 1) == second, "whatever was read before"
    assert epoch_of(make_data(**options, seed=2), 1) != second


@of_every_kind
def test_an_epoch_goes_on_from_any_batch(make_data: MakeData, pool_pairs: int, options: dict[str, Any]) -> None:
    # As after a stop: the first batches are skipped.
    data = make_data(**options)
    expected = epoch_of(data, 1)
    n = len(expected)
    for first in (1, 5, n - 1, n, n + 3):
        assert epoch_of(data, 1, first) == expected[first:]


@of_every_kind
def test_the_batches_of_an_epoch_are_estimated(make_data: MakeData, pool_pairs: int, options: dict[str, Any]) -> None:
    data = make_data(**options)
    error = 0.3 if pool_pairs == SMALL_POOL else 0
    n_batches = len(epoch_of(data, 0))
    assert data.n_batches == pytest.approx(n_batches, rel=error)


def test_an_epoch_of_a_mixture_goes_on_with_other_pairs(make_data: MakeData, pool_pairs: int) -> None:
    data = make_data(mixture=MIXTURE)
    assert data.n_epoch_pairs == 40
    lines_of_second = []
    for epoch in range(3):
        lines = sorted(lines_of(data, epoch))
        assert lines[:20] == list(LINES[:20])
        assert lines[30:] == list(LINES[50:])
        lines_of_second += lines[20:30]
    result = sorted(lines_of_second)
    assert result == list(LINES[20:50])
