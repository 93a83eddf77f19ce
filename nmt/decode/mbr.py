"""Minimum Bayes risk: of many samples not the most probable one, but the one that is most like all the others.

The expected utility of a translation, which is estimated by the mean of its scores against the other samples as
references (Kumar and Byrne 2004; Eikema and Aziz 2020). Knows neither models nor how they are sampled.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nmt.decode.options import Hypothesis


def by_expected_utility(
    samples: Sequence[Hypothesis],
    texts: Sequence[str],
    utility: Callable[[Sequence[str]], NDArray[np.float64]],
) -> list[Hypothesis]:
    """The samples of one sentence, each text once, that of the greatest expected utility first.

    Of equals the more probable comes first; of samples with the same text the most probable stands for all.

    Args:
        samples: at least one.
        texts: of each.
        utility: of N texts (N, N): of each as hypothesis with each as reference.
    Returns:
        hypotheses whose score is their expected utility.
    """
    likeliest: dict[str, Hypothesis] = {}
    for text, sample in zip(texts, samples, strict=True):
        if text not in likeliest or sample.log_prob > likeliest[text].log_prob:
            likeliest[text] = sample
    scores, times = utility(list(likeliest)), Counter(texts)
    counts = np.array([times[text] for text in likeliest])
    n_others = max(len(samples) - 1, 1)
    expected = (scores @ counts - scores.diagonal()) / n_others  # no sample is its own reference
    ranked = [replace(h, score=float(u)) for h, u in zip(likeliest.values(), expected, strict=True)]
    return sorted(ranked, key=lambda h: (-round(h.score, 9), -h.log_prob))
