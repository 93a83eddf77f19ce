"""Where a training stands, as every checkpoint saves it, and the limits of its length."""

import logging
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, NonNegativeInt

from nmt.config import TrainSettings
from nmt.text.batches import TrainingData

log = logging.getLogger("nmt")


def missing_figures(line: dict[str, Any]) -> list[str]:
    """The figures of a validation that a metrics line lacks."""
    return [n for n in ("step", "dev_loss", "dev_nll", "dev_bleu") if not isinstance(line.get(n), int | float)]


def checked(line: dict[str, Any]) -> dict[str, Any]:
    """The line itself, if it has all figures of a validation that are compared.

    Raises:
        ValueError: it lacks some.
    """
    if missing := missing_figures(line):
        raise ValueError(f"a validation without {', '.join(missing)}")
    return line


Figures = Annotated[dict[str, Any], AfterValidator(checked)]


@dataclass
class Progress:
    """Where a training stands; saved with every checkpoint.

    Attributes:
        step: updates done.
        epoch, batch: the next micro-batch.
        n_tokens: target tokens trained on.
        elapsed_s: time trained, validations included.
        best, best_step: the best figure on dev (larger is better), and its step.
        best_figures: all figures of that model, which is in the model file; None in checkpoints of older versions.
        n_worse: validations since then.
        n_skipped: consecutive steps without a finite gradient.
        n_rollbacks: each lowers the learning rate.
        n_ranks: processes or threads that shared the last step; each has its own dropout.
        max_positions: limit of a micro-batch, set after running out of memory; 0 for none.
        bf16: the precision chosen at the start; a resumed run keeps it.
        finished_at: the step at which the last validation and the average were done; -1 before.
        history: the figures of every validation.
    """

    step: NonNegativeInt = 0
    epoch: NonNegativeInt = 0
    batch: NonNegativeInt = 0
    n_tokens: int = 0
    elapsed_s: float = 0.0
    best: float | None = None
    best_step: int = 0
    best_figures: Figures | None = None
    n_worse: int = 0
    n_skipped: int = 0
    n_rollbacks: int = 0
    n_ranks: int = 1
    max_positions: NonNegativeInt = 0
    bf16: bool = False
    finished_at: int = -1
    history: list[Figures] = field(default_factory=list)

    def is_validated(self) -> bool:
        """Whether there was a validation at this step."""
        return bool(self.history) and self.history[-1]["step"] == self.step


class Limit(NamedTuple):
    """A limit that is set.

    Attributes:
        key: of the setting.
        most: its value.
        share: how much of it is used, 0-1; 1 ends the training.
        text: "3 of 12 steps".
    """

    key: str
    most: float
    share: float
    text: str


def limits(settings: TrainSettings, progress: Progress, n_batches: int) -> list[Limit]:
    """The limits of steps, epochs and minutes that are set; patience is not one of them.

    Args:
        settings: max_steps, max_epochs, max_minutes.
        progress: where training stands.
        n_batches: per epoch, approximately.
    """
    epochs = progress.epoch + min(progress.batch / n_batches, 1.0)
    minutes = progress.elapsed_s / 60
    found = []
    if most := settings.max_steps:
        found.append(Limit("train.max_steps", most, progress.step / most, f"{progress.step:,} of {most:,} steps"))
    if most := settings.max_epochs:
        share = epochs / most
        if progress.epoch < most:  # n_batches is an estimate; the epoch ends with its last batch
            share = min(share, 1 - 1e-9)
        found.append(Limit("train.max_epochs", most, share, f"{epochs:.1f} of {most:,} epochs"))
    if settings.max_minutes:
        share, text = minutes / settings.max_minutes, f"{minutes:.1f} of {settings.max_minutes:g} minutes"
        found.append(Limit("train.max_minutes", settings.max_minutes, share, text))
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


def continue_epoch(progress: Progress, data: TrainingData, before: TrainSettings, now: TrainSettings) -> None:
    """If batch sizes have changed within an epoch, convert the number of batches done to batches of the current size.

    Args:
        progress: its epoch and batch are updated.
        data: batches of the current size.
        before, now: settings of the checkpoint and of this training.
    """
    unchanged = (before.batch_tokens, before.accumulate) == (now.batch_tokens, now.accumulate)
    if unchanged or not progress.batch:
        return
    done = progress.batch / data.count_batches(progress.epoch, before.batch_tokens)  # 0-1
    if done >= 1:
        progress.epoch, progress.batch = progress.epoch + 1, 0
        return
    n_steps = done * data.count_batches(progress.epoch, now.batch_tokens) / now.accumulate
    progress.batch = round(n_steps) * now.accumulate
    log.warning(
        "train.batch_tokens or train.accumulate has changed within epoch %d: it goes on at %.0f %% with other "
        "batches, so some of its pairs are seen twice, some not at all",
        progress.epoch + 1,
        100 * done,
    )
