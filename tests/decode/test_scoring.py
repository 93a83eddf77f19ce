"""Scores of given translations equal those of the search that found them, for any batch, segments and lengths."""

import math
from typing import Any

import pytest
import torch
from conftest import model_of
from models import FAMILY, LINES, name, small_translator, translator_without_bytes
from reference_model import ReferenceModel

from nmt.decode import scoring
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.decode.scoring import Candidates, score_lines, split_at_eos
from nmt.decode.translator import Translator
from nmt.text import BOS, EOS

# A line, its translation, and the pairs of text that they are scored as; at most 12 pieces are not cut.
SEGMENTED = [
    *((s, t, [(s, t)]) for s, t in (("a cat", "dogs play."), ("a cat", ""), ("", "a cat"), ("the Ω dog", "中 dog, Ω"))),
    ("the red dog. a cat sleeps.", "dogs.  Ω!", [("the red dog.", "dogs."), ("a cat sleeps.", "Ω!")]),
    ("the red dog. a cat sleeps.", "dogs, Ω!", [("the red dog. a cat sleeps.", "dogs, Ω!")]),
]


@pytest.mark.parametrize("choices", FAMILY, ids=name)
def test_scores_are_those_of_each_pair_alone_by_definition(choices: dict[str, Any]) -> None:
    translator = translator_without_bytes(**choices)
    reference, (source, target) = ReferenceModel(model_of(translator)), translator.tokenizers
    options = translator.with_options(alpha=0.6, length_penalty="gnmt")
    given = [Candidates(n, line, [translation]) for n, (line, translation, _) in enumerate(SEGMENTED, 1)]
    for found, (_, _, parts) in zip(score_lines(translator, given, options), SEGMENTED, strict=True):
        expected = [x for s, t in parts for x in reference.log_probs(source.encode(s), target.encode(t))]
        (hypothesis,) = found.hypotheses
        assert hypothesis.log_probs == pytest.approx(expected, abs=1e-9)
        assert hypothesis.score == pytest.approx(math.fsum(expected) / ((5 + len(expected)) / 6) ** 0.6, abs=1e-9)


def by_hand(translator: Translator, source: list[int], target: list[int]) -> list[float]:
    """Log-probabilities of the target tokens of one pair, by teacher forcing."""
    with torch.inference_mode():
        logits = model_of(translator)(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))
    log_probs = logits[0].log_softmax(-1)
    return [float(log_probs[t, token]) for t, token in enumerate([*target, EOS])]


@pytest.mark.parametrize("length_penalty", ["average", "gnmt"])
def test_hypotheses_of_a_search_keep_their_scores(length_penalty: str) -> None:
    translator = small_translator(max_length=8)  # so that the last line has several segments
    lines = [*LINES, "", "a cat! the dog. where is the red house? dogs play here, and cats."]
    options = translator.with_options(beam=4, n_best=4, length_penalty=length_penalty, alpha=0.7)
    found = list(translator.translate_lines(lines, options))
    assert sum(token == EOS for token in found[-1].hypotheses[0].tokens) > 1
    given = [Candidates(n, one.source, [h.tokens for h in one.hypotheses]) for n, one in enumerate(found, 1)]
    for scored, expected in zip(score_lines(translator, given, options), found, strict=True):
        assert scored.source == expected.source
        for own, other in zip(scored.hypotheses, expected.hypotheses, strict=True):
            assert (own.tokens, own.pieces, own.text) == (other.tokens, other.pieces, other.text)
            assert own.log_probs == pytest.approx(other.log_probs, abs=1e-9)
            assert own.score == pytest.approx(other.score, abs=1e-9)


def test_texts_are_scored_as_by_hand_in_any_window(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = small_translator()
    source, target = translator.tokenizers
    lines = [Candidates(n, line, [LINES[-n], "a cat"]) for n, line in enumerate(LINES, 1)]
    found = list(score_lines(translator, lines))
    for line, scored in zip(lines, found, strict=True):
        for text, hypothesis in zip(line.targets, scored.hypotheses, strict=True):
            assert isinstance(text, str)
            assert hypothesis.text == text
            expected = by_hand(translator, source.encode(line.source), target.encode(text))
            assert hypothesis.log_probs == pytest.approx(expected, abs=1e-9)
            assert hypothesis.tokens == [*target.encode(text), EOS]
    monkeypatch.setattr(scoring, "WINDOW", 2)
    for own, other in zip(score_lines(translator, iter(lines)), found, strict=True):
        assert own.hypotheses[0].log_prob == pytest.approx(other.hypotheses[0].log_prob, abs=1e-9)


def test_blank_lines() -> None:
    translator = small_translator()
    target = translator.tokenizers.target
    both, source_only, target_only = (
        found.hypotheses[0]
        for found in score_lines(
            translator, [Candidates(1, " ", [""]), Candidates(2, "a cat", [""]), Candidates(3, "", ["a cat"])]
        )
    )
    assert (both.log_probs, both.log_prob, both.score) == ([], 0.0, 0.0)
    assert source_only.log_probs == pytest.approx(by_hand(translator, target.encode("a cat"), []))
    assert target_only.log_probs == pytest.approx(by_hand(translator, [], target.encode("a cat")))
    assert list(score_lines(translator, [])) == []


def test_what_the_model_cannot_hold_is_not_scored(caplog: pytest.LogCaptureFixture) -> None:
    translator = small_translator()
    engine = translator.engine
    assert isinstance(engine, TorchEngine)
    engine.max_length = 16
    long = "the red dog runs " * 9
    lines = [Candidates(1, "a cat", [long]), Candidates(2, "a cat", ["a"]), Candidates(3, "a cat", [[7, EOS, 8, EOS]])]
    with caplog.at_level("WARNING", "nmt"):
        first, second, third = (found.hypotheses[0] for found in score_lines(translator, lines))
    assert math.isnan(first.log_prob)
    assert math.isnan(third.score)
    assert len(first.log_probs) == len(first.tokens) > 16
    assert second.log_prob < 0
    n_pieces = len(translator.tokenizers.target.encode(long))
    assert caplog.messages == [
        f"line 1 is not scored: {n_pieces} pieces, the model takes 15",
        "line 3 is not scored: the translation has 2 segments, its source 1",
    ]


def test_segments_end_in_eos() -> None:
    assert split_at_eos([5, EOS, 6, 7, EOS]) == [[5], [6, 7]]
    assert split_at_eos([5, 6]) == [[5, 6]]
    assert split_at_eos([EOS]) == [[]]
    assert split_at_eos([]) == []
