"""Where a training stands, as every checkpoint tells it."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, NonNegativeInt


def checked(line: dict[str, Any]) -> dict[str, Any]:
    """A validation's figures as a checkpoint has them, if all that is compared is there."""
    for name in ("step", "dev_loss", "dev_nll", "dev_bleu"):
        if not isinstance(line.get(name), int | float):
            raise ValueError(f"a validation without {name}")
    return line


@dataclass
class Progress:
    """Where a training stands; saved with every checkpoint.

    Attributes:
        step: updates done.
        epoch, batch: the next micro-batch to take.
        n_tokens: target tokens seen.
        elapsed_s: time trained, validations included.
        best, best_step: the best figure on dev (more is better) and when.
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
    n_worse: int = 0
    n_skipped: int = 0
    n_rollbacks: int = 0
    n_ranks: int = 1
    max_positions: NonNegativeInt = 0
    bf16: bool = False
    finished_at: int = -1
    history: list[Annotated[dict[str, Any], AfterValidator(checked)]] = field(default_factory=list)
