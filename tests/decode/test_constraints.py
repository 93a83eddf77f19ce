"""Search for translations that contain terms, compared with brute force; every translation has all terms."""

import itertools
import math
import re
from collections.abc import Collection
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import FAMILY, Table, TableModel, make, name, sources
from test_search import A, B, C, random_table

from nmt.decode.constraints import Constraint
from nmt.decode.options import Hypothesis, SearchOptions
from nmt.decode.search import search
from nmt.model.incremental import incremental_decoder
from nmt.text import BOS, EOS

TERMS = [(), ((A,),), ((A, B),), ((A, A, B),), ((A, B), (C,)), ((A,), (A,)), ((A, B, A), (A, B, A)), ((A, A), (B,))]
Terms = tuple[tuple[int, ...], ...]


def has_all(tokens: list[int], terms: Terms, inside_words: Collection[int] = ()) -> bool:
    """Whether tokens have each term as often as it is listed, and no token inside of a word behind it."""
    behind = "".join(str(ord(one)) for one in Constraint(terms, inside_words).inside_words)
    patterns = ["".join(map(str, term)) + (f"(?![{behind}])" if behind else "") for term in terms]
    return all(len(re.findall(one, "".join(map(str, tokens)))) >= patterns.count(one) for one in patterns)


def brute_force(table: Table, source: tuple[int, ...], options: SearchOptions, *constraint: Any) -> list[Hypothesis]:
    """Every sequence that has all terms, scored by the definition, best first."""
    found = []
    for n_words in range(options.limit(len(source), sum(map(len, constraint[0])))):
        for words in itertools.product((A, B, C), repeat=n_words):
            ids = [*words, EOS]
            log_probs = [math.log(table(source, tuple(ids[:t]))[ids[t]]) for t in range(len(ids))]
            if has_all(ids, *constraint):
                found.append(Hypothesis(ids, log_probs, sum(log_probs) / options.length_divisor(len(ids))))
    return sorted(found, key=lambda h: -h.score)


@given(st.integers(0, 10**6), st.sampled_from(TERMS), st.sampled_from([(), (B,), (B, C)]), st.sampled_from([2, 4]))
@settings(max_examples=40)
def test_a_beam_that_holds_everything_is_brute_force(
    seed: int, terms: Terms, inside: tuple[int, ...], limit: int
) -> None:
    """Terms raise the limit of the options so far that they fit."""
    options = SearchOptions(beam=400, n_best=400, max_length_a=0, max_length_b=limit, min_length=0)
    table, rows = random_table(seed), [(A, B), (C,)]
    found = search(TableModel(table), sources(*rows), options, constraints=[Constraint(terms, inside), Constraint()])
    for one, row, constraint in zip(found, rows, [(terms, inside), ((),)], strict=True):
        expected = brute_force(table, (*row, EOS), options, *constraint)
        assert [h.tokens for h in one] == [h.tokens for h in expected]
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


@pytest.mark.parametrize("choices", FAMILY[::4], ids=name)
def test_score_is_teacher_forcings_and_neighbors_do_not_matter(choices: dict[str, Any]) -> None:
    """A sentence without terms gives what it gives in a batch without any."""
    options = SearchOptions(beam=4, n_best=4, max_length_a=1, max_length_b=3)
    model = make(**{**choices, "max_positions": 64}, scale=2.0)
    rows = [[5, 6, 7], [8, 9, 4, 4, 5, 6], [22], [10, 11]]
    terms = [Constraint([(5, 6), (7,)]), Constraint(), Constraint([(8, 9, 8)], [4, 5, 6]), Constraint()]
    with torch.no_grad():
        decoder = incremental_decoder(model)
        together = search(decoder, sources(*rows), options, constraints=terms)
        assert together[1::2] == search(decoder, sources(*rows), options)[1::2]
        for row, of_row, found in zip(rows, terms, together, strict=True):
            (alone,) = search(decoder, sources(row), options, constraints=[of_row])
            assert [h.tokens for h in alone] == [h.tokens for h in found]
            for hypothesis in found:
                log_probs = model(sources(row), torch.tensor([[BOS, *hypothesis.tokens[:-1]]])).log_softmax(-1)[0]
                forced = log_probs[range(len(hypothesis.tokens)), hypothesis.tokens].tolist()
                assert hypothesis.log_probs == pytest.approx(forced, abs=1e-9)
