"""Search for translations that contain terms, compared with brute force; every translation has all terms."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import TableModel, sources
from test_search import A, B, C, all_hypotheses, random_table

from nmt.decode.constraints import Constraint
from nmt.decode.options import Hypothesis, SearchOptions
from nmt.decode.search import search
from nmt.text import EOS

Tokens = tuple[int, ...]
Terms = tuple[Tokens, ...]
TERMS: list[Terms] = [
    (), ((A,),), ((A, A, B),), ((A, B), (C,)), ((A,), (A,)), ((A, B, A), (A, B, A)), ((A, A), (B,))
]  # fmt: skip
INSIDE: list[Tokens] = [(), (B,), (B, C)]  # tokens inside of words


def n_occurrences(tokens: Sequence[int], term: Tokens, inside: set[str]) -> int:
    """How often tokens have a term, without overlaps and without one of `inside` behind it."""
    n = start = 0
    while start + len(term) <= len(tokens):
        end = start + len(term)
        following = [chr(token) for token in tokens[end : end + 1]]
        is_whole = inside.isdisjoint(following)
        if is_whole and tuple(tokens[start:end]) == term:
            n += 1
            start = end
        else:
            start += 1
    return n


def has_all(hypothesis: Hypothesis, terms: Terms, inside_words: Tokens) -> bool:
    """Whether a hypothesis has each term as often as it is listed, as a whole word."""
    constraint = Constraint(terms, inside_words)
    inside = set(constraint.inside_words)  # without those with which a term goes on
    has_each = [n_occurrences(hypothesis.tokens, term, inside) >= terms.count(term) for term in terms]
    return all(has_each)


FIELDS: dict[str, st.SearchStrategy[Any]] = {  # of the options of a beam that holds everything
    "beam": st.just(400),
    "n_best": st.just(400),
    "alpha": st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    "min_length": st.integers(0, 3),
    "max_length_a": st.just(0),
    "max_length_b": st.sampled_from([2, 4]),
}
OPTIONS = st.builds(SearchOptions, **FIELDS)
SEEDS = st.integers(0, 10**6)
SAMPLED_TERMS = st.sampled_from(TERMS)
SAMPLED_INSIDE = st.sampled_from(INSIDE)


@given(SEEDS, SAMPLED_TERMS, SAMPLED_INSIDE, OPTIONS)
@settings(max_examples=40)
def test_a_beam_that_holds_everything_is_brute_force(
    seed: int, terms: Terms, inside: Tokens, options: SearchOptions
) -> None:
    """Terms raise the limit of the options so far that they fit; a sentence beside has none."""
    table = random_table(seed)
    constraints = [Constraint(terms, inside), Constraint()]
    src = sources((A, B), (C,))
    constrained, free = search(TableModel(table), src, options, constraints=constraints)
    n_required = sum(map(len, terms))
    possible = all_hypotheses(table, (A, B, EOS), options, n_required)
    # Of all sequences, those with the terms.
    expected = [hypothesis for hypothesis in possible if has_all(hypothesis, terms, inside)]
    assert_equal(constrained, expected)
    assert_equal(free, all_hypotheses(table, (C, EOS), options))


def assert_equal(hypotheses: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    for hypothesis, same in zip(hypotheses, expected, strict=True):
        assert hypothesis.tokens == same.tokens
        assert hypothesis.score == pytest.approx(same.score)
        assert hypothesis.log_probs == pytest.approx(same.log_probs)


WORD = st.sampled_from([A, B, C])
LISTS = st.lists(WORD, min_size=1, max_size=4)
WORDS = LISTS.map(tuple)
SEVERAL = st.lists(WORDS, max_size=4).map(tuple)
BEAMS = st.integers(1, 5)
LIMITS = st.integers(1, 9)


@given(SEEDS, BEAMS, LIMITS, SEVERAL, WORDS, WORDS)
@settings(max_examples=50)
def test_every_translation_has_all_terms(
    seed: int, beam: int, limit: int, terms: Terms, prefix: Tokens, inside: Tokens
) -> None:
    """Also terms that overlap, with a prefix, and when there is no room for anything else."""
    options = SearchOptions(beam=beam, n_best=beam, max_length_a=0, max_length_b=limit)
    constraint = Constraint(terms, inside)
    model = TableModel(random_table(seed))
    (n_best,) = search(model, sources((A,)), options, constraints=[constraint], prefixes=[prefix])
    assert n_best
    for hypothesis in n_best:
        assert has_all(hypothesis, terms, inside)
        beginning = hypothesis.tokens[: len(prefix)]
        assert tuple(beginning) == prefix
