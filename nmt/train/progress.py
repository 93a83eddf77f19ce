"""The progress of a training, which every checkpoint saves, and the limits on its length."""

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, NonNegativeInt

from nmt.config import TrainSettings


def is_validation(line: dict[str, Any]) -> bool:
    """Whether a line of metrics.jsonl has the dev figures by which models are compared."""
    return all(isinstance(line.get(name), int | float) for name in ("step", "dev_loss", "dev_nll", "dev_bleu"))


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
    best_figures: Figures | None = None  # all figures of the model in the model file; older versions saved None
    n_worse: int = 0  # validations since the best one
    n_skipped: int = 0  # consecutive steps without a finite gradient
    n_rollbacks: int = 0  # each lowers the learning rate
    n_ranks: int = 1  # processes or threads that shared the last step; each has its own dropout
    max_positions: NonNegativeInt = 0  # limit of a micro-batch, set after running out of memory; 0 for none
    bf16: bool = False  # the precision chosen at the start; a resumed run keeps it
    finished_at: int = -1  # step at which `finish` did the last validation and the average; -1 before
    history: list[Figures] = field(default_factory=list)  # figures of every validation

    def is_validated(self) -> bool:
        """Whether there was a validation at this step."""
        return bool(self.history) and self.history[-1]["step"] == self.step


class Limit(NamedTuple):
    """A limit on the length of training that is set in the config."""

    key: str  # dotted key of the setting
    most: float  # its value
    share: float  # fraction of it that is used; from 1 on, training ends
    text: str  # "3 of 12 steps"


def limits(settings: TrainSettings, progress: Progress, n_batches: int) -> list[Limit]:
    """The limits on steps, epochs (of about `n_batches` batches) and minutes that are set; patience is not included."""
    found = []
    if most := settings.max_steps:
        found.append(Limit("train.max_steps", most, progress.step / most, f"{progress.step:,} of {most:,} steps"))
    if most := settings.max_epochs:
        epochs = progress.epoch + min(progress.batch / n_batches, 1.0)
        share = epochs / most
        if progress.epoch < most:  # n_batches is an estimate; the epoch ends with its last batch
            share = min(share, 1 - 1e-9)
        found.append(Limit("train.max_epochs", most, share, f"{epochs:.1f} of {most:,} epochs"))
    if minutes := settings.max_minutes:
        elapsed = progress.elapsed_s / 60
        found.append(Limit("train.max_minutes", minutes, elapsed / minutes, f"{elapsed:.1f} of {minutes:g} minutes"))
    return found


def out_of_patience(settings: TrainSettings, progress: Progress) -> bool:
    """Whether `patience` validations in a row were not the best."""
    return settings.patience is not None and progress.n_worse >= settings.patience


def ending(settings: TrainSettings, progress: Progress, n_batches: int) -> str:
    """A message that names the limits that ended a training, and how far it came towards the other limits."""
    found = limits(settings, progress, n_batches)
    reached = {limit.key: limit.most for limit in found if limit.share >= 1}
    if out_of_patience(settings, progress):
        reached["train.patience"] = settings.patience or 0
    others = " and ".join(f"{limit.text} ({limit.key})" for limit in found if limit.share < 1)
    return (
        f"ended by {' and '.join(f'{key}={most}' for key, most in reached.items())}"
        f"{' at ' if others else ''}{others}: raise {' and '.join(reached)} to go on"
    )
