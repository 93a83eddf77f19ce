"""Minimum Bayes risk decoding (Kumar and Byrne 2004; Eikema and Aziz 2020).

The best sample is the one most similar to the others: the expected utility of a sample is estimated by its mean score
with all other samples as references.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nmt.decode.options import Hypothesis


def by_expected_utility(
    samples: Sequence[Hypothesis], texts: Sequence[str], utility: Callable[[Sequence[str]], NDArray[np.float64]]
) -> list[Hypothesis]:
    """Rank the samples of a segment by expected utility, which becomes their score; break ties by log-probability.

    Of samples with the same text, only the most probable one is returned. `utility` scores N texts as hypotheses (rows)
    against the same texts as references (columns): (N, N).
    """
    most_probable: dict[str, Hypothesis] = {}
    for text, sample in zip(texts, samples, strict=True):
        if text not in most_probable or sample.log_prob > most_probable[text].log_prob:
            most_probable[text] = sample
    scores, n_samples = utility(list(most_probable)), Counter(texts)
    counts = np.array([n_samples[text] for text in most_probable])
    expected = (scores @ counts - scores.diagonal()) / max(len(samples) - 1, 1)  # a sample is not its own reference
    ranked = [replace(h, score=float(u)) for h, u in zip(most_probable.values(), expected, strict=True)]
    return sorted(ranked, key=lambda h: (-round(h.score, 9), -h.log_prob))
