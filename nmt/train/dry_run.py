"""The dry run of a training (`nmt train --dry-run`): the size of the model and the estimated cost."""

import functools
import math
import time
from dataclasses import dataclass
from itertools import islice
from statistics import mean

from nmt.train.loop import Session, uses_bf16
from nmt.train.memory import n_fitting_replicas, peak_memory, split_on_out_of_memory
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.report import clock
from nmt.train.step import StepOptions, train_step

# Only this many batches of the first epoch are examined. They are in random order.
MAX_BATCHES = 1_000


@dataclass(frozen=True)
class Measurement:
    """The estimated cost of a training."""

    n_steps: int  # steps per epoch
    epoch_s: float  # seconds per epoch, without validations
    memory: int  # peak memory in bytes; 0 on Windows
    n_replicas: int


def measure(session: Session, n_replicas: int | None = None) -> Measurement:
    """Estimate the cost of a training by timing two steps with the largest of `MAX_BATCHES` batches.

    If `n_replicas` is None, the number is chosen as in `nmt train`.
    """
    settings, model, data = session.config.train, session.model, session.data
    bf16 = uses_bf16(settings, model.device)
    if n_replicas is None:
        n_replicas = n_fitting_replicas(model, settings)

    # 1. Find the largest batch.
    batches = list(islice(data.batches(0), MAX_BATCHES))
    largest = max(batches, key=lambda batch: batch.n_positions)

    # 2. Run two steps with this batch, and take the time of the faster one.
    optimizers = make_optimizers(model, settings)
    memory_before = peak_memory(model.device)
    replicas = Replicas(model.train(), n_replicas)
    options = StepOptions(settings, lr=1e-6, seed=0, bf16=bf16)
    step = functools.partial(train_step, replicas, optimizers, options=options)
    step_s, max_positions = math.inf, 0
    for _ in range(2):  # the first step is slower, because it allocates memory
        start = time.perf_counter()
        _, max_positions = split_on_out_of_memory(step, [largest] * settings.accumulate, max_positions)
        step_s = min(step_s, time.perf_counter() - start)
    replicas.close()

    # 3. Estimate the cost of an epoch. Assume that the time of a batch is proportional to its positions.
    # Replicas share the weights, so each other replica needs only the memory that the steps added.
    n_steps = math.ceil(data.n_batches / settings.accumulate)
    mean_positions = mean(batch.n_positions for batch in batches)
    epoch_s = n_steps * step_s * mean_positions / largest.n_positions
    memory = peak_memory(model.device)
    memory += (n_replicas - 1) * (memory - memory_before)
    return Measurement(n_steps, epoch_s, memory, n_replicas)


def dry_run(session: Session, n_replicas: int | None) -> str:
    """Return a line with the size of the model and the cost of training. Writes no file."""
    cost = measure(session, n_replicas)
    size = f"{session.model.n_parameters:,} parameters on {session.model.device}, replicas: {cost.n_replicas}"
    return f"{size}; an epoch of {cost.n_steps} steps takes {clock(cost.epoch_s)} and {cost.memory / 1e9:.2f} GB"
