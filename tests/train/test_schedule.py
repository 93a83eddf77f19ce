"""Learning rates and prediction rates at points that are easy to compute by hand."""

import math

import pytest

from nmt.config import TrainSettings
from nmt.train.schedule import learning_rate, prediction_rate


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("inverse_sqrt", {1: 0.01, 100: 1.0, 400: 0.5}),
        ("constant", {50: 0.5, 4000: 1.0}),
        ("noam", {50: 64**-0.5 / 20, 100: 64**-0.5 / 10, 400: 64**-0.5 / 20}),
    ],
)
def test_schedules(schedule: str, rates: dict[int, float]) -> None:
    settings = TrainSettings.model_validate({"schedule": schedule, "lr": 1.0, "warmup": 100, "cooldown": 0})
    assert {step: learning_rate(settings, 64, step, 0.5) for step in rates} == pytest.approx(rates)


@pytest.mark.parametrize(("progress", "share"), [(0.0, 1), (0.8, 1), (0.9, 0.5), (1.0, 0), (1.1, 0)])
def test_cool_down_falls_to_zero_over_the_last_part(progress: float, share: float) -> None:
    settings = TrainSettings.model_validate({"schedule": "constant", "lr": 2.0, "warmup": 1, "cooldown": 0.2})
    assert math.isclose(learning_rate(settings, 64, 10, progress), 2.0 * share, abs_tol=1e-12)


@pytest.mark.parametrize(("decoder_input", "rate"), [("teacher_forcing", 0), ("scheduled_sampling", 0.8)])
def test_the_prediction_rate_rises_linearly_in_scheduled_sampling(decoder_input: str, rate: float) -> None:
    settings = TrainSettings.model_validate({"decoder_input": decoder_input, "sampling_rate": 0.8})
    found = [prediction_rate(settings, progress) for progress in (0.0, 0.25, 1.0)]
    assert found == pytest.approx([0, rate / 4, rate])
