"""The rules of successive halving (Jamieson and Talwalkar 2016; Li et al. 2017, section 3).

They decide how long each candidate trains; `nmt.train.sweep` applies them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.config import Config
from nmt.errors import ConfigError

MIN_STEPS = 10  # minimum of the first rung, if the budget is in minutes
SET_BY_SWEEP = ("run", "train.max_", "train.metric", "data.dev")  # prefixes of keys that cannot be varied
Figures = dict[str, float]  # of a validation: dev_bleu, dev_nll


@dataclass(frozen=True)
class Candidate:
    settings: dict[str, str]  # the varied keys with their values, as text
    config: Config

    def __str__(self) -> str:
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        return " ".join(settings) or "the config as it is"


@dataclass(frozen=True)
class Budget:
    """How long a sweep trains; exactly one of minutes and steps is None."""

    minutes: float | None  # approximate duration of the whole sweep
    steps: int | None  # of the first rung

    def n_survivors(self, n_candidates: int) -> list[int]:
        """Return the number of candidates in each rung: half of those before, rounded down; the last is 1."""
        return [n_candidates >> rung for rung in range(n_candidates.bit_length())]


@dataclass(frozen=True)
class Standing:
    number: int  # of the candidate, from 1
    settings: dict[str, str]  # the varied ones
    steps: int  # at the end of its last rung
    figures: dict[int, Figures | None]  # best validation until the end of each rung; None: diverged
    run: str  # directory


def check_candidates(candidates: Sequence[Candidate]) -> None:
    """Raise ConfigError if a varied setting is set by the sweep itself or makes figures incomparable."""
    metric = candidates[0].config.train.metric
    for key in candidates[0].settings:
        if key.startswith(SET_BY_SWEEP):
            raise ConfigError(f"{key} cannot be varied in a sweep", hint="set it in the config, or leave it out")
        if metric == "loss" and key.startswith("tokenizer."):
            message = f"{key} changes what a piece is, so losses cannot be compared"
            raise ConfigError(message, hint="use train.metric=bleu")
        if key == "seed":
            raise ConfigError("seed is no setting to choose", hint="leave it out")


def first_rung(budget: Budget, sizes: Sequence[int], step_s: float, once_s: float) -> tuple[int, float]:
    """Return the steps of the first rung, and the approximate duration of the whole sweep in seconds.

    Rung k ends at 2^k times the steps of the first rung; its trainings continue those of the rung before.

    `sizes` are the numbers of candidates in each rung. `step_s` is the mean time of a step, with its share of
    validations, and `once_s` the fixed time of each training in each rung.
    """
    # Seconds of the whole sweep per step of the first rung. Rung k adds 2^(k-1) times the steps of the first.
    per_step_s = sizes[0] * step_s
    for rung, n_candidates in enumerate(sizes[1:]):
        per_step_s += n_candidates * step_s * 2**rung
    fixed_s = sum(sizes) * once_s
    if budget.minutes is None:
        assert budget.steps is not None
        return budget.steps, fixed_s + budget.steps * per_step_s
    first = int((60 * budget.minutes - fixed_s) / per_step_s)
    if first < MIN_STEPS:
        least = math.ceil((fixed_s + MIN_STEPS * per_step_s) / 60)
        message = f"{budget.minutes:g} minutes are too short for {sizes[0]} candidates"
        raise ConfigError(message, hint=f"give at least --minutes {least}, or fewer values")
    return first, fixed_s + first * per_step_s
