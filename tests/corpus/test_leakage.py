"""Repeated sentences: the results equal those of brute force."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nmt.corpus import leakage
from nmt.corpus.alignment import hashed
from nmt.text.corpus import digests_of

SENTENCES = st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=10).map(" ".join), max_size=12)


def nearly_same(one: str, other: str) -> bool:
    """Whether at most one word differs, by brute force; False if a sentence is shorter than `MIN_WORDS`."""
    left, right = Counter(one.split()), Counter(other.split())
    is_long = min(left.total(), right.total()) >= leakage.MIN_WORDS
    return is_long and (left - right).total() <= 1 and (right - left).total() <= 1


@given(SENTENCES, SENTENCES)
def test_near_matches_are_those_of_brute_force(own: list[str], other: list[str]) -> None:
    found = leakage.matches(leakage.near_keys(*hashed(own), 1), leakage.near_keys(*hashed(other), 1))
    expected = [(i, j) for i, a in enumerate(own, 1) for j, b in enumerate(other, 1) if nearly_same(a, b)]
    assert [tuple(pair) for pair in found.tolist()] == expected


def test_case_and_punctuation_do_not_matter() -> None:
    keys = [leakage.near_keys(*hashed([text]), 1) for text in ("A b c d e f g H!", "a, b c d e f g h")]
    assert leakage.matches(*keys).tolist() == [[1, 1]]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("uvwxyz")), max_size=40))
def test_texts_with_many_partners(pairs: list[tuple[str, str]]) -> None:
    source, target = (digests_of(pair[side].encode() for pair in pairs) for side in (0, 1))
    both = source * np.uint64(3) + target
    partners = {text: {t for s, t in pairs if s == text} for text in "ab"}
    expected = [i for i, (text, _) in enumerate(pairs) if len(partners[text]) >= leakage.MANY]
    assert leakage.with_many(source, both).tolist() == expected
