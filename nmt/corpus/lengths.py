"""The usual lengths of translations: the distribution of log(target length / source length), in characters."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Number of groups. Pairs are grouped by the product of their lengths, since length ratios vary more in short texts.
N_GROUPS = 14
MIN_IN_GROUP = 50  # a group with fewer pairs gets the median and the spread of all pairs
# Minimum spread. With it, a length ratio of 2.2 times the usual one has the z-score `pairs.MAX_Z`.
MIN_SPREAD = 0.16
NORMAL = 1.4826  # in a normal distribution: standard deviation divided by median absolute deviation


@dataclass(frozen=True, eq=False)
class Lengths:
    """Median and spread of log(target length / source length) for each group of pairs."""

    median: NDArray[np.float64]  # shape (N_GROUPS,)
    spread: NDArray[np.float64]  # the same shape; estimates of the standard deviation

    def z(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the z-score of the length ratio of each pair.

        It is positive if the target is longer than usual, and NaN if a side is empty.
        """
        group, ratio = group_and_ratio(source, target)
        z = (ratio - self.median[group]) / self.spread[group]
        is_empty = (source == 0) | (target == 0)
        return np.where(is_empty, np.nan, z).astype(np.float32)


def learn_lengths(source: NDArray[np.int64], target: NDArray[np.int64]) -> Lengths:
    """Learn the usual length ratios from a sample of pairs.

    `source` and `target` are the lengths of the texts in characters, of shape (n,).
    """
    has_text = (source > 0) & (target > 0)
    group, ratio = group_and_ratio(source[has_text], target[has_text])
    median = np.zeros(N_GROUPS)
    spread = np.ones(N_GROUPS)
    for i in range(N_GROUPS):
        in_group = ratio[group == i]
        if len(in_group) < MIN_IN_GROUP:
            in_group = ratio
        if len(in_group):
            median[i] = np.median(in_group)
            deviation = np.median(np.abs(in_group - median[i]))
            spread[i] = max(NORMAL * deviation, MIN_SPREAD)
    return Lengths(median, spread)


def group_and_ratio(
    source: NDArray[np.int64], target: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the group and log(target length / source length) of each pair. An empty text counts as one character."""
    source_bits = np.log2(np.maximum(source, 1))
    target_bits = np.log2(np.maximum(target, 1))
    group = (source_bits + target_bits).astype(np.int64) // 2
    ratio = (target_bits - source_bits) * math.log(2)
    return np.minimum(group, N_GROUPS - 1), ratio
