"""The progress of a training, which every checkpoint saves, and the limits on its length."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, NonNegativeInt, TypeAdapter, ValidationError

from nmt.config import TrainSettings
from nmt.errors import ModelError

OR_ANEW = "begin anew with --fresh (the old run is kept)"


def is_validation(line: dict[str, Any]) -> bool:
    """Return whether a line of metrics.jsonl has the dev figures by which models are compared."""
    values = [line.get(name) for name in ("step", "dev_loss", "dev_nll", "dev_bleu")]
    return all(isinstance(value, int | float) for value in values)


def ranking(line: Mapping[str, Any] | None, metric: str, loss: str = "dev_loss") -> tuple[float, ...]:
    """Return a sort key of a validation's figures; larger is better, None is the worst.

    Of equal BLEU scores, that with the lower loss is better: a new model has BLEU 0.00 for many validations while its
    loss falls.
    """
    if line is None:
        return (-math.inf, -math.inf)
    rank_by_loss = -float(line[loss])
    if metric == "loss":
        return (rank_by_loss,)
    return (float(line["dev_bleu"]), rank_by_loss)


def checked(line: dict[str, Any]) -> dict[str, Any]:
    """Return the line unchanged. Raises ValueError if it lacks the figures of a validation."""
    if not is_validation(line):
        raise ValueError("a validation without its figures")
    return line


Figures = Annotated[dict[str, Any], AfterValidator(checked)]


@dataclass
class Progress:
    """The progress of a training; saved with every checkpoint."""

    step: NonNegativeInt = 0  # steps done, including skipped ones
    epoch: NonNegativeInt = 0  # epoch of the next micro-batch
    batch: NonNegativeInt = 0  # number of the next micro-batch in the epoch
    n_tokens: int = 0  # target tokens trained on
    elapsed_s: float = 0.0  # seconds of training, validations included
    best: float | None = None  # best value of the metric on dev; larger is better, so a loss is negated
    best_step: int = 0  # step of the best model
    best_figures: Figures | None = None  # all figures of the model in the model file
    n_worse: int = 0  # validations since the best one
    n_skipped: int = 0  # consecutive steps without a finite gradient
    n_rollbacks: int = 0  # each lowers the learning rate
    n_ranks: int = 1  # ranks or replicas that shared the last step; each has its own dropout
    max_positions: NonNegativeInt = 0  # limit of a micro-batch, set after running out of memory; 0 for none
    bf16: bool = False  # the precision chosen at the start; a resumed run keeps it
    n_snapshots: NonNegativeInt = 0  # snapshots that were due when the last one was written
    finished_at: int = -1  # step at which `finish` did the last validation; -1 before
    history: list[Figures] = field(default_factory=list)  # figures of every validation

    def is_validated(self) -> bool:
        """Return whether there was a validation at this step."""
        if not self.history:
            return False
        return bool(self.history[-1]["step"] == self.step)


def parse_progress(saved: dict[str, Any], file: Path) -> Progress:
    """Return the progress that a checkpoint has saved. Raises ModelError if it lacks values or has others."""
    try:
        return TypeAdapter(Progress).validate_python(saved)
    except ValidationError as error:
        raise ModelError(f"{file} does not say where training stands", hint=OR_ANEW) from error


class Limit(NamedTuple):
    """A limit on the length of training that is set in the config; training ends when one is used up."""

    name: str  # key of the setting
    used: float
    most: float  # value of the setting

    @property
    def share(self) -> float:
        return self.used / self.most


def limits(settings: TrainSettings, progress: Progress, n_batches: int) -> list[Limit]:
    """Return the limits that are set: steps, epochs of about `n_batches` batches, minutes, worse validations."""
    # n_batches is an estimate; the epoch ends with its last batch.
    part_of_epoch = min(progress.batch / n_batches, 1 - 1e-9)
    used = {
        "max_steps": progress.step,
        "max_epochs": progress.epoch + part_of_epoch,
        "max_minutes": progress.elapsed_s / 60,
        "patience": progress.n_worse,
    }
    limits = []
    for name, n in used.items():
        most = getattr(settings, name)
        if most is not None:
            limits.append(Limit(name, n, most))
    return limits


def ending(settings: TrainSettings, progress: Progress, n_batches: int) -> str:
    """Return a message that names the limits that ended a training, and how far it came towards the other limits."""
    reached, names, shares = [], [], []
    for limit in limits(settings, progress, n_batches):
        name = f"train.{limit.name}"
        if limit.share >= 1:
            reached.append(f"{name}={limit.most}")
            names.append(name)
        else:
            shares.append(f"{name}: {round(limit.used, 1):,} of {limit.most:,}")
    ended_by = " and ".join(reached)
    if shares:
        ended_by += f" ({', '.join(shares)})"
    return f"ended by {ended_by}: raise {' and '.join(names)} to go on"
