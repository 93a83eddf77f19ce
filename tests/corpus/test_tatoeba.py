"""Splitting Tatoeba: the pinned dev and test come back from any version, and train shares no side with them."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.corpus.tatoeba import HASH_DIGITS, SAMPLE_RATE, PairText, Split, is_sampled, pair_hash, pins_of, split

N = 2_000
PAIRS = [(f"Satz {n}", f"sentence {n}") for n in range(N)]
DEV, TEST, TRAIN = PAIRS[:20], PAIRS[20:50], PAIRS[50:]
PINS = pins_of({"train": TRAIN, "dev": DEV, "test": TEST})


def split_of(pairs: Sequence[PairText], public_test: Sequence[PairText] = ()) -> Split:
    return split(pairs, public_test, PINS, len(TRAIN))


@settings(max_examples=10)
@given(st.permutations(PAIRS[:60]))
def test_the_same_version_gives_the_same_split_in_any_order(first: list[PairText]) -> None:
    found = split_of([*first, *PAIRS[60:], *PAIRS[:3]])
    assert found.parts["dev"] == DEV
    assert found.parts["test"] == TEST
    assert found.parts["train"] == sorted(TRAIN, key=pair_hash)
    assert (found.incomplete, found.notes) == (frozenset(), [])


def test_train_shares_no_side_with_dev_and_test() -> None:
    more = [("SATZ 3", "another"), ("anderer", "Sentence 30"), ("neu", "new"), ("satz 3 ", "other")]
    found = split_of([*PAIRS, *more])
    assert set(found.parts["train"]) == {*TRAIN, *more[2:]}
    assert found.notes == ["train has 2 pairs more than the one that the recipes were measured on"]


def test_train_shares_no_side_with_the_public_test_set_that_test_is_drawn_from() -> None:
    public = [*TEST, ("Satz 100", "a test set's"), ("eines Testsatzes", "SENTENCE 101")]
    found = split_of([*DEV, *TRAIN], public)
    assert found.parts["test"] == TEST
    assert set(found.parts["train"]) == set(TRAIN) - {PAIRS[100], PAIRS[101]}


def test_what_another_version_lacks_is_counted() -> None:
    found = split_of([*DEV[1:], *TEST, *TRAIN[: N // 2], *((f"neu {n}", f"new {n}") for n in range(500))])
    assert found.parts["dev"] == DEV[1:]
    assert found.incomplete == {"dev"}
    assert found.notes[0] == "dev has 19 of its 20 pairs"
    n_fewer = sum(is_sampled(pair_hash(pair)) for pair in TRAIN[N // 2 :]) * SAMPLE_RATE
    assert 300 < n_fewer < 1_900, "an estimate of 950"
    n_more = N // 2 + 500 - (len(TRAIN) - n_fewer)
    assert found.notes[1] == (
        f"train has about {n_more:,} pairs more and {n_fewer:,} fewer than the one that the recipes were measured on"
    )


def test_the_pins_have_dev_and_test_in_order_and_a_sample_of_train() -> None:
    lines = [line.split() for line in PINS.splitlines()]
    assert [digest for part, digest in lines if part == "dev"] == [pair_hash(pair)[:HASH_DIGITS] for pair in DEV]
    assert [part for part, _ in lines if part != "train"] == ["dev"] * 20 + ["test"] * 30
    n_sampled = sum(part == "train" for part, _ in lines)
    assert 0.5 * N / SAMPLE_RATE < n_sampled < 2 * N / SAMPLE_RATE
