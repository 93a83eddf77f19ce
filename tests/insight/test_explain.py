"""The explanation of a translation agrees with the translation."""

import math
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from conftest import SOURCE, TARGET, FiveRun
from models import RNNS, name, translator_without_bytes

import nmt
from nmt.decode.translator import Translator, load
from nmt.errors import ConfigError, InputError
from nmt.evaluate import sentence_bleu
from nmt.insight.explain import Explanation, explain, outline
from nmt.insight.heads import attention_summary
from nmt.text import EOS


@pytest.fixture(scope="module")
def translator(five_run: FiveRun) -> Translator:
    return load(five_run.run, engine="torch")


@pytest.fixture(scope="module")
def explanation(translator: Translator) -> Explanation:
    return explain(translator, SOURCE[0], reference=TARGET[1])


def test_the_translation_is_the_one_of_translate(translator: Translator, explanation: Explanation) -> None:
    (expected,) = translator.translate_lines([SOURCE[0]])
    best, found = expected.hypotheses[0], explanation.translation
    assert found.text == best.text == TARGET[0]
    assert [token.token for token in found.tokens] == best.tokens
    assert [token.log_prob for token in found.tokens] == pytest.approx(best.log_probs, abs=1e-4)
    assert (found.log_prob, found.score) == pytest.approx((best.log_prob, best.score), abs=1e-4)
    assert explanation.padding_mask == [True] * len(explanation.source_pieces) + [False] * 3
    assert explanation.heads == attention_summary(translator, [(SOURCE[0], TARGET[0])])
    for token in found.tokens:
        log_probs = [choice.log_prob for choice in token.alternatives]
        assert log_probs == sorted(log_probs, reverse=True)
        assert token.rank > len(log_probs) or token.alternatives[token.rank - 1].token == token.token


def test_the_tree_s_winner_is_the_translation(explanation: Explanation) -> None:
    path = [node for node in explanation.tree if node.is_best]
    assert [node.token for node in path] == [token.token for token in explanation.translation.tokens]
    assert path[-1].status == "finished"
    expected = explanation.translation.log_prob, explanation.translation.score
    assert (path[-1].log_prob, path[-1].score) == pytest.approx(expected, abs=1e-4)
    assert math.fsum(node.token_log_prob for node in path) == pytest.approx(path[-1].log_prob, abs=1e-4)
    assert {h.tokens[-1].token for h in explanation.hypotheses} == {EOS}


def test_the_reference_is_scored_by_teacher_forcing(translator: Translator, explanation: Explanation) -> None:
    reference = explanation.reference
    assert reference is not None
    (log_probs,) = translator.reference_log_probs([SOURCE[0]], [TARGET[1]])
    assert [token.log_prob for token in reference.tokens] == pytest.approx(log_probs, abs=1e-4)
    assert reference.first_difference == 0
    assert reference.bleu == pytest.approx(sentence_bleu(TARGET[0], TARGET[1]))
    same = explain(translator, SOURCE[0], reference=TARGET[0]).reference
    assert same is not None
    assert same.first_difference is None
    assert same.bleu == pytest.approx(100)


@pytest.mark.parametrize("choices", [RNNS[0], RNNS[2]], ids=name)
def test_recurrent_models_explain_the_parts_that_they_have(choices: dict[str, Any]) -> None:
    found = explain(translator_without_bytes(**choices), "a cat sleeps")
    assert len(found.attention.encoder) == len(found.attention.decoder) == 0
    assert len(found.attention.cross) == (choices["attention"] != "none")
    assert found.padding_mask == []
    assert choices["cell"].upper() in found.model
    cross = outline(translator_without_bytes(**choices), "a cat sleeps")["cross"]
    assert (cross is None) == (choices["attention"] == "none")


def test_what_cannot_be_explained_is_refused(translator: Translator, five_run: FiveRun) -> None:
    assert nmt.explain is explain
    assert explain(five_run.run, SOURCE[1], beam=1).translation.text == TARGET[1], "a path is loaded"
    with pytest.raises(InputError, match="is too long: the model takes"):
        explain(translator, "我 " * 500)
    with pytest.raises(ConfigError, match="beams"):
        explain(translator, SOURCE[0], beams=3)


@pytest.mark.parametrize("function", [explain, outline])
def test_an_explanation_can_be_ended_everywhere(translator: Translator, function: Callable[..., Any]) -> None:
    calls = count()
    function(translator, SOURCE[0], beam=3, check=lambda: next(calls))
    n_calls = next(calls)
    assert n_calls > len(TARGET[0].split())
    for last in range(n_calls):
        left = iter(range(last))
        with pytest.raises(StopIteration):
            function(translator, SOURCE[0], beam=3, check=lambda: next(left))  # noqa: B023
        assert not list(left)
