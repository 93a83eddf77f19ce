"""Rules that choose unset settings of `decode` to suit the training pairs.

Functions that take a config return a new config.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config import Config
from nmt.text.sentences import learn_abbreviations, sentence_spans
from nmt.train.plan import with_unset

SLACK = 1.5  # the slope of the length limit is this multiple of the mean target length / source length
MIN_ROOM = 10  # minimum intercept of the length limit, in tokens
MARGIN = 5  # tokens added to the intercept, because new text may need more
OUTLIERS = 100_000  # one reference per this many training pairs may be longer than the limit
MAX_SLOPE, MAX_INTERCEPT = 100.0, 100_000  # largest valid `decode.max_length_a` and `decode.max_length_b`
OFTEN = 0.1  # `decode.whole_lines` is true if more than this share of the lines has several sentences


class PieceCounts(NamedTuple):
    """The lengths of the pairs of a training corpus, in pieces without EOS. One element per pair."""

    source: NDArray[Any]
    target: NDArray[Any]


def fit_limit(config: Config, corpora: Sequence[PieceCounts], base: Config | None) -> Config:
    """Fit the maximum output length to the training pairs, if it is unset. Return the new config.

    The maximum for S source tokens is ⌈a·S⌉ + b. The slope a is `SLACK` times the mean ratio of target tokens to source
    tokens, at least 1. With several corpora, the largest ratio is used. The intercept b is the smallest that suffices
    for the references, plus `MARGIN`.

    A high limit costs time, because some searches go on until the limit. So one reference per `OUTLIERS` pairs may
    exceed the limit. Most of these pairs are misaligned.

    `base` is the config of the model from which training starts. Slope and intercept are at least those of `base`.
    """
    # 1. Compute the slope. EOS counts on both sides.
    ratio = 1.0
    for corpus in corpora:
        if len(corpus.source):
            mean_ratio = (corpus.target + 1).sum() / (corpus.source + 1).sum()
            ratio = max(ratio, float(mean_ratio))
    slope = math.ceil(100 * SLACK * ratio) / 100
    slope = min(slope, MAX_SLOPE)
    least = MIN_ROOM
    if base:
        slope = max(slope, base.decode.max_length_a)
        least = base.decode.max_length_b
    if "max_length_a" in config.decode.model_fields_set:
        slope = config.decode.max_length_a

    # 2. Compute the intercept that each pair needs: target length - ⌈slope * source length⌉. Ignore the `n_outliers`
    # pairs that need the largest.
    source = np.concatenate([corpus.source for corpus in corpora]) + 1
    target = np.concatenate([corpus.target for corpus in corpora]) + 1
    sorted_needed = np.sort(target - np.ceil(slope * source))
    n_outliers = len(sorted_needed) // OUTLIERS
    most = int(sorted_needed[-1 - n_outliers])
    intercept = min(max(most + MARGIN, least), MAX_INTERCEPT)
    return with_unset(config, {"decode": {"max_length_a": slope, "max_length_b": intercept}})


def fit_sentences(config: Config, sources: Sequence[str]) -> Config:
    """Fit `decode.abbreviations` and `decode.whole_lines` to the source lines, if unset. Return the new config.

    A model that is trained on lines of several sentences learns to translate these sentences together. So it should
    translate whole lines. `sources` is a sample of the source lines.
    """
    config = with_unset(config, {"decode": {"abbreviations": learn_abbreviations(sources)}})
    has_several = [len(sentence_spans(line, config.decode.abbreviations)) > 1 for line in sources]
    whole_lines = sum(has_several) > OFTEN * len(sources)
    return with_unset(config, {"decode": {"whole_lines": whole_lines}})
