"""Where a training stands, as every checkpoint saves it, and the limits of its length."""

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, NonNegativeInt

from nmt.config import TrainSettings


def is_validation(line: dict[str, Any]) -> bool:
    """Whether a metrics line has the figures of a validation that are compared."""
    return all(isinstance(line.get(name), int | float) for name in ("step", "dev_loss", "dev_nll", "dev_bleu"))


def checked(line: dict[str, Any]) -> dict[str, Any]:
    """The line itself. Raises ValueError if it is not the line of a validation."""
    if not is_validation(line):
        raise ValueError("a validation without its figures")
    return line


Figures = Annotated[dict[str, Any], AfterValidator(checked)]


@dataclass
class Progress:
    """Where a training stands; saved with every checkpoint."""

    step: NonNegativeInt = 0  # updates done
    epoch: NonNegativeInt = 0  # of the next micro-batch
    batch: NonNegativeInt = 0  # number of the next micro-batch in the epoch
    n_tokens: int = 0  # target tokens trained on
    elapsed_s: float = 0.0  # time trained, validations included
    best: float | None = None  # the best figure on dev; larger is better
    best_step: int = 0  # its step
    best_figures: Figures | None = None  # all figures of the model in the model file; older versions saved None
    n_worse: int = 0  # validations since the best one
    n_skipped: int = 0  # consecutive steps without a finite gradient
    n_rollbacks: int = 0  # each lowers the learning rate
    n_ranks: int = 1  # processes or threads that shared the last step; each has its own dropout
    max_positions: NonNegativeInt = 0  # limit of a micro-batch, set after running out of memory; 0 for none
    bf16: bool = False  # the precision chosen at the start; a resumed run keeps it
    finished_at: int = -1  # the step at which the last validation and the average were done; -1 before
    history: list[Figures] = field(default_factory=list)  # of every validation

    def is_validated(self) -> bool:
        """Whether there was a validation at this step."""
        return bool(self.history) and self.history[-1]["step"] == self.step


class Limit(NamedTuple):
    """A limit that is set."""

    key: str  # of the setting
    most: float  # its value
    share: float  # how much of it is used, 0-1; 1 ends the training
    text: str  # "3 of 12 steps"


def limits(settings: TrainSettings, progress: Progress, n_batches: int) -> list[Limit]:
    """The limits of steps, epochs (of about `n_batches`) and minutes that are set; patience is not one of them."""
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
    """A message: which limits have ended a training, and how far it has come towards the others."""
    found = limits(settings, progress, n_batches)
    reached = {limit.key: limit.most for limit in found if limit.share >= 1}
    if out_of_patience(settings, progress):
        reached["train.patience"] = settings.patience or 0
    others = " and ".join(f"{limit.text} ({limit.key})" for limit in found if limit.share < 1)
    return (
        f"ended by {' and '.join(f'{key}={most}' for key, most in reached.items())}"
        f"{' at ' if others else ''}{others}: raise {' and '.join(reached)} to go on"
    )
