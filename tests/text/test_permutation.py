"""Orders that are functions of a seed: permutations, mixtures; texts that occur repeatedly."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nmt.text.corpus_files import digests_of
from nmt.text.permutation import Mixture, first_occurrences, n_occurrences, shuffled


@hypothesis_settings(max_examples=100)
@given(st.lists(st.sampled_from("abcdefghij"), max_size=40))
def test_equal_digests_are_found(texts: list[str]) -> None:
    digests = digests_of(text.encode() for text in texts)
    assert first_occurrences(digests).tolist() == [text not in texts[:i] for i, text in enumerate(texts)]
    assert n_occurrences(digests).tolist() == [Counter(texts)[text] for text in texts]


@hypothesis_settings(max_examples=100)
@given(st.integers(1, 3000), st.integers(0, 2**31 - 1), st.data())
def test_shuffled_is_a_permutation_that_can_be_computed_in_parts(n: int, seed: int, data: st.DataObject) -> None:
    order = shuffled(np.arange(n), n, seed)
    assert sorted(order.tolist()) == list(range(n))
    start = data.draw(st.integers(0, n - 1))
    assert shuffled(np.arange(start, n), n, seed).tolist() == order[start:].tolist()


def test_shuffled_does_not_change() -> None:
    """The data order of resumed runs and the held-out dev pairs depend on it."""
    assert shuffled(np.arange(8), 8, 1).tolist() == [7, 3, 5, 6, 2, 1, 4, 0]
    assert shuffled(np.arange(4), 100_000, 2**31 - 1).tolist() == [14125, 45306, 45166, 69115]


def test_all_orders_of_four_are_equally_likely() -> None:
    found = Counter(tuple(shuffled(np.arange(4), 4, seed).tolist()) for seed in range(1200))
    assert len(found) == 24
    assert min(found.values()) > 20  # 50 expected
    assert max(found.values()) < 90


SIZES = st.lists(st.integers(1, 40), min_size=2, max_size=4)
PARTS = [0.05, 0.1, 0.25, 0.3]  # their sum is less than 1


@hypothesis_settings(max_examples=60)
@given(SIZES, st.permutations(PARTS), st.integers(0, 2**31 - 1), st.integers(0, 10**6))
def test_an_epoch_has_the_share_of_each_corpus(sizes: list[int], shares: list[float], seed: int, epoch: int) -> None:
    shares = shares[: len(sizes) - 1]
    mixture = Mixture(sizes, shares)
    found = mixture.pairs(np.arange(mixture.n_pairs), epoch, seed)
    assert found[: sizes[0]].tolist() == [*range(sizes[0])]
    starts = np.cumsum([0, *sizes])
    counts = np.histogram(found, starts)[0].tolist()
    assert counts == mixture.n_drawn
    n_epoch = sizes[0] / (1 - sum(shares))
    for share, count in zip(shares, counts[1:], strict=True):
        assert count == 1 or abs(count - share * n_epoch) <= 0.5
    halves = [mixture.pairs(half, epoch, seed) for half in np.array_split(np.arange(mixture.n_pairs), 2)]
    assert np.concatenate(halves).tolist() == found.tolist()


@hypothesis_settings(max_examples=40)
@given(st.integers(1, 20), st.integers(1, 30), st.sampled_from(PARTS), st.integers(1, 12))
def test_pairs_that_are_mixed_in_are_read_equally_often(n: int, size: int, share: float, n_epochs: int) -> None:
    mixture = Mixture([n, size], [share])
    entries = np.arange(n, mixture.n_pairs)
    read = Counter[int](dict.fromkeys(range(n, n + size), 0))
    for epoch in range(n_epochs):
        read.update(mixture.pairs(entries, epoch, seed=1).tolist())
        assert max(read.values()) - min(read.values()) <= 1
    assert read.total() == n_epochs * mixture.n_drawn[1]


def test_rounds_have_different_orders_which_do_not_change() -> None:
    """The data order of resumed runs depends on it."""
    mixture = Mixture([6, 6], [0.5])
    orders = [mixture.pairs(np.arange(6, 12), epoch, seed=1).tolist() for epoch in range(3)]
    assert orders == [[6, 8, 9, 11, 7, 10], [6, 7, 9, 10, 11, 8], [9, 8, 7, 6, 10, 11]]
    assert mixture.pairs(np.arange(6, 12), 0, seed=2).tolist() not in orders
