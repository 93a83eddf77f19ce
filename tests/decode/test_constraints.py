"""Search for translations that contain terms, compared with brute force; every translation has all terms."""

import re
from collections.abc import Collection
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import TableModel, sources
from test_search import A, B, C, all_hypotheses, random_table

from nmt.decode.constraints import Constraint
from nmt.decode.options import SearchOptions
from nmt.decode.search import search
from nmt.text import EOS

TERMS = [(), ((A,),), ((A, B),), ((A, A, B),), ((A, B), (C,)), ((A,), (A,)), ((A, B, A), (A, B, A)), ((A, A), (B,))]
Terms = tuple[tuple[int, ...], ...]
OPTIONS = [*product([0.0, 0.6, 1.0, 2.0], range(4), [2, 4])]


def has_all(tokens: list[int], terms: Terms, inside_words: Collection[int] = ()) -> bool:
    """Whether tokens have each term as often as it is listed, and no token inside of a word behind it."""
    behind = "".join(str(ord(one)) for one in Constraint(terms, inside_words).inside_words)
    patterns = ["".join(map(str, term)) + (f"(?![{behind}])" if behind else "") for term in terms]
    return all(len(re.findall(one, "".join(map(str, tokens)))) >= patterns.count(one) for one in patterns)


@given(st.integers(0, 10**6), st.sampled_from(TERMS), st.sampled_from([(), (B,), (B, C)]), st.sampled_from(OPTIONS))
@settings(max_examples=40)
def test_a_beam_that_holds_everything_is_brute_force(seed: int, terms: Terms, inside: Any, chosen: Any) -> None:
    """Terms raise the limit of the options so far that they fit."""
    alpha, shortest, longest = chosen
    limits = {"max_length_a": 0, "max_length_b": longest, "min_length": shortest}
    options = SearchOptions(beam=400, n_best=400, alpha=alpha, **limits)
    table, rows = random_table(seed), [(A, B), (C,)]
    found = search(TableModel(table), sources(*rows), options, constraints=[Constraint(terms, inside), Constraint()])
    for one, row, (required, within) in zip(found, rows, [(terms, inside), ((), ())], strict=True):
        every = all_hypotheses(table, (*row, EOS), options, sum(map(len, required)))
        expected = [h for h in every if has_all(h.tokens, required, within)]
        assert [h.tokens for h in one] == [h.tokens for h in expected]
        assert [h.score for h in one] == pytest.approx([h.score for h in expected])
        assert [h.log_probs for h in one] == [pytest.approx(h.log_probs) for h in expected]


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 9), st.data())
@settings(max_examples=50)
def test_every_translation_has_all_terms(seed: int, beam: int, limit: int, data: st.DataObject) -> None:
    """Also terms that overlap, with a prefix, and when there is no room for anything else."""
    words = st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=4).map(tuple)
    terms, prefix, inside = data.draw(st.lists(words, max_size=4).map(tuple)), data.draw(words), data.draw(words)
    options = SearchOptions(beam=beam, n_best=beam, max_length_a=0, max_length_b=limit)
    given_to: dict[str, Any] = {"constraints": [Constraint(terms, inside)], "prefixes": [prefix]}
    (found,) = search(TableModel(random_table(seed)), sources((A,)), options, **given_to)
    assert found
    assert all(has_all(h.tokens, terms, inside) and tuple(h.tokens[: len(prefix)]) == prefix for h in found)
