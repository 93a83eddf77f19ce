"""How long translations usually are: the distribution of log(target length / source length), in characters."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_GROUPS = 14  # of pairs, by log2(source length * target length), because short texts vary more
MIN_IN_GROUP = 50
MIN_SPREAD = 0.16  # so that `pairs.FAR_OFF` spreads are at least a factor of 2.2
NORMAL = 1.4826  # standard deviation / median absolute deviation of a normal distribution


@dataclass(frozen=True, eq=False)
class Lengths:
    """Median and spread of log(target / source) for each group of lengths."""

    median: NDArray[np.float64]  # (N_GROUPS,)
    spread: NDArray[np.float64]

    def z(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.float32]:
        """How many standard deviations the target is too long (below 0: too short); NaN where a side is empty."""
        group, ratio = _features(source, target)
        z = (ratio - self.median[group]) / self.spread[group]
        return np.asarray(np.where((source == 0) | (target == 0), np.nan, z), np.float32)


def learn(source: NDArray[np.int64], target: NDArray[np.int64]) -> Lengths:
    """Learn the usual lengths from a sample of pairs, given the characters of their texts: (n,) each."""
    kept = (source > 0) & (target > 0)
    group, ratio = _features(source[kept], target[kept])
    median, spread = np.zeros(N_GROUPS), np.ones(N_GROUPS)
    usual = _robust(ratio)
    for i in range(N_GROUPS):
        in_group = ratio[group == i]
        median[i], spread[i] = _robust(in_group) if len(in_group) >= MIN_IN_GROUP else usual
    return Lengths(median, spread)


def _robust(values: NDArray[np.float64]) -> tuple[float, float]:
    if not len(values):
        return 0.0, 1.0
    median = float(np.median(values))
    return median, max(NORMAL * float(np.median(np.abs(values - median))), MIN_SPREAD)


def _features(source: NDArray[np.int64], target: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The group and log(target length / source length) of each pair."""
    left, right = np.log2(np.maximum(source, 1)), np.log2(np.maximum(target, 1))
    return np.minimum((left + right).astype(np.int64) // 2, N_GROUPS - 1), (right - left) * math.log(2)
