"""Splitting Tatoeba: the pinned dev and test come back from any version, and train shares no side with them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.corpus.tatoeba import PairText, pair_hash, pins_of, split

PAIRS = [(f"Satz {n}", f"sentence {n}") for n in range(200)]
DEV, TEST, TRAIN = PAIRS[:20], PAIRS[20:50], PAIRS[50:]
PINS = pins_of({"dev": DEV, "test": TEST})


@settings(max_examples=10)
@given(st.permutations(PAIRS[:60]))
def test_the_same_version_gives_the_same_split_in_any_order(first: list[PairText]) -> None:
    found = split([*first, *PAIRS[60:], *PAIRS[:3]], [], PINS)
    assert found == {"train": sorted(TRAIN, key=pair_hash), "dev": DEV, "test": TEST}


def test_train_shares_no_side_with_dev_and_test_and_what_a_version_lacks_is_left_out() -> None:
    more = [("SATZ 3", "another"), ("anderer", "Sentence 30"), ("neu", "new"), ("satz 3 ", "other")]
    found = split([*PAIRS[1:], *more], [], PINS)
    assert set(found["train"]) == {*TRAIN, *more[2:]}
    assert found["dev"] == DEV[1:]


def test_train_shares_no_side_with_the_public_test_set_that_test_is_drawn_from() -> None:
    public = [*TEST, ("Satz 100", "a test set's"), ("eines Testsatzes", "SENTENCE 101")]
    found = split([*DEV, *TRAIN], public, PINS)
    assert found["test"] == TEST
    assert set(found["train"]) == set(TRAIN) - {PAIRS[100], PAIRS[101]}
