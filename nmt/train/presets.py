"""Presets: settings that a config leaves out, chosen for its training pairs by the rules of `nmt init`."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from nmt.config import Config
from nmt.corpus.init import N_HEADS, Plan, sizes_for
from nmt.corpus.split import Facts
from nmt.errors import ConfigError

ADAMW_LR = 2e-3  # the highest rate with optimizer=adamw
SLACK = 1.5  # slope of the length limit divided by the usual ratio of lengths
MIN_ROOM = 10  # least intercept of the length limit, tokens
MARGIN = 5  # tokens by which a translation may exceed what the training pairs need
OUTLIERS = 100_000  # of so many pairs, one may be longer than the limit
MAX_SLOPE, MAX_INTERCEPT = 100.0, 100_000  # the largest values of the settings


def fit_config(config: Config, n_pairs: int, n_words: int, n_characters: int) -> Config:
    """Return the config with unset sizes chosen for this many pairs, words of the target side, and characters."""
    facts = Facts(n_pairs, 0, 0, 0, 0, n_words, n_characters, letter_overlap=float(config.tokenizer.joint))
    size = sizes_for(n_pairs)[0]
    plan, train = Plan(facts, size, None), config.train
    lr = min(size.lr, ADAMW_LR) if train.optimizer == "adamw" else size.lr
    fitted: dict[str, dict[str, Any]] = {
        "tokenizer": {"vocab_size": plan.vocab_size},
        "model": {"d_model": size.d_model, "d_ff": size.d_ff, "n_heads": N_HEADS, "dropout": plan.dropout}
        | dict.fromkeys(("n_encoder_layers", "n_decoder_layers"), size.n_layers),
        "train": {"batch_tokens": plan.batch_tokens, "lr": lr, "warmup": plan.warmup},
    }
    if train.max_steps is None and train.max_epochs is None and train.max_minutes is None:
        fitted["train"]["max_epochs"] = plan.n_epochs
    return with_unset(config, fitted)


def fit_validation(config: Config, steps_per_epoch: int) -> Config:
    """Return the config. If validate_every is unset, it becomes one epoch, within 100 to 4000 steps."""
    return with_unset(config, {"train": {"validate_every": min(max(steps_per_epoch, 100), 4000)}})


def fit_limit(
    config: Config,
    n_source: NDArray[Any],
    n_target: NDArray[Any],
    corpora: Sequence[tuple[int, int]],
    base: Config | None,
) -> Config:
    """Return the config. If the maximum output length ⌈a·S⌉ + b is unset, it is fitted to the training pairs.

    The slope a is 1.5 times the ratio of all target to all source tokens, and at least 1.5; of several corpora, which
    may be of several languages, the greatest ratio counts. The intercept b is the least with which all references can
    be written, and some tokens more, because new text may be a little longer than any that was seen.

    A limit costs time only where a model does not end a translation by itself. But then it costs much: one misaligned
    pair of 20 and 180 pieces would let every such translation go on for 150 steps more. So in a corpus of 100,000 pairs
    or more, one reference in 100,000 may exceed the limit: so few are more often misaligned than right. They stay in
    the training data.

    Args:
        n_source, n_target: (n,) pieces of the training pairs, without EOS.
        corpora: the first pair of each training corpus, and the one after its last.
        base: the config of the model from which training starts, whose limit is the least for this one.
    """
    n_source, n_target = n_source + 1, n_target + 1  # EOS counts on both sides
    ratio = 1.0
    for start, end in corpora:
        if start < end:
            ratio = max(ratio, float(n_target[start:end].sum() / n_source[start:end].sum()))
    slope = min(math.ceil(100 * SLACK * ratio) / 100, MAX_SLOPE)
    least = base.decode.max_length_b if base else MIN_ROOM
    if base:
        slope = max(slope, base.decode.max_length_a)
    if "max_length_a" in config.decode.model_fields_set:
        slope = config.decode.max_length_a
    # Sort the tokens that each pair needs beyond the slope; the last are those of the outliers.
    needed = np.sort(n_target - np.ceil(slope * n_source))
    most = int(needed[-1 - len(needed) // OUTLIERS])
    intercept = min(max(most + MARGIN, least), MAX_INTERCEPT)
    return with_unset(config, {"decode": {"max_length_a": slope, "max_length_b": intercept}})


def with_unset(config: Config, values: dict[str, Any], *, what: str = "sizes chosen for this corpus") -> Config:
    """Return the config with these values for settings that the user did not set.

    Raises ConfigError if the result is invalid; its message describes the values by `what`.
    """
    tree = config.model_dump(exclude_unset=True)
    for section, settings in values.items():
        tree[section] = {**settings, **tree.get(section, {})}
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{what} do not fit: {message}", hint="set them all") from error
