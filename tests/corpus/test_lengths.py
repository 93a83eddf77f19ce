"""Usual ratios of lengths."""

import numpy as np
import pytest

from nmt.corpus.lengths import learn_lengths


def test_ratios_are_measured_in_spreads_from_the_usual_one() -> None:
    # Translations are twice as long, with a standard deviation of a fifth.
    generator = np.random.default_rng(1)
    source = generator.integers(20, 60, 2000)
    noise = generator.normal(0, 0.2, 2000)
    target = (2 * source * np.exp(noise)).astype(np.int64)
    lengths = learn_lengths(source, target)
    target_lengths = np.array([80, 160, 40, 5])
    usual, long, short, empty = lengths.z(np.array([40, 40, 40, 0]), target_lengths)
    # Twice or half the usual length is log(2) / 0.2 = 3.5 standard deviations off.
    assert abs(usual) < 0.3
    assert 2.5 < long < 4.5
    assert -4.5 < short < -2.5
    assert np.isnan(empty)


@pytest.mark.parametrize("source", [[1, 0], [0]], ids=["two lines", "one line"])
def test_few_lines_are_enough_even_with_an_empty_text(source: list[int]) -> None:
    lengths = learn_lengths(np.array(source), np.array(source))
    ratio = lengths.z(np.array([3]), np.array([4]))
    assert np.isfinite(ratio)
