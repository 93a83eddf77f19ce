"""Training steps that do not fit into memory."""

import logging
import math
from collections.abc import Callable, Sequence

import torch

from nmt.distributed import n_ranks
from nmt.errors import NmtError
from nmt.text.batches import Batch
from nmt.train.step import StepFigures

log = logging.getLogger("nmt")


def split_on_out_of_memory(
    step: Callable[[Sequence[Batch]], StepFigures], micro_batches: Sequence[Batch], max_positions: int
) -> tuple[StepFigures, int]:
    """Do a step; if it runs out of memory, repeat it with its largest micro-batches cut in two.

    No pair is left out: but for dropout, the gradient is the same.

    Args:
        step: `train_step` of the micro-batches; it changes no weight before its end.
        micro_batches: the same on all ranks.
        max_positions: limit of a micro-batch found by earlier steps; 0 for none.
    Returns:
        the step's figures, and the limit from now on.
    Raises:
        NmtError: one pair alone does not fit, or there are several ranks, which would wait for each other.
    """
    while True:
        parts = [part for batch in micro_batches for part in _cut(batch, max_positions)]
        try:
            return step(parts), max_positions
        except torch.OutOfMemoryError as error:
            largest = max(parts, key=lambda part: part.n_positions)
            if n_ranks() > 1 or len(largest.src) == 1:
                raise NmtError(
                    f"out of memory with {len(largest.src)} pairs of {largest.n_positions} positions",
                    hint="lower train.batch_tokens, data.max_length or the model's sizes; the checkpoint is kept",
                ) from error
        max_positions = largest.part(0, 2).n_positions  # outside the except block, which keeps tensors alive
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        log.warning(
            "out of memory with a batch of %d positions: from now on in parts of %d at most, gradients added; "
            "a lower train.batch_tokens is quicker",
            largest.n_positions,
            max_positions,
        )


def _cut(batch: Batch, max_positions: int) -> list[Batch]:
    n_rows = len(batch.src)
    n_fitting = max(max_positions * n_rows // batch.n_positions, 1) if max_positions else n_rows
    n_parts = math.ceil(n_rows / n_fitting)
    return [batch.part(i, n_parts) for i in range(n_parts)] if n_parts > 1 else [batch]
