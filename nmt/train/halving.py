"""The rules of successive halving (Jamieson and Talwalkar 2016; Li et al. 2017, section 3).

The rules decide how many steps each candidate trains. `nmt.train.sweep` runs the trainings.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.config import Config
from nmt.errors import ConfigError

MIN_STEPS = 10  # minimum number of steps of the first rung, if the budget is in minutes
SET_BY_SWEEP = ("run", "train.max_", "train.metric", "data.dev")  # prefixes of settings that a sweep cannot vary
Figures = dict[str, float]  # figures of a validation, with the keys dev_bleu and dev_nll


@dataclass(frozen=True)
class Candidate:
    """A combination of values of the varied settings, and the config that has these values."""

    settings: dict[str, str]  # values of the settings that the sweep varies, by dotted key
    config: Config

    def __str__(self) -> str:
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        return " ".join(settings) or "the config as it is"


@dataclass(frozen=True)
class Budget:
    """The limit on the length of a sweep, either in minutes or in steps. One of the two fields is None."""

    minutes: float | None  # approximate duration of the whole sweep
    steps: int | None  # number of steps of the first rung

    def n_survivors(self, n_candidates: int) -> list[int]:
        """Return the number of candidates in each rung.

        Each rung has half as many candidates as the rung before, rounded down. The last rung has one candidate.
        """
        return [n_candidates >> rung for rung in range(n_candidates.bit_length())]


@dataclass(frozen=True)
class Standing:
    """The result of a candidate: for how many steps the candidate was trained, and the figures of its validations."""

    number: int  # number of the candidate, from 1
    settings: dict[str, str]  # values of the settings that the sweep varies, by dotted key
    steps: int  # number of steps at the end of the last rung that the candidate has reached
    # By the number of steps at the end of a rung: figures of the best validation so far, or None if training diverged.
    figures: dict[int, Figures | None]
    run: str  # path of the run directory


def check_candidates(candidates: Sequence[Candidate]) -> None:
    """Raise ConfigError if the sweep varies a setting that a sweep cannot vary.

    These are settings that the sweep sets itself, settings on which the meaning of the figures depends, and the seed.
    """
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
    """Return the number of steps of the first rung, and the approximate duration of the whole sweep in seconds.

    Each rung continues the trainings of the better candidates of the previous rung, to twice as many steps.

    Args:
        sizes: the number of candidates in each rung.
        step_s: mean time of a step in seconds, including a share of the time of validations.
        once_s: fixed time in seconds of each training in each rung, such as its preparation.
    Raises:
        ConfigError: the budget in minutes does not suffice for `MIN_STEPS` steps.
    """
    # Compute how many seconds the whole sweep takes for each step of the first rung. Rung k, counted from 0, ends at
    # 2^k times the steps of the first rung. So rung k trains 2^(k-1) times these steps if k is at least 1.
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
