"""`nmt train --dry-run`: what a training would be like."""

import functools
import math
import sys
import time
from itertools import islice

import torch

from nmt.text import PAD
from nmt.text.batches import non_padding_share
from nmt.train.loop import Session, uses_bf16
from nmt.train.memory import split_on_out_of_memory
from nmt.train.replicas import Replicas, n_fitting_threads
from nmt.train.report import clock
from nmt.train.schedule import prediction_rate
from nmt.train.step import StepOptions, make_optimizer, train_step

MAX_BATCHES = 1_000  # that are measured; their order is random


def dry_run(session: Session) -> list[str]:
    """Do two steps with the largest batch; the run is not touched.

    Returns:
        lines for the user: parameters by block, batches, speed, memory, time.
    """
    config, model, data = session.config, session.model, session.data
    lines = [f"parameters  {sum(p.numel() for p in model.parameters()):,}"]
    seen: set[int] = set()
    for name, block in model.named_children():
        own = [p for p in block.parameters() if id(p) not in seen]
        seen |= {id(p) for p in own}
        lines.append(f"  {name:<18} {sum(p.numel() for p in own):>12,}")
    batches = list(islice(data.batches(0), MAX_BATCHES))
    n_steps = math.ceil(data.n_batches / config.train.accumulate)
    lines.append(
        f"batches     {data.n_batches} an epoch, {non_padding_share(batches):.1%} of their positions useful, "
        f"{n_steps} steps an epoch"
    )
    largest = max(batches, key=lambda batch: batch.n_positions)
    device, bf16 = model.device, uses_bf16(config.train, model.device)
    optimizer = make_optimizer(model, config.train)
    n_threads = n_fitting_threads(model, len(session.tokenizers.target), config.train)
    replicas = Replicas(model.train(), n_threads)
    batch_s, max_positions = math.inf, 0
    for seed in range(2):  # the first step also allocates
        start = time.perf_counter()
        options = StepOptions(
            config.train, lr=1e-6, seed=seed, bf16=bf16, prediction_rate=prediction_rate(config.train, 1.0)
        )
        step = functools.partial(train_step, replicas, optimizer, options=options)
        _, max_positions = split_on_out_of_memory(step, [largest] * config.train.accumulate, max_positions)
        batch_s = min(batch_s, (time.perf_counter() - start) / config.train.accumulate)
    replicas.close()
    tokens_per_s = int((largest.tgt_out != PAD).sum()) / batch_s
    lines.append(
        f"speed       {tokens_per_s:,.0f} target tokens a second, {'bf16' if bf16 else 'fp32'} on {device}, "
        f"{n_threads} workers"
    )
    if memory := peak_memory(device):
        lines.append(f"memory      {memory / 1e9:.2f} GB")
    mean = sum(batch.n_positions for batch in batches) / len(batches)
    epoch_s = batch_s * data.n_batches * mean / largest.n_positions
    limits = [epoch_s * config.train.max_epochs] if config.train.max_epochs else []
    limits += [epoch_s * config.train.max_steps / n_steps] if config.train.max_steps else []
    limits += [config.train.max_minutes * 60] if config.train.max_minutes else []
    total = f", {clock(min(limits))} in all without validations" if limits else ""
    lines.append(f"time        {clock(epoch_s)} an epoch{total}")
    return lines


def peak_memory(device: torch.device) -> int:
    """The most memory used so far, in bytes: the GPU's, else the process'; 0 if the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
