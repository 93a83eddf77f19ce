"""The dry run of a training (`nmt train --dry-run`): the size of the model and the estimated cost."""

import functools
import math
import time
from dataclasses import dataclass
from itertools import islice

from nmt.train.loop import Session, uses_bf16
from nmt.train.memory import n_fitting_replicas, peak_memory, split_on_out_of_memory
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.report import clock
from nmt.train.schedule import prediction_rate
from nmt.train.step import StepOptions, train_step

# Only this many batches of the first epoch are examined. Their order is random, so they are a sample.
MAX_BATCHES = 1_000


@dataclass(frozen=True)
class Measurement:
    """The cost of a training, estimated from two steps with the largest of `MAX_BATCHES` batches."""

    n_steps: int  # steps per epoch
    epoch_s: float  # seconds per epoch, without validations
    tokens_per_s: float  # target tokens per second, in the largest batch
    memory: int  # peak memory in bytes; 0 if the system does not report it
    n_replicas: int
    bf16: bool  # whether matmuls run in bf16
    non_padding: float  # share of positions that are not padding, 0-1


def measure(session: Session, n_replicas: int | None = None) -> Measurement:
    """Estimate the cost of a training by timing two steps with the largest of `MAX_BATCHES` batches.

    If `n_replicas` is None, use as many replicas as `nmt train` would.
    """
    settings, model, data = session.config.train, session.model, session.data
    bf16 = uses_bf16(settings, model.device)
    if n_replicas is None:
        n_replicas = n_fitting_replicas(model, len(session.tokenizers.target), settings)

    # 1. Find the largest batch.
    batches = list(islice(data.batches(0), MAX_BATCHES))
    largest = max(batches, key=lambda batch: batch.n_positions)

    # 2. Run two steps with this batch; the faster step counts.
    optimizers = make_optimizers(model, settings)
    # A forked replica starts with the memory of this process. So `memory_before` is subtracted below.
    memory_before = peak_memory(model.device)
    replicas = Replicas(model.train(), n_replicas)
    batch_s, max_positions = math.inf, 0
    for seed in range(2):  # the first step is slower, because it allocates memory
        start = time.perf_counter()
        options = StepOptions(settings, lr=1e-6, seed=seed, bf16=bf16, prediction_rate=prediction_rate(settings, 1.0))
        step = functools.partial(train_step, replicas, optimizers, options=options)
        _, max_positions = split_on_out_of_memory(step, [largest] * settings.accumulate, max_positions)
        step_s = time.perf_counter() - start
        batch_s = min(batch_s, step_s / settings.accumulate)
    replicas.close()
    replica_memory = max(peak_memory(model.device, of_children=True) - memory_before, 0)

    # 3. Estimate the cost of an epoch, assuming that the time of a batch is proportional to its number of positions.
    n_steps = math.ceil(data.n_batches / settings.accumulate)
    n_positions = sum(batch.n_positions for batch in batches)
    n_tokens = sum(batch.n_source_tokens + batch.n_target_tokens for batch in batches)
    mean_positions = n_positions / len(batches)
    mean_batch_s = batch_s * mean_positions / largest.n_positions
    memory = peak_memory(model.device) + (n_replicas - 1) * replica_memory
    return Measurement(
        n_steps=n_steps,
        epoch_s=mean_batch_s * data.n_batches,
        tokens_per_s=largest.n_target_tokens / batch_s,
        memory=memory,
        n_replicas=n_replicas,
        bf16=bf16,
        non_padding=n_tokens / n_positions,
    )


def dry_run(session: Session, n_replicas: int | None = None) -> list[str]:
    """Return lines of text for the user: the size of the model and the result of `measure`. Writes no file."""
    settings, model = session.config.train, session.model
    cost = measure(session, n_replicas)
    lines = [f"parameters  {model.n_parameters:,}"]
    n_batches = f"{session.data.n_batches} an epoch"
    lines.append(f"batches     {n_batches}, {cost.non_padding:.1%} non-padding, {cost.n_steps} steps an epoch")
    precision = "bf16" if cost.bf16 else "fp32"
    where = f"{precision} on {model.device}, replicas: {cost.n_replicas}"
    lines.append(f"speed       {cost.tokens_per_s:,.0f} target tokens a second, {where}")
    if cost.memory:
        lines.append(f"memory      {cost.memory / 1e9:.2f} GB")

    # Training ends at the limit that is reached first.
    limits_s = []
    if settings.max_epochs:
        limits_s.append(cost.epoch_s * settings.max_epochs)
    if settings.max_steps:
        step_s = cost.epoch_s / cost.n_steps
        limits_s.append(step_s * settings.max_steps)
    if settings.max_minutes:
        limits_s.append(settings.max_minutes * 60)
    total = f", {clock(min(limits_s))} in all without validations" if limits_s else ""
    return [*lines, f"time        {clock(cost.epoch_s)} an epoch{total}"]
