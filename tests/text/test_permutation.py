"""Orders that are functions of a seed: permutations, mixtures; texts that occur repeatedly."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.text.corpus_files import digests_of
from nmt.text.permutation import Mixture, first_occurrences, n_occurrences, shuffled


@given(st.lists(st.sampled_from("abcdefghij")))
def test_equal_digests_are_found(texts: list[str]) -> None:
    digests = digests_of(texts)
    is_first = [text not in texts[:i] for i, text in enumerate(texts)]
    assert list(first_occurrences(digests)) == is_first
    counts = [texts.count(text) for text in texts]
    assert list(n_occurrences(digests)) == counts


SEEDS = st.integers(0, 2**31 - 1)


@given(st.integers(1, 3000), SEEDS, st.data())
def test_shuffled_is_a_permutation_that_can_be_computed_in_parts(n: int, seed: int, data: st.DataObject) -> None:
    indices = np.arange(n)
    order = list(shuffled(indices, n, seed))
    result = sorted(order)
    assert result == list(range(n))
    start = data.draw(st.integers(0, n - 1))
    part = shuffled(indices[start:], n, seed)
    assert list(part) == order[start:]


def test_shuffled_does_not_change() -> None:
    """The data order of resumed runs and the held-out dev pairs depend on it."""
    four = np.arange(4)
    result = list(shuffled(four, 8, seed=1))
    assert result == [7, 3, 5, 6]
    result = list(shuffled(four, 100_000, 2**31 - 1))
    assert result == [14125, 45306, 45166, 69115]


def test_all_orders_of_four_are_equally_likely() -> None:
    n_seeds = Counter[tuple[int, ...]]()  # by order
    for seed in range(1200):
        order = shuffled(np.arange(4), 4, seed)
        n_seeds[tuple(order)] += 1
    assert len(n_seeds) == 24
    assert min(n_seeds.values()) > 20  # 50 expected
    assert max(n_seeds.values()) < 90


# --- mixtures ---------------------------------------------------------------------------------------------

SIZES = st.lists(st.integers(1, 40), min_size=2, max_size=4)
PARTS = [0.05, 0.1, 0.25, 0.3]  # their sum is less than 1
EPOCHS = st.integers(0, 10**6)


@given(SIZES, st.permutations(PARTS), EPOCHS)
def test_an_epoch_has_the_share_of_each_corpus(sizes: list[int], shares: list[float], epoch: int) -> None:
    shares = shares[: len(sizes) - 1]
    mixture = Mixture(sizes, shares)
    entries = np.arange(mixture.n_pairs)
    pairs = mixture.pairs(entries, epoch, seed=1)
    # The first corpus is read wholly, in order.
    n_first = sizes[0]
    result = list(pairs[:n_first])
    assert result == list(range(n_first))
    bounds = np.cumsum([0, *sizes])
    counts, _ = np.histogram(pairs, bounds)
    assert list(counts) == mixture.n_drawn
    n_epoch = n_first / (1 - sum(shares))
    for share, count in zip(shares, counts[1:], strict=True):
        n_expected = max(1, share * n_epoch)
        assert count == pytest.approx(n_expected, abs=0.5)


@given(SIZES, EPOCHS, SEEDS)
def test_an_epoch_of_a_mixture_can_be_computed_in_parts(sizes: list[int], epoch: int, seed: int) -> None:
    mixture = Mixture(sizes, PARTS[1 : len(sizes)])
    entries = np.arange(mixture.n_pairs)
    whole = list(mixture.pairs(entries, epoch, seed))
    middle = len(entries) // 2
    result = list(mixture.pairs(entries[:middle], epoch, seed))
    assert result == whole[:middle]
    result = list(mixture.pairs(entries[middle:], epoch, seed))
    assert result == whole[middle:]


@given(st.integers(1, 20), st.integers(1, 30), st.sampled_from(PARTS))
def test_pairs_that_are_mixed_in_are_read_equally_often(n: int, size: int, share: float) -> None:
    mixture = Mixture([n, size], [share])
    entries = np.arange(n, mixture.n_pairs)
    n_read = np.zeros(n + size, dtype=int)  # by pair
    for epoch in range(12):
        pairs = mixture.pairs(entries, epoch, seed=1)
        np.add.at(n_read, pairs, 1)
        assert np.ptp(n_read[n:]) <= 1
    _, n_drawn = mixture.n_drawn
    assert n_read.sum() == 12 * n_drawn


def test_rounds_have_different_orders_which_do_not_change() -> None:
    """The data order of resumed runs depends on it."""
    mixture = Mixture([6, 6], [0.5])

    def order(epoch: int, seed: int = 1) -> list[int]:
        entries = np.arange(6, 12)
        return list(mixture.pairs(entries, epoch, seed))

    result = order(0)
    assert result == [6, 8, 9, 11, 7, 10]
    result = order(1)
    assert result == [6, 7, 9, 10, 11, 8]
    result = order(2)
    assert result == [9, 8, 7, 6, 10, 11]
    for epoch in range(3):
        assert order(0, seed=2) != order(epoch)
