"""The progress of a training, which every checkpoint contains, and the limits of a training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, NonNegativeInt, TypeAdapter, ValidationError

from nmt.config import TrainSettings
from nmt.errors import ModelError

OR_ANEW = "begin anew with --fresh (the old run is kept)"


def is_validation(line: dict[str, Any]) -> bool:
    """Return whether a line of metrics.jsonl has the figures of a validation."""
    values = [line.get(name) for name in ("step", "dev_loss", "dev_nll", "dev_bleu")]
    return all(isinstance(value, int | float) for value in values)


def ranking(line: Mapping[str, Any] | None, metric: str) -> tuple[float, ...]:
    """Return a sort key for the figures of a validation. A larger key is better, and the key of None is the smallest.

    Equal BLEU scores are ranked by loss: in the first validations, BLEU is often 0.00.
    """
    if line is None:
        return (-math.inf, -math.inf)
    rank_by_loss = -line["dev_loss"]
    if metric == "loss":
        return (rank_by_loss,)
    return (line["dev_bleu"], rank_by_loss)


def checked(line: dict[str, Any]) -> dict[str, Any]:
    """Return the line. Raises ValueError if the line lacks the figures of a validation."""
    if not is_validation(line):
        raise ValueError("a validation without its figures")
    return line


Figures = Annotated[dict[str, Any], AfterValidator(checked)]


@dataclass
class Progress:
    """The progress of a training, which is part of every checkpoint."""

    step: NonNegativeInt = 0  # number of steps done, including skipped steps
    epoch: NonNegativeInt = 0  # epoch of the next micro-batch
    batch: NonNegativeInt = 0  # number of the next micro-batch in the epoch
    n_tokens: int = 0  # number of target tokens so far, without skipped steps
    elapsed_s: float = 0.0  # seconds of training, validations included
    best_figures: Figures | None = None  # item of `history` whose model is the best by train.metric
    n_worse: int = 0  # number of validations since the best validation
    n_skipped: int = 0  # number of skipped steps in a row until now
    n_ranks: int = 0  # number of processes that share a step: ranks times replicas; 0 before training
    max_positions: NonNegativeInt = 0  # maximum positions of a micro-batch, set after memory ran out; 0: no maximum
    bf16: bool = False  # whether matmuls run in bf16; a resumed run with train.precision=auto keeps this choice
    finished_at: int = -1  # step at which `Trainer.finish` was called; -1 before this call
    history: list[Figures] = field(default_factory=list)  # figures of all validations, oldest first

    def is_validated(self) -> bool:
        """Return whether the current step was validated."""
        return bool(self.history) and self.history[-1]["step"] == self.step


def parse_progress(saved: dict[str, Any], file: Path) -> Progress:
    """Return the progress that the checkpoint `file` contains. Raises ModelError if a value is invalid.

    A missing value gets the default of the field, and unknown values are ignored.
    """
    try:
        return TypeAdapter(Progress).validate_python(saved)
    except ValidationError as error:
        raise ModelError(f"{file} does not say where training stands", hint=OR_ANEW) from error


def used_limits(settings: TrainSettings, progress: Progress, n_batches: int) -> dict[str, float]:
    """Return the used fraction of each limit that is set. Keys are settings in `train`.

    There are limits on steps, epochs, minutes, and validations without a better model. Training ends when the first
    fraction reaches 1. An epoch has about `n_batches` batches.
    """
    # `n_batches` is an estimate, so `batch` may be larger. The part of an unfinished epoch stays below 1.
    part_of_epoch = min(progress.batch / n_batches, 1 - 1e-9)
    used: dict[str, float] = {
        "max_steps": progress.step,
        "max_epochs": progress.epoch + part_of_epoch,
        "max_minutes": progress.elapsed_s / 60,
        "patience": progress.n_worse,
    }
    most = settings.model_dump(include=set(used), exclude_none=True)
    return {name: used[name] / value for name, value in most.items()}


def ending(settings: TrainSettings, progress: Progress, n_batches: int) -> str:
    """Return a message that names the limits at which a training has ended."""
    reached = [name for name, share in used_limits(settings, progress, n_batches).items() if share >= 1]
    ended_by = " and ".join(f"train.{name}={getattr(settings, name)}" for name in reached)
    return f"ended by {ended_by}: raise the value to go on"
