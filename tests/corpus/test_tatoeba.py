"""Splitting Tatoeba: the pinned dev and test come back from any version, and train shares no side with them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from parallel_text import pins_of

from nmt.corpus.tatoeba import PairText, pair_hash, split

PAIRS = [(f"Satz {n}", f"sentence {n}") for n in range(200)]
DEV, TEST, TRAIN = PAIRS[:20], PAIRS[20:50], PAIRS[50:]
PINS = pins_of(DEV, TEST)


@settings(max_examples=10)
@given(st.permutations(PAIRS[:60]))
def test_the_same_version_gives_the_same_split_in_any_order(first: list[PairText]) -> None:
    parts = split([*first, *PAIRS[60:]], [], PINS)
    assert parts == {"train": sorted(TRAIN, key=pair_hash), "dev": DEV, "test": TEST}


def test_a_repeated_pair_counts_once() -> None:
    parts = split([*PAIRS, PAIRS[0], PAIRS[100]], [], PINS)
    assert parts["dev"] == DEV
    result = sorted(parts["train"])
    assert result == sorted(TRAIN)


def test_train_shares_no_side_with_dev_and_test() -> None:
    # Case does not count, but a space does.
    shared = [("SATZ 3", "another"), ("anderer", "Sentence 30")]
    new = [("neu", "new"), ("satz 3 ", "other")]
    parts = split([*PAIRS, *shared, *new], [], PINS)
    result = set(parts["train"])
    assert result == {*TRAIN, *new}


def test_train_shares_no_side_with_the_public_test_set_that_test_is_drawn_from() -> None:
    # Only some of the public test set are in test.
    public = [*TEST, ("Satz 100", "a test set's"), ("eines Testsatzes", "SENTENCE 101")]
    parts = split([*DEV, *TRAIN], public, PINS)
    assert parts["test"] == TEST
    left_out = {PAIRS[100], PAIRS[101]}
    result = set(parts["train"])
    assert result == set(TRAIN) - left_out
