"""The explanation of a translation agrees with the translation."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, model_of
from models import make, small_translator

import nmt
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.decode.translator import Translator, load
from nmt.errors import ConfigError, InputError
from nmt.evaluate import pairwise_scores
from nmt.insight.explain import Explanation, explain, outline
from nmt.insight.heads import attention_summary
from nmt.text import EOS


@pytest.fixture(scope="module")
def translator(five_run: FiveRun) -> Translator:
    return load(five_run.run, engine="torch")


@pytest.fixture(scope="module")
def explanation(translator: Translator) -> Explanation:
    return explain(translator, SOURCE[0], reference=TARGET[1], ablate=["cross.1.1", "cross.1.2"])


def test_the_translation_is_the_one_of_translate(translator: Translator, explanation: Explanation) -> None:
    (expected,) = translator.translate_lines([SOURCE[0]])
    best, found = expected.hypotheses[0], explanation.translation
    assert found.text == best.text == TARGET[0]
    assert [token.token for token in found.tokens] == best.tokens
    assert [token.log_prob for token in found.tokens] == pytest.approx(best.log_probs, abs=1e-4)
    assert found.log_prob == pytest.approx(best.log_prob, abs=1e-4)
    assert found.score == pytest.approx(best.score, abs=1e-4)
    assert math.fsum(token.log_prob for token in found.tokens) == pytest.approx(found.log_prob, abs=1e-4)
    assert explanation.heads == attention_summary(translator, [(SOURCE[0], TARGET[0])])
    for token in found.tokens:
        log_probs = [choice.log_prob for choice in token.alternatives]
        assert log_probs == sorted(log_probs, reverse=True)
        assert token.rank > len(log_probs) or token.alternatives[token.rank - 1].token == token.token


def test_attention_has_a_row_per_position_and_rows_sum_to_one(explanation: Explanation) -> None:
    n_source, n_target = len(explanation.source_pieces), len(explanation.target_pieces)
    assert explanation.source_pieces[-1] == explanation.target_pieces[-1] == "</s>"
    for weights, shape in zip(
        explanation.attention, [(n_source, n_source), (n_target, n_target), (n_target, n_source)], strict=True
    ):
        assert weights.shape[1] == 1
        assert weights.shape[-2:] == shape
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert explanation.padding_mask == [True] * n_source + [False] * 3


def test_the_tree_s_winner_is_the_translation(explanation: Explanation) -> None:
    path = [node for node in explanation.tree if node.is_best]
    assert [node.token for node in path] == [token.token for token in explanation.translation.tokens]
    assert path[-1].status == "finished"
    assert path[-1].log_prob == pytest.approx(explanation.translation.log_prob, abs=1e-4)
    assert path[-1].score == pytest.approx(explanation.translation.score, abs=1e-4)
    assert math.fsum(node.token_log_prob for node in path) == pytest.approx(path[-1].log_prob, abs=1e-4)
    finished = [node for node in explanation.tree if node.status == "finished"]
    assert {h.tokens[-1].token for h in explanation.hypotheses} == {EOS}
    assert len(finished) >= len(explanation.hypotheses)


def test_the_reference_is_scored_by_teacher_forcing(translator: Translator, explanation: Explanation) -> None:
    reference = explanation.reference
    assert reference is not None
    (log_probs,) = translator.reference_log_probs([SOURCE[0]], [TARGET[1]])
    assert [token.log_prob for token in reference.tokens] == pytest.approx(log_probs, abs=1e-4)
    assert reference.first_difference == 0
    assert reference.bleu == pytest.approx(pairwise_scores([TARGET[0], TARGET[1]], "bleu")[0, 1])
    same = explain(translator, SOURCE[0], reference=TARGET[0]).reference
    assert same is not None
    assert same.first_difference is None
    assert same.bleu == pytest.approx(100)


def test_one_pass_gives_other_tokens_than_step_by_step(explanation: Explanation) -> None:
    assert len(explanation.one_pass.tokens) == len(explanation.translation.tokens)
    assert explanation.one_pass.tokens[0].token == explanation.greedy.tokens[0].token, "BOS is true in both"
    assert explanation.one_pass.text != explanation.translation.text
    assert all(token.rank == 1 for token in explanation.one_pass.tokens)


def test_ablation_translates_without_the_heads(translator: Translator, explanation: Explanation) -> None:
    assert explanation.ablation is not None
    assert explanation.ablation.heads == ["cross.1.1", "cross.1.2"]
    assert explanation.ablation.translation.log_prob != pytest.approx(explanation.translation.log_prob, abs=1e-3)
    assert explanation.ablation.bleu is not None
    assert not any(module._forward_pre_hooks for module in model_of(translator).modules())
    with pytest.raises(InputError, match="no attention head"):
        explain(translator, SOURCE[0], ablate=["cross.9.9"])


@pytest.mark.parametrize("attention", ["none", "additive", "dot"])
def test_recurrent_models_explain_the_parts_that_they_have(attention: str) -> None:
    small = small_translator()
    n = len(small.tokenizers.target)
    model = make(3, n, n, architecture="rnn", cell="gru", attention=attention)
    found = explain(Translator(TorchEngine(model), small.tokenizers, small.config), "a cat sleeps")
    assert len(found.attention.encoder) == len(found.attention.decoder) == 0
    assert len(found.attention.cross) == (attention != "none")
    assert found.padding_mask == []
    assert "GRU" in found.model
    assert found.tree[-1].position == len(found.translation.tokens) or len(found.hypotheses) > 1


def test_what_cannot_be_explained_is_refused(translator: Translator, five_run: FiveRun) -> None:
    assert nmt.explain is explain
    assert explain(five_run.run, SOURCE[1], beam=1).translation.text == TARGET[1], "a path is loaded"
    for text, message in ((" ", "is blank"), ("我 " * 500, "is too long: the model takes")):
        with pytest.raises(InputError, match=message):
            explain(translator, text)
    with pytest.raises(ConfigError, match="beams"):
        explain(translator, SOURCE[0], beams=3)
    with pytest.raises(ConfigError, match="minimum Bayes risk is not one search"):
        explain(translator, SOURCE[0], mbr="chrf")
    with pytest.raises(InputError, match="an ensemble"):
        explain(load([five_run.run, five_run.run], engine="torch"), SOURCE[0])


@pytest.mark.parametrize("function", [explain, outline])
def test_an_explanation_can_be_ended_everywhere(translator: Translator, function: Callable[..., Any]) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == last:
            raise InterruptedError

    last = 0
    found = function(translator, SOURCE[0], beam=3, check=check)
    assert calls >= len(found.hypotheses[0].tokens) + len(found.hypotheses)
    for last in range(1, calls + 1):
        calls = 0
        with pytest.raises(InterruptedError):
            function(translator, SOURCE[0], beam=3, check=check)
        assert calls == last
