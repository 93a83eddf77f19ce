"""`nmt train --dry-run`: what a training would be like."""

import functools
import math
import time
from dataclasses import dataclass
from itertools import islice

from nmt.text.batches import Batch, non_padding_share
from nmt.train.loop import Session, uses_bf16
from nmt.train.memory import n_fitting_threads, peak_memory, split_on_out_of_memory
from nmt.train.replicas import Replicas
from nmt.train.report import clock
from nmt.train.schedule import prediction_rate
from nmt.train.step import StepOptions, make_optimizer, train_step

MAX_BATCHES = 1_000  # that are measured; their order is random


@dataclass(frozen=True)
class Speed:
    """What the largest of the first batches costs."""

    batches: list[Batch]  # that were looked at
    largest: Batch
    batch_s: float  # seconds for the largest
    n_threads: int  # that share a step
    bf16: bool

    @property
    def mean_batch_s(self) -> float:
        """Seconds for a batch of mean size."""
        mean = sum(batch.n_positions for batch in self.batches) / len(self.batches)
        return self.batch_s * mean / self.largest.n_positions


def measured_speed(session: Session) -> Speed:
    """Do two steps with the largest batch; changes the weights in memory, but not the run."""
    settings, model = session.config.train, session.model
    batches = list(islice(session.data.batches(0), MAX_BATCHES))
    largest = max(batches, key=lambda batch: batch.n_positions)
    bf16 = uses_bf16(settings, model.device)
    optimizer = make_optimizer(model, settings)
    n_threads = n_fitting_threads(model, len(session.tokenizers.target), settings)
    replicas = Replicas(model.train(), n_threads)
    batch_s, max_positions = math.inf, 0
    for seed in range(2):  # the first step also allocates
        start = time.perf_counter()
        options = StepOptions(settings, lr=1e-6, seed=seed, bf16=bf16, prediction_rate=prediction_rate(settings, 1.0))
        step = functools.partial(train_step, replicas, optimizer, options=options)
        _, max_positions = split_on_out_of_memory(step, [largest] * settings.accumulate, max_positions)
        batch_s = min(batch_s, (time.perf_counter() - start) / settings.accumulate)
    replicas.close()
    return Speed(batches, largest, batch_s, n_threads, bf16)


def dry_run(session: Session) -> list[str]:
    """What a training would be like, as lines for the user; the run is not touched."""
    settings, model, data = session.config.train, session.model, session.data
    lines = [f"parameters  {model.n_parameters:,}"]
    seen: set[int] = set()
    for name, block in model.named_children():
        own = {id(p): p.numel() for p in block.parameters() if id(p) not in seen}
        seen |= own.keys()
        lines.append(f"  {name:<18} {sum(own.values()):>12,}")
    found = measured_speed(session)
    n_steps = math.ceil(data.n_batches / settings.accumulate)
    useful = f"{non_padding_share(found.batches):.1%} of their positions useful"
    lines.append(f"batches     {data.n_batches} an epoch, {useful}, {n_steps} steps an epoch")
    speed = f"{found.largest.n_target_tokens / found.batch_s:,.0f} target tokens a second"
    precision = "bf16" if found.bf16 else "fp32"
    lines.append(f"speed       {speed}, {precision} on {model.device}, {found.n_threads} workers")
    if memory := peak_memory(model.device):
        lines.append(f"memory      {memory / 1e9:.2f} GB")
    epoch_s = found.mean_batch_s * data.n_batches
    limits = [epoch_s * settings.max_epochs] if settings.max_epochs else []
    limits += [epoch_s * settings.max_steps / n_steps] if settings.max_steps else []
    limits += [settings.max_minutes * 60] if settings.max_minutes else []
    total = f", {clock(min(limits))} in all without validations" if limits else ""
    return [*lines, f"time        {clock(epoch_s)} an epoch{total}"]
