"""Presets: settings that the user does not give are chosen by the number of training pairs."""

import math
from typing import Any

from pydantic import ValidationError

from nmt.config import Config
from nmt.errors import ConfigError

# (number of training pairs below which the preset applies, settings). The rates up to width 256 are Muon's: 8 epochs on
# the demo give dev BLEU 83 at 6e-3, and 19 at 2e-3. Two micro-batches per step, because the pairs of one micro-batch
# have similar lengths, and a step learns more from a mixture of lengths.
PRESETS: list[tuple[float, dict[str, Any]]] = [
    (500, {"vocab_size": 600, "d_model": 64, "d_ff": 256, "n_layers": 2, "n_heads": 4, "dropout": 0.0,
           "batch_tokens": 1024, "accumulate": 1, "lr": 4e-3, "warmup": 50, "max_epochs": 300}),
    (12_000, {"vocab_size": 1500, "d_model": 128, "d_ff": 512, "n_layers": 3, "n_heads": 4, "dropout": 0.1,
              "batch_tokens": 1024, "accumulate": 2, "lr": 6e-3, "warmup": 300, "max_epochs": 60}),
    (100_000, {"vocab_size": 8000, "d_model": 256, "d_ff": 1024, "n_layers": 3, "n_heads": 4, "dropout": 0.3,
               "batch_tokens": 2048, "accumulate": 2, "lr": 4e-3, "warmup": 800, "max_epochs": 40}),
    (1_000_000, {"vocab_size": 16_000, "d_model": 512, "d_ff": 1024, "n_layers": 6, "n_heads": 4, "dropout": 0.3,
                 "batch_tokens": 4096, "accumulate": 2, "lr": 7e-4, "warmup": 4000, "max_epochs": 30}),
    (math.inf, {"vocab_size": 32_000, "d_model": 512, "d_ff": 2048, "n_layers": 6, "n_heads": 8, "dropout": 0.1,
                "batch_tokens": 8192, "accumulate": 2, "lr": 7e-4, "warmup": 4000, "max_epochs": 10}),
]  # fmt: skip
ADAMW_LR = 2e-3  # the highest rate with optimizer=adamw


def fit_config(config: Config, n_pairs: int, n_characters: int = 0) -> Config:
    """Return the config with unset sizes chosen for `n_pairs` pairs and an alphabet of `n_characters`."""
    preset = next(values for bound, values in PRESETS if n_pairs < bound)
    fitted: dict[str, dict[str, Any]] = {
        "tokenizer": {"vocab_size": max(preset["vocab_size"], n_characters + preset["vocab_size"] // 2)},
        "model": {key: preset[key] for key in ("d_model", "d_ff", "n_heads", "dropout")}
        | dict.fromkeys(("n_encoder_layers", "n_decoder_layers"), preset["n_layers"]),
        "train": {key: preset[key] for key in ("batch_tokens", "lr", "warmup")},
    }
    train = config.train
    if train.optimizer == "adamw":
        fitted["train"]["lr"] = min(preset["lr"], ADAMW_LR)
    if "batch_tokens" not in train.model_fields_set:  # if the user sets it, a step has one batch by default
        fitted["train"]["accumulate"] = preset["accumulate"]
    if train.max_steps is None and train.max_epochs is None and train.max_minutes is None:
        fitted["train"]["max_epochs"] = preset["max_epochs"]
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
