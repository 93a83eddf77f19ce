"""Usual ratios of lengths."""

import numpy as np

from nmt.corpus import lengths


def test_ratios_are_measured_in_spreads_from_the_usual_one() -> None:
    rng = np.random.default_rng(1)
    source = rng.integers(20, 60, 2000)
    target = (2 * source * np.exp(rng.normal(0, 0.2, 2000))).astype(np.int64)
    learnt = lengths.learn(source, target)
    z = learnt.z(np.array([40, 40, 40, 0]), np.array([80, 160, 40, 5]))
    assert abs(z[0]) < 0.3
    assert 2.5 < z[1] < 4.5
    assert -4.5 < z[2] < -2.5
    assert np.isnan(z[3])


def test_few_lines_are_enough() -> None:
    learnt = lengths.learn(np.array([1, 0]), np.array([1, 1]))
    assert np.isfinite(learnt.z(np.array([3]), np.array([4]))).all()
    assert np.isfinite(
        lengths.learn(np.zeros(1, np.int64), np.zeros(1, np.int64)).z(np.array([3]), np.array([4]))
    ).all()
