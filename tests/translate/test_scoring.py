"""Scores of given translations are those of the model for each pair alone, in any window."""

import math
from typing import Any

import pytest
import torch
from conftest import model_of
from models import FAMILY, name, small_translator, translator_without_bytes

from nmt.text import BOS, EOS
from nmt.text.batches import pad_source
from nmt.text.lines import Pair
from nmt.translate import scoring
from nmt.translate.scoring import score_pairs
from nmt.translate.translator import Translator

PAIRS = [Pair(1, "a cat", ""), Pair(2, "", "a cat"), Pair(3, "the Ω dog", "中 dog, Ω")]


def forced_log_probs(translator: Translator, pair: Pair) -> list[float]:
    """The log-probabilities of a pair's target, and of EOS, in one pass of the model."""
    tokens = translator.tokenizers.target.encode(pair.target)
    source = translator.tokenizers.source.encode(pair.source)
    tgt_in = torch.tensor([[BOS, *tokens]])
    with torch.no_grad():
        logits = model_of(translator)(pad_source([source]), tgt_in)
    log_probs = logits[0].log_softmax(-1)  # (T + 1, V)
    forced: list[float] = log_probs[range(len(tokens) + 1), [*tokens, EOS]].tolist()
    return forced


@pytest.mark.parametrize("choices", FAMILY, ids=name)
def test_scores_are_those_of_each_pair_alone(choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "WINDOW", 2)
    translator = translator_without_bytes(**choices)
    options = translator.with_options(alpha=0.6)
    for translation, pair in zip(score_pairs(translator, PAIRS, options), PAIRS, strict=True):
        expected = forced_log_probs(translator, pair)
        (hypothesis,) = translation.hypotheses
        # The text is that of the pair, its tokens end in EOS.
        assert translation.source == pair.source
        assert hypothesis.text == pair.target
        assert len(hypothesis.tokens) == len(expected)
        assert len(hypothesis.pieces) == len(expected)
        assert hypothesis.log_probs == pytest.approx(expected, abs=1e-9)
        n = len(expected)
        score = math.fsum(expected) / n**0.6
        assert hypothesis.score == pytest.approx(score, abs=1e-9)


def test_a_blank_pair_has_no_tokens() -> None:
    translator = small_translator()
    (translation,) = score_pairs(translator, [Pair(1, " ", "")], translator.options)
    (hypothesis,) = translation.hypotheses
    assert hypothesis.tokens == []
    assert hypothesis.score == 0


def test_what_is_too_long_is_not_scored(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    translator = small_translator()
    pairs = [Pair(1, "a", "the red dog runs " * 9), Pair(2, "a", "the dog sleeps")]
    encode = translator.tokenizers.target.encode
    n_long, n_fitting = [len(encode(pair.target)) for pair in pairs]
    monkeypatch.setattr(translator.engine, "max_length", n_fitting + 1)
    long, fitting = score_pairs(translator, pairs, translator.options)
    (too_long,) = long.hypotheses
    assert math.isnan(too_long.log_prob)
    assert math.isnan(too_long.score)
    assert len(too_long.log_probs) == n_long + 1
    assert len(too_long.tokens) == n_long + 1
    assert fitting.hypotheses[0].log_prob < 0
    assert caplog.messages == [f"line 1 is not scored: {n_long} pieces, the model takes {n_fitting}"]
