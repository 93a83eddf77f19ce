"""Where a training stands, as every checkpoint tells it, and which of its limits it has reached."""

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, NonNegativeInt

from nmt.config import TrainSettings


def lacks(line: dict[str, Any]) -> list[str]:
    """The names of figures that a validation has and this line lacks."""
    return [n for n in ("step", "dev_loss", "dev_nll", "dev_bleu") if not isinstance(line.get(n), int | float)]


def checked(line: dict[str, Any]) -> dict[str, Any]:
    """A validation's figures as a checkpoint has them, if all that is compared is there."""
    if missing := lacks(line):
        raise ValueError(f"a validation without {', '.join(missing)}")
    return line


Figures = Annotated[dict[str, Any], AfterValidator(checked)]


@dataclass
class Progress:
    """Where a training stands; saved with every checkpoint.

    Attributes:
        step: updates done.
        epoch, batch: the next micro-batch to take.
        n_tokens: target tokens seen.
        elapsed_s: time trained, validations included.
        best, best_step: the best figure on dev (more is better) and when.
        best_figures: all figures of that model, which is in the model file; None in checkpoints of older versions.
        n_worse: validations since then.
        n_skipped: steps running whose gradient was not finite.
        n_rollbacks: how often training went back for that; each time the rate is lowered.
        n_ranks: how many processes or threads shared the last step; each draws dropout of its own.
        max_positions: of a micro-batch, since memory did not hold a larger one; 0 is no limit.
        bf16: the precision chosen at the start; a resumed run keeps it.
        finished_at: the step at which the budget was last spent, the end's validation and average done.
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


class Limit(NamedTuple):
    """A limit that is set, and how much of it is used.

    Attributes:
        key: of the setting.
        most: its value.
        share: used, 0-1; 1 ends the training.
        text: "3 of 12 steps".
    """

    key: str
    most: float
    share: float
    text: str


def limits(settings: TrainSettings, progress: Progress, n_batches: int) -> list[Limit]:
    """Every limit of a training's length that is set; patience is none of these.

    Args:
        n_batches: in an epoch; epochs differ a little.
    """
    epochs = progress.epoch + min(progress.batch / n_batches, 1.0)
    minutes = progress.elapsed_s / 60
    found = []
    if most := settings.max_steps:
        found.append(Limit("train.max_steps", most, progress.step / most, f"{progress.step:,} of {most:,} steps"))
    if most := settings.max_epochs:
        share = epochs / most
        if progress.epoch < most:  # an epoch ends with its last batch, not with an estimate
            share = min(share, 1 - 1e-9)
        found.append(Limit("train.max_epochs", most, share, f"{epochs:.1f} of {most:,} epochs"))
    if settings.max_minutes:
        share, text = minutes / settings.max_minutes, f"{minutes:.1f} of {settings.max_minutes:g} minutes"
        found.append(Limit("train.max_minutes", settings.max_minutes, share, text))
    return found


def out_of_patience(settings: TrainSettings, progress: Progress) -> bool:
    return settings.patience is not None and progress.n_worse >= settings.patience


def ending(settings: TrainSettings, progress: Progress, n_batches: int) -> str:
    """Which limits have ended a training, and how far it has come towards the others."""
    found = limits(settings, progress, n_batches)
    reached = {one.key: one.most for one in found if one.share >= 1}
    if out_of_patience(settings, progress):
        reached["train.patience"] = settings.patience or 0
    others = " and ".join(f"{one.text} ({one.key})" for one in found if one.share < 1)
    return (
        f"ended by {' and '.join(f'{key}={most}' for key, most in reached.items())}"
        f"{' at ' if others else ''}{others}: raise {' and '.join(reached)} to go on"
    )
