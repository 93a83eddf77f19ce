"""Presets: settings that a config leaves out, chosen for its training pairs by the rules of `nmt init`."""

from typing import Any

from pydantic import ValidationError

from nmt.config import Config
from nmt.corpus.init import N_HEADS, Plan, sizes_for
from nmt.corpus.split import Facts
from nmt.errors import ConfigError

ADAMW_LR = 2e-3  # the highest rate with optimizer=adamw


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
