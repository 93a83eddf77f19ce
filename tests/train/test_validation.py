"""Warnings about dev figures, only if the figures suggest that something is wrong."""

import pytest

from nmt.decode.confidence import Calibration
from nmt.evaluate import Score
from nmt.train.report import clock
from nmt.train.validation import Validation, warnings_about

SCORE = Score("BLEU", 10.0, None, None, "signature")


@pytest.mark.parametrize(
    ("losses", "repeated", "expected"),
    [
        ([3.0, 2.5, 2.0, 1.9], 0.01, ""),
        ([3.0], 0.9, ""),
        ([3.0, 2.9], 0.9, "90% of the dev lines are translated alike ('the the the')"),
        ([2.0, 1.5, 1.6, 1.7, 1.8], 0.0, "dev loss has risen three times running"),
        ([2.0, 1.5, 1.6, 1.7], 0.0, ""),
        ([9.0, 8.9, 8.95], 0.0, "hardly below chance (8.99)"),
        ([2.0, 3.0, 2.5, 2.6, 2.7], 0.0, ""),
        ([6.0] * 6, 0.0, "has not fallen in three validations"),
    ],
)
def test_advice(losses: list[float], repeated: float, expected: str) -> None:
    history = [{"step": 100 * i, "dev_nll": loss} for i, loss in enumerate(losses, 1)]
    latest = Validation(2.0, 1.9, SCORE, SCORE, [], ("the the the", repeated), Calibration())
    words = "\n".join(warnings_about(history, latest, 8000))
    assert expected in words
    assert bool(words) == bool(expected)


@pytest.mark.parametrize(("seconds", "text"), [(5.4, "5 s"), (65, "1 min 05 s"), (3600 + 120, "1 h 02 min")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
