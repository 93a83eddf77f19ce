"""Confidences are calibrated, of the words of the text, and higher for more probable words."""

import math

import numpy as np
import pytest
from models import RNNS, small_translator, translator_without_bytes
from numpy.typing import ArrayLike

from nmt.text import EOS
from nmt.translate import confidence
from nmt.translate.confidence import Calibration, coverage, doubts, piece_spans, repeated, samples_of, words_of
from nmt.translate.translator import Translator
from nmt.translate.units import TextHypothesis, Translation

REPEATS = "repeats 'the dog the dog'"
TEXTS = ["a red cat,  dogs play.", "中 the 😀 dog's Ω", "dog"]


def hypothesis(translator: Translator, *texts: str, log_prob: float = -0.1) -> TextHypothesis:
    """A hypothesis of several segments."""
    tokens = [token for text in texts for token in [*translator.tokenizers.target.encode(text), EOS]]
    return TextHypothesis(tokens, [log_prob] * len(tokens), 0.0, [], translator.joiner.join(texts))


@pytest.mark.parametrize("texts", [TEXTS[:1], TEXTS])
def test_words_cover_the_text_and_have_the_probability_of_their_own_pieces(texts: list[str]) -> None:
    translator = small_translator()
    found = hypothesis(translator, *texts)
    words, spans = words_of(translator, found), piece_spans(translator, found)
    assert [word.text for word in words] == [found.text[word.start : word.end] for word in words] == found.text.split()
    found.log_probs[next(n for n, span in enumerate(spans) if span[1] > words[2].start)] = -3.0  # of the third word
    after = [word.confidence for word in words_of(translator, found)]
    assert [i for i, word in enumerate(words) if after[i] != word.confidence] == [2]
    at = words[2].start
    found.text = f"{found.text[:at]}{{name}} {found.text[at:]}"  # copied from the source, not written by a piece
    copied = [word.confidence for word in words_of(translator, found)]
    assert copied == pytest.approx([*after[:2], 1 - confidence.LEAST_P, *after[2:]])


def test_a_more_probable_word_has_no_lower_confidence() -> None:
    rising = np.linspace(-30, 0, 200)
    for calibration in (Calibration(), Calibration(0.7, 0.4, -0.1), Calibration.fit([(x, x, x < 0) for x in (-3, 2)])):
        found = [calibration.confidence(confidence.logit(x), confidence.logit(x)) for x in rising]
        assert found == sorted(found)
        assert 0 <= found[0] <= found[-1] <= 1


def calibration_error(confidences: ArrayLike, right: ArrayLike) -> float:
    """Expected calibration error: the mean over ten bins of |mean confidence - share right|, weighted by size."""
    p, y = np.asarray(confidences, np.float64), np.asarray(right, np.float64)
    bins = np.minimum((p * 10).astype(int), 9)
    return float(np.abs(np.bincount(bins, p - y, 10)).sum() / len(p))


def test_a_fit_halves_the_error_of_an_overconfident_model() -> None:
    draw = np.random.default_rng(1)
    logits = draw.normal(1, 2, (2, 5000))
    p = 1 / (1 + np.exp(-logits[0]))
    assert calibration_error(p, draw.random(5000) < p) < 0.02
    right = draw.random(5000) < 1 / (1 + np.exp(-(0.5 * logits[0] + 0.3 * logits[1] - 1)))
    assert calibration_error(p, right) > 0.2
    fitted = Calibration.fit(list(zip(*logits, right, strict=True)))
    assert fitted == pytest.approx((0.5, 0.3, -1.0), abs=0.1)
    assert calibration_error([fitted.confidence(*row) for row in logits.T], right) < 0.02


@pytest.mark.parametrize("rows", [[], [(13.0, 13.0, False)] * 5000, [(-13.0, -13.0, True)] * 5000, [(0, 0, True)]])
def test_a_fit_to_extreme_words_is_finite(rows: list[tuple[float, float, bool]]) -> None:
    assert all(map(math.isfinite, Calibration.fit(rows)))


@pytest.mark.parametrize("found", [None, 3, [1.0, 0.5], [1.0, 0.5, math.nan], [1e308, -1e308, 0.0]])
def test_a_model_without_a_calibration_takes_probabilities(found: object) -> None:
    for figures in ({"confidence": found}, [found], None):
        assert Calibration.of({"best_figures": figures}) == Calibration()


def test_a_word_is_right_as_often_as_the_reference_has_it() -> None:
    translator = small_translator()
    found = samples_of(translator, hypothesis(translator, "the dog, the cat the"), "the (cat) and the dog.")
    assert [right for *_, right in found] == [True, True, True, True, False]


def test_repetitions() -> None:
    texts = ["a b a b", "so so", "so so so", "a bb b", "谢谢", "好的好的好的"]
    assert [repeated(text) for text in texts] == ["a b a b", "", "so so so", "", "", "好的好的好的"]


def test_doubts_name_the_line_and_why(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    translator = small_translator()
    source = translator.tokenizers.source.encode("the red dog runs")
    line = Translation("the red dog runs", [hypothesis(translator, "the dog the dog")], 7, [source])
    n_source, n_target = len(source), len(line.hypotheses[0].tokens) - 1
    assert coverage(translator, line) <= 1
    weights = np.zeros((n_target, n_source), np.float32)
    weights[:, 0] = 0.5  # one piece of the source gets more than 1 in all, the others nothing
    monkeypatch.setattr(translator.engine, "attention", lambda source, target: [weights])  # noqa: ARG005
    assert coverage(translator, line) == pytest.approx(1 / n_source)
    with caplog.at_level("WARNING", "nmt"):
        found = doubts(translator, line, 1.0)
    confidence, *others = found
    assert confidence.startswith("confidence 0.")
    assert others == [f"attention covers {1 / n_source:.0%} of the source", REPEATS]
    assert doubts(translator, line, 0.0) == others
    assert caplog.messages[0] == f"line 7 is doubtful: {', '.join(found)}"
    line.source = "the dog the dog"
    assert REPEATS not in doubts(translator, line, 0.0)


def test_coverage_is_of_the_pieces_that_the_model_read() -> None:
    """With placeholders, these are the pieces of the masked line, not of a long web address."""
    translator = small_translator(placeholders=True)
    url = f"https://example.org/{'x' * 200}"
    (found,) = translator.translate_lines([f"dog {url}"], translator.with_options(beam=1))
    assert url in found.text
    (tokens,) = found.source_tokens
    assert 1 < len(tokens) < 12
    assert 0 <= coverage(translator, found) <= 1
    with pytest.MonkeyPatch.context() as patch:
        read: list[list[list[int]]] = []

        def attention(source: list[list[int]], _: object) -> list[np.ndarray]:
            read.append(source)
            return [np.ones((1, 1))]

        patch.setattr(translator.engine, "attention", attention)
        coverage(translator, found)
    assert read == [[tokens]]


def test_blank_lines_and_models_without_attention_have_no_coverage_to_doubt() -> None:
    translator = translator_without_bytes(**RNNS[0])
    assert coverage(translator, Translation("a cat", [hypothesis(translator, "dog")], 1, [[5, 6]])) == 1
    assert coverage(small_translator(), Translation("", [hypothesis(translator, "")])) == 1
    assert not doubts(translator, Translation("", [TextHypothesis([], [], 0.0, [], "")]), 1.0)
