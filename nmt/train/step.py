"""One optimiser step: forward, loss, backward, clip, update, in the order in which it happens."""

import functools
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from nmt.config import TrainSettings
from nmt.distributed import n_ranks, rank, unwrapped
from nmt.errors import NmtError
from nmt.model.dropout import dropout_seeded
from nmt.seeds import seed_of
from nmt.text import PAD
from nmt.text.batches import Batch
from nmt.train.decoder_input import decoder_input
from nmt.train.loss import LossSum, smoothed_cross_entropy, symmetric_divergence
from nmt.train.replicas import Replicas

log = logging.getLogger("nmt")


@dataclass(frozen=True)
class StepFigures:
    """What a step did: loss and nll in nats a token, gradient norm before clipping, counts."""

    loss: float
    nll: float
    grad_norm: float
    n_tokens: int
    n_real: int  # source and target tokens
    n_positions: int  # the same with padding


def make_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices alone, not on biases and norms."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=settings.lr,
        betas=(settings.adam_beta1, settings.adam_beta2),
        eps=1e-9,
        fused=True,
    )


def batch_loss(model: nn.Module, batch: Batch, settings: TrainSettings) -> LossSum:
    """The loss of a batch; with R-Drop, of two passes with different dropout and their divergence, halved."""
    real = batch.tgt_out != PAD
    targets = batch.tgt_out[real]  # (N,)
    if not (settings.r_drop and model.training):
        return smoothed_cross_entropy(
            model(batch.src, batch.tgt_in, real), targets, smoothing=settings.label_smoothing
        )
    logits = model(batch.src.repeat(2, 1), batch.tgt_in.repeat(2, 1), real.repeat(2, 1))  # (2N, V)
    sums = smoothed_cross_entropy(logits, targets.repeat(2), smoothing=settings.label_smoothing)
    loss = (sums.loss + settings.r_drop * symmetric_divergence(logits)) / 2
    return LossSum(loss, sums.nll / 2, len(targets))


def train_step(
    replicas: Replicas,
    optimizer: torch.optim.Optimizer,
    micro_batches: Sequence[Batch],
    settings: TrainSettings,
    *,
    lr: float,
    seed: int,
    bf16: bool,
    own_words: float = 0.0,
) -> StepFigures:
    """One update from several micro-batches, whose gradient is that of one big batch; none if it is not finite.

    Each rank works on its rows of every micro-batch, each of its replicas on a share of that; the gradient is the
    same for all ranks.

    Args:
        replicas: of the model, in training mode.
        optimizer: over the first one's parameters.
        micro_batches: of all ranks.
        settings: loss, clipping and, where the decoder reads its own words, how.
        lr: this step's rate.
        seed: of dropout and own words; a function of the run's seed and the step: nothing has to be saved.
        bf16: matrix products in bfloat16; weights, sums and the loss stay float32.
        own_words: share of the decoder's words that are its own, 0-1; 0 is teacher forcing.
    Returns:
        counts of the whole step; of loss and nll this rank's part, which add up over ranks.
    """
    parameters = list(replicas.models[0].parameters())
    n_tokens = sum(batch.n_target_tokens for batch in micro_batches)
    replicas.zero_grad()
    learn = functools.partial(
        _learn,
        micro_batches=[batch.part(rank(), n_ranks()) for batch in micro_batches],
        n_replicas=len(replicas),
        weight=n_ranks() / n_tokens,  # since what comes of several ranks is their mean
        settings=settings,
        seed=seed,
        bf16=bf16,
        own_words=own_words,
    )
    loss, nll = torch.stack(replicas.each(learn)).sum(0).tolist()
    replicas.add_gradients()
    total_norm = nn.utils.get_total_norm(p.grad for p in parameters if p.grad is not None)
    norm = float(total_norm)
    if math.isfinite(norm):  # else there is no update: one such gradient would spoil all weights
        if 0 < settings.clip_norm < norm:
            nn.utils.clip_grads_with_norm_(parameters, settings.clip_norm, total_norm)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
    return StepFigures(
        loss=loss / n_tokens,
        nll=nll / n_tokens,
        grad_norm=norm,
        n_tokens=n_tokens,
        n_real=n_tokens + sum(batch.n_source_tokens for batch in micro_batches),
        n_positions=sum(batch.n_positions for batch in micro_batches),
    )


