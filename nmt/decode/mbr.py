"""Minimum Bayes risk decoding (Kumar and Byrne 2004; Eikema and Aziz 2020).

The best sample is the one most similar to the others: the expected utility of a sample is estimated by its mean score
with all other samples as references.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nmt.decode.options import Hypothesis


def by_expected_utility(
    samples: Sequence[Hypothesis], texts: Sequence[str], scores: NDArray[np.float64]
) -> list[Hypothesis]:
    """Rank N samples of a segment by expected utility, which becomes their score; break ties by log-probability.

    Of samples with the same text, only the most probable one is returned. `scores` are (N, N), of every text (row) with
    every text as its reference (column).
    """
    expected = (scores.sum(1) - scores.diagonal()) / max(len(samples) - 1, 1)  # a sample is not its own reference
    ranked = sorted(zip(texts, samples, expected, strict=True), key=lambda one: (-round(one[2], 9), -one[1].log_prob))
    best: dict[str, Hypothesis] = {}
    for text, sample, score in ranked:
        best.setdefault(text, replace(sample, score=float(score)))
    return list(best.values())
