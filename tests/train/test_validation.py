"""Warnings about dev figures, only if the figures suggest that something is wrong."""

from typing import Any

import pytest

from nmt.config import Config
from nmt.evaluate import Score
from nmt.text.lines import Pair
from nmt.train.report import clock
from nmt.train.validation import Validation, mean_score, scores_by_direction, warnings_about
from nmt.translate.confidence import Calibration

SCORE = Score("BLEU", 10.0, None, None, "signature")


def validation(repeated: float = 0.0) -> Validation:
    """Return a validation in which a share of the lines has the same translation."""
    return Validation(2.0, 1.9, SCORE, SCORE, [], ("the the the", repeated), Calibration())


def warnings_after(losses: list[float], repeated: float = 0.0, n_vocab: int = 8000) -> list[str]:
    """Return the warnings after validations with these losses, of a model that guesses at 8.99."""
    history: list[dict[str, Any]] = []
    for number, loss in enumerate(losses, 1):
        history.append({"step": 100 * number, "dev_nll": loss})
    return warnings_about(history, validation(repeated), n_vocab)


# Warnings, and losses after which they are given.
ADVICE = {
    "dev loss has risen three times running": [2.0, 1.5, 1.6, 1.7, 1.8],
    "dev loss is 8.95 after 300 steps, hardly below chance (8.99)": [9.0, 8.9, 8.95],
    "dev loss is 9.50 after 300 steps, above chance (8.99)": [9.3, 9.6, 9.5],
    "dev loss is 40000.00 after 100 steps, above chance (8.99): the training diverged": [40_000.0],
    "the training diverged; lower train.lr": [3.0, 2.5, 19.0],
    "dev loss is 9.60 after 300 steps, above chance (8.99): the training diverged": [3.0, 2.5, 9.6],
    "hardly below chance (8.99): the training diverged": [3.0, 2.5, 9.6, 9.1, 8.8],
    "dev loss is 9.40 after 300 steps, above chance (8.99): the training diverged": [50.0, 20.0, 9.4],
    "dev loss is 1.00e+09 after 100 steps": [1e9],
    "the model learns train by heart": [5.0, 7.0, 10.0, 14.0, 19.0],
}
# Losses that fall, rise twice only, or recover.
NOTHING_WRONG = [
    [3.0, 2.5, 2.0, 1.9],
    [2.0, 1.5, 1.6, 1.7],
    [3.0, 2.5, 9.6, 4.0],
    [5.0, 6.0, 8.9, 9.1, 9.0],
    [2.0, 3.0, 2.5, 2.6, 2.7],
]


@pytest.mark.parametrize("warning", ADVICE)
def test_what_is_wrong_is_told(warning: str) -> None:
    assert warning in "\n".join(warnings_after(ADVICE[warning]))


@pytest.mark.parametrize("losses", NOTHING_WRONG, ids=str)
def test_where_nothing_is_wrong_nothing_is_told(losses: list[float]) -> None:
    assert warnings_after(losses) == []


def test_equal_translations_are_told_after_the_first_validation() -> None:
    assert warnings_after([3.0], repeated=0.9) == []
    (warning,) = warnings_after([3.0, 2.9], repeated=0.9)
    assert warning.startswith("90% of the dev lines are translated alike ('the the the')")


def test_a_model_that_diverged_is_not_told_to_go_on() -> None:
    (warning,) = warnings_after([2.0, 3.0, 50.0, 60.0, 70.0, 80.0], n_vocab=100)
    assert "diverged" in warning


@pytest.mark.parametrize("target", ["tgt", "th"])
def test_the_references_pick_the_tokenizer(target: str) -> None:
    files = {"source": "t.en", "target": f"t.{target}"}
    config = Config.model_validate({"run": "run", "data": {"train": files}})
    dev = [Pair(1, "I am at home", "ฉันอยู่บ้าน")]
    scores = scores_by_direction(dev, ["ฉันอยู่บ้าน"], config)
    bleu, _ = scores[""]  # of the only direction
    assert "|tok:char|" in bleu.signature
    assert bleu.value == pytest.approx(100)


def bleu_of(value: float, signature: str) -> Score:
    return Score("BLEU", value, None, None, signature)


def test_the_mean_of_directions_has_all_signatures() -> None:
    scores = [bleu_of(10, "a"), bleu_of(20, "b"), bleu_of(60, "a")]
    assert mean_score(scores) == bleu_of(30, "a, b")


def test_clock() -> None:
    assert str(clock(3725.4)) == "1:02:05"