def _learn(
    replica: int,
    model: nn.Module,
    *,
    micro_batches: Sequence[Batch],
    n_replicas: int,
    weight: float,
    settings: TrainSettings,
    seed: int,
    bf16: bool,
    own_words: float,
) -> Tensor:
    """Forward and backward of a replica's share of its rank's micro-batches.

    Returns:
        (2,): loss and nll, summed over its tokens.
    """
    worker = rank() * n_replicas + replica
    device = next(model.parameters()).device
    precision = functools.partial(torch.autocast, device.type, torch.bfloat16, enabled=bf16)
    free = settings.decoder_input == "free_running"
    total = torch.zeros(2, device=device)
    share = share_of(micro_batches, replica, n_replicas)
    for i, part in enumerate(share):
        batch = part.to(device)
        with precision(cache_enabled=False):  # what is cast here has no gradient
            tgt_in = decoder_input(unwrapped(model), batch, own_words=own_words, free=free, seed=seed)
        last = i == len(share) - 1
        with nullcontext() if last or n_ranks() == 1 else model.no_sync():  # type: ignore[operator]
            with precision(), dropout_seeded(seed_of(seed, i, worker)):
                sums = batch_loss(model, replace(batch, tgt_in=tgt_in), settings)
            (sums.loss * weight).backward()  # type: ignore[no-untyped-call]
        total = total + torch.stack([sums.loss.detach(), sums.nll])
    return total


def share_of(micro_batches: Sequence[Batch], replica: int, n_replicas: int) -> list[Batch]:
    """One thread's part of a step: whole micro-batches where all get equally many, else rows of them."""
    n_groups = math.gcd(len(micro_batches), n_replicas)
    own = micro_batches[replica % n_groups :: n_groups]
    return [batch.part(replica // n_groups, n_replicas // n_groups) for batch in own]


def within_memory(
    step: Callable[[Sequence[Batch]], StepFigures], micro_batches: Sequence[Batch], max_positions: int
) -> tuple[StepFigures, int]:
    """Do a step; where memory does not hold it, begin it again with its largest micro-batches in two.

    No pair is left out: but for dropout, the gradient of the parts is that of the whole.

    Args:
        step: `train_step` but for the micro-batches; before its end it changes no weight.
        micro_batches: of all ranks.
        max_positions: what a micro-batch may have, as found before; 0 is no limit.
    Returns:
        the step's figures, and what a micro-batch may have from now on.
    Raises:
        NmtError: memory does not hold a single pair, or other ranks are in the midst of the same step.
    """
    while True:
        parts = [part for batch in micro_batches for part in _in_parts(batch, max_positions)]
        try:
            return step(parts), max_positions
        except torch.OutOfMemoryError as error:
            largest = max(parts, key=lambda part: part.n_positions)
            if n_ranks() > 1 or len(largest.src) == 1:
                raise NmtError(
                    f"out of memory with {len(largest.src)} pairs of {largest.n_positions} positions",
                    hint="lower train.batch_tokens, data.max_length or the model's sizes; the checkpoint is kept",
                ) from error
        max_positions = largest.part(0, 2).n_positions  # below the except, whose traceback holds the memory
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        log.warning(
            "out of memory with a batch of %d positions: from now on in parts of %d at most, gradients added; "
            "a lower train.batch_tokens is quicker",
            largest.n_positions,
            max_positions,
        )


def _in_parts(batch: Batch, max_positions: int) -> list[Batch]:
    n_rows = len(batch.src)
    fitting = max(max_positions * n_rows // batch.n_positions, 1) if max_positions else n_rows
    n = math.ceil(n_rows / fitting)
    return [batch.part(i, n) for i in range(n)] if n > 1 else [batch]


def use_bf16(settings: TrainSettings, device: torch.device) -> bool:
    """The precision of matrix products that the settings ask for; `auto` asks the machine which is quick."""
    if settings.precision != "auto":
        return settings.precision == "bf16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    fp32, bf16 = _product_seconds(torch.float32, torch.bfloat16)
    return fp32 > 1.5 * bf16


def _product_seconds(*dtypes: torch.dtype) -> list[float]:
    """The least of several timings of a product of the size that training has, in turns: others may be at work."""
    factors = [(torch.ones(2048, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)) for dtype in dtypes]
    seconds = [math.inf for _ in dtypes]
    for _ in range(20):
        for i, (a, b) in enumerate(factors):
            start = time.perf_counter()
            a @ b
            seconds[i] = min(seconds[i], time.perf_counter() - start)
    return seconds
