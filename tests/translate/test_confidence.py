"""Confidences are calibrated, of the words of the text, and higher for more probable words."""

import numpy as np
import pytest
from models import small_translator
from numpy.typing import ArrayLike, NDArray

from nmt.text import EOS
from nmt.text.sentences import join_sentences
from nmt.translate import confidence
from nmt.translate.confidence import (
    Calibration,
    Sample,
    find_doubts,
    repeated,
    samples_of,
    spans_of_pieces,
    words_of,
)
from nmt.translate.units import TextHypothesis, Translation

TRANSLATOR = small_translator()
TEXTS = ["a red cat,  dogs play.", "中 the 😀 dog's Ω", "dog"]


def hypothesis(*texts: str) -> TextHypothesis:
    """Return a hypothesis of several segments, whose pieces are all equally probable."""
    tokens = []
    for text in texts:
        tokens += [*TRANSLATOR.tokenizers.target.encode(text), EOS]
    log_probs = [-0.1] * len(tokens)
    return TextHypothesis(tokens, log_probs, 0.0, [], join_sentences(texts))


def confidences(hypothesis: TextHypothesis) -> list[float]:
    return [word.confidence for word in words_of(TRANSLATOR, hypothesis)]


# --- words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [TEXTS[:1], TEXTS])
def test_words_cover_the_text(texts: list[str]) -> None:
    of_texts = hypothesis(*texts)
    words = words_of(TRANSLATOR, of_texts)
    result = [word.text for word in words]
    assert result == of_texts.text.split()
    for word in words:
        assert of_texts.text[word.start : word.end] == word.text


@pytest.mark.parametrize("texts", [TEXTS[:1], TEXTS])
def test_words_have_the_probability_of_their_own_pieces(texts: list[str]) -> None:
    of_texts = hypothesis(*texts)
    third = words_of(TRANSLATOR, of_texts)[2]
    before = confidences(of_texts)
    # Make a piece of the third word less probable.
    for piece, (start, end) in enumerate(spans_of_pieces(TRANSLATOR, of_texts)):
        if start <= third.start < end:
            of_texts.log_probs[piece] = -3.0
    after = confidences(of_texts)
    assert after[2] < before[2]
    assert after[:2] == before[:2]
    assert after[3:] == before[3:]


def test_a_word_without_pieces_is_certain() -> None:
    """A placeholder is copied from the source, not written by a piece."""
    of_texts = hypothesis("a red cat")
    before = confidences(of_texts)
    of_texts.text = "a {name} red cat"
    after = confidences(of_texts)
    result = after.pop(1)
    assert result == pytest.approx(1 - confidence.LEAST_P)
    assert after == pytest.approx(before)


def test_a_word_is_right_as_often_as_the_reference_has_it() -> None:
    samples = samples_of(TRANSLATOR, hypothesis("the dog, the cat the"), "the (cat) and the dog.")
    result = [is_right for *_, is_right in samples]
    assert result == [True, True, True, True, False]


# --- calibration ------------------------------------------------------------------------------------------

FITTED = Calibration.fit([(-3, -3, True), (2, 2, False)])


@pytest.mark.parametrize("calibration", [Calibration(), Calibration(0.7, 0.4, -0.1), FITTED], ids=str)
def test_a_more_probable_word_has_no_lower_confidence(calibration: Calibration) -> None:
    rising = [confidence.logit(log_prob) for log_prob in np.linspace(-30, 0, 200)]
    values = [calibration.confidence(logit, logit) for logit in rising]
    assert values == sorted(values)
    assert values[0] >= 0
    assert values[-1] <= 1


def calibration_error(confidences: ArrayLike, right: ArrayLike) -> float:
    """Expected calibration error: the mean over ten bins of |mean confidence - share right|, weighted by size."""
    p = np.asarray(confidences, np.float64)
    y = np.asarray(right, np.float64)
    bins = np.minimum((p * 10).astype(int), 9)
    differences = np.bincount(bins, p - y, 10)
    return float(np.abs(differences).sum() / len(p))


