"""Learning rates at points that are easy to compute by hand."""

import pytest

from nmt.config import TrainSettings
from nmt.train.schedule import learning_rate


def rates(schedule: str, *steps: int) -> list[float]:
    """Return learning rates of a width of 64, with a warm-up of 100 steps to 1."""
    settings = TrainSettings.model_validate({"schedule": schedule, "lr": 1.0, "warmup": 100, "cooldown": 0})
    return [learning_rate(settings, 64, step, spent=0.5) for step in steps]


def test_the_inverse_square_root() -> None:
    before, at, after = rates("inverse_sqrt", 1, 100, 400)
    assert before == pytest.approx(0.01)
    assert at == pytest.approx(1.0)
    assert after == pytest.approx(0.5)


def test_a_constant_rate() -> None:
    result = rates("constant", 50, 4000)
    assert result == pytest.approx([0.5, 1.0])


def test_noam_is_scaled_by_width_and_warmup() -> None:
    # Vaswani et al. 2017, equation 3: the peak is at the end of the warm-up.
    peak = 64**-0.5 / 10
    before, at, after = rates("noam", 50, 100, 400)
    assert at == pytest.approx(peak)
    assert before == pytest.approx(peak / 2)
    assert after == pytest.approx(peak / 2)


@pytest.mark.parametrize(("progress", "rate"), [(0.8, 2), (0.9, 1), (1.1, 0)])
def test_cool_down_falls_to_zero_over_the_last_part(progress: float, rate: float) -> None:
    settings = TrainSettings.model_validate({"schedule": "constant", "lr": 2.0, "warmup": 1, "cooldown": 0.2})
    found = learning_rate(settings, 64, 10, progress)
    assert found == pytest.approx(rate, abs=1e-12)
