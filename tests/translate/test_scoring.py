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

PAIRS = [("a cat", "dogs play."), ("a cat", ""), ("", "a cat"), ("the Ω dog", "中 dog, Ω"), (" ", "")]


@pytest.mark.parametrize("choices", FAMILY, ids=name)
def test_scores_are_those_of_each_pair_alone(choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "WINDOW", 2)
    translator = translator_without_bytes(**choices)
    model, (source, target) = model_of(translator), translator.tokenizers
    options = translator.with_options(alpha=0.6)
    given = [Pair(n, line, text) for n, (line, text) in enumerate(PAIRS, 1)]
    for found, (line, text) in zip(score_pairs(translator, given, options), PAIRS, strict=True):
        is_blank = not (line + text).strip()
        tokens = target.encode(text)
        with torch.no_grad():
            log_probs = model(pad_source([source.encode(line)]), torch.tensor([[BOS, *tokens]]))[0].log_softmax(-1)
        expected = [] if is_blank else log_probs[range(len(tokens) + 1), [*tokens, EOS]].tolist()
        (hypothesis,) = found.hypotheses
        assert (found.source, hypothesis.text) == (line, text)
        assert len(hypothesis.tokens) == len(hypothesis.pieces) == len(expected)
        assert hypothesis.log_probs == pytest.approx(expected, abs=1e-9)
        assert hypothesis.score == pytest.approx(math.fsum(expected) / max(len(expected), 1) ** 0.6, abs=1e-9)


def test_what_is_too_long_is_not_scored(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    translator = small_translator()
    long, fits = "the red dog runs " * 9, "the dog sleeps"
    n_pieces, limit = (len(translator.tokenizers.target.encode(text)) for text in (long, fits))
    monkeypatch.setattr(translator.engine, "max_length", limit + 1)
    pairs = [Pair(1, "a", long), Pair(2, "a", fits)]
    with caplog.at_level("WARNING", "nmt"):
        too_long, longest = (found.hypotheses[0] for found in score_pairs(translator, pairs, translator.options))
    assert math.isnan(too_long.log_prob)
    assert math.isnan(too_long.score)
    assert len(too_long.log_probs) == len(too_long.tokens) == n_pieces + 1
    assert longest.log_prob < 0
    assert caplog.messages == [f"line 1 is not scored: {n_pieces} pieces, the model takes {limit}"]