def logistic(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-logits))


def test_a_fit_corrects_an_overconfident_model() -> None:
    random = np.random.default_rng(1)
    word, line = random.normal(1, 2, (2, 5000))
    p = logistic(word)
    result = calibration_error(p, random.random(5000) < p)
    assert result < 0.02
    # Words are right less often than their probabilities say.
    right = random.random(5000) < logistic(0.5 * word + 0.3 * line - 1)
    assert calibration_error(p, right) > 0.2
    fitted = Calibration.fit(list(zip(word, line, right, strict=True)))
    assert fitted == pytest.approx((0.5, 0.3, -1.0), abs=0.1)
    corrected = [fitted.confidence(*logits) for logits in zip(word, line, strict=True)]
    assert calibration_error(corrected, right) < 0.02


EXTREME: list[Sample] = [(13.0, 13.0, False), (-13.0, -13.0, True), (0, 0, True)]


@pytest.mark.parametrize("sample", EXTREME)
@pytest.mark.parametrize("n_samples", [0, 1, 5000])
def test_a_fit_to_extreme_words_is_finite(sample: Sample, n_samples: int) -> None:
    fitted = Calibration.fit([sample] * n_samples)
    assert np.isfinite(fitted).all()


@pytest.mark.parametrize("figures", [None, [3]], ids=str)
def test_a_model_without_a_calibration_takes_probabilities(figures: object) -> None:
    assert Calibration.of({"best_figures": figures}) == Calibration()


@pytest.mark.parametrize("damaged", [None, 3, [1.0, 0.5]], ids=str)
def test_a_damaged_calibration_is_ignored(damaged: object) -> None:
    result = Calibration.of({"best_figures": {"confidence": damaged}})
    assert result == Calibration()


# --- doubts -----------------------------------------------------------------------------------------------

REPETITIONS = [
    ("a b a b", "a b a b"),
    ("so so", ""),
    ("so so so", "so so so"),
    ("a bb b", ""),
    ("谢谢", ""),
    ("好的好的好的", "好的好的好的"),
]


@pytest.mark.parametrize(("text", "repetition"), REPETITIONS)
def test_repetitions(text: str, repetition: str) -> None:
    assert repeated(text) == repetition


REPEATS = "repeats 'the dog the dog'"


@pytest.fixture
def line() -> Translation:
    """A translation that repeats itself."""
    return Translation("the red dog runs", [hypothesis("the dog the dog")], 7)


def test_doubts_name_the_line_and_why(line: Translation, caplog: pytest.LogCaptureFixture) -> None:
    reasons = find_doubts(TRANSLATOR, line, 1.0, "a.txt: text")
    assert reasons[0].startswith("confidence 0.")
    assert reasons[1:] == [REPEATS]
    expected = f"a.txt: text 7 is doubtful: {', '.join(reasons)}: the red dog runs -> the dog the dog"
    assert caplog.messages == [expected]


def test_a_text_is_as_doubtful_as_its_worst_sentence(line: Translation) -> None:
    sure = Translation("a cat", [hypothesis("a cat")])
    whole = Translation("", [], parts=[sure, line])
    find_doubts(TRANSLATOR, whole, 0.0)
    assert (sure.doubts, line.doubts, whole.doubts) == ([], [REPEATS], [REPEATS])


def test_a_confident_line_may_still_be_doubtful(line: Translation) -> None:
    assert find_doubts(TRANSLATOR, line, 0.0) == [REPEATS]


def test_what_the_source_repeats_is_no_doubt(line: Translation) -> None:
    line.source = "der Hund der Hund"
    assert REPEATS not in find_doubts(TRANSLATOR, line, 0.0)


def test_a_blank_line_has_nothing_to_doubt() -> None:
    blank = Translation("", [TextHypothesis([], [], 0.0, [], "")])
    assert find_doubts(TRANSLATOR, blank, 1.0) == []
