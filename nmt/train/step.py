"""One optimizer step: compute, sum and clip the gradient of several micro-batches, then update the weights."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from nmt.config import TrainSettings
from nmt.distributed import n_ranks, rank, unwrapped
from nmt.errors import NmtError
from nmt.seeds import seed_of
from nmt.text import PAD
from nmt.text.batches import Batch
from nmt.train.decoder_input import decoder_input
from nmt.train.loss import LossSum, smoothed_cross_entropy
from nmt.train.memory import SMALLER_MODEL
from nmt.train.replicas import Replicas


@dataclass(frozen=True)
class StepOptions:
    """What a step depends on besides weights and batches."""

    settings: TrainSettings  # label smoothing, clipping, decoder input
    lr: float  # learning rate
    seed: int  # of dropout and scheduled sampling: a function of the run's seed and the step
    bf16: bool = False  # whether to autocast matmuls to bfloat16; weights, gradients and the loss stay float32
    prediction_rate: float = 0.0  # probability that the decoder reads its own prediction instead of a true token, 0-1


@dataclass(frozen=True)
class StepFigures:
    """Figures of a step: loss and nll in nats per token, gradient norm before clipping, counts."""

    loss: float
    nll: float
    grad_norm: float
    n_tokens: int
    n_real: int  # source and target tokens, without padding
    n_positions: int  # source and target positions, with padding


def train_step(
    replicas: Replicas,
    optimizers: Sequence[torch.optim.Optimizer],
    micro_batches: Sequence[Batch],
    options: StepOptions,
) -> StepFigures:
    """Update the weights once from several micro-batches, with the same gradient as one large batch.

    All ranks receive the same micro-batches, and each computes its part of every one. With one rank, its replicas share
    the micro-batches (`shares_of`). Returns the gradient norm and counts of the whole step. loss and nll are sums over
    this rank's tokens, divided by the number of tokens of all ranks, so the caller has to sum them over ranks.
    """
    n_tokens = sum(batch.n_target_tokens for batch in micro_batches)
    scale = n_ranks() / n_tokens  # mean over tokens; n_ranks undoes DDP's division by the number of ranks
    # 1. Forward and backward pass of this rank's part, by all replicas; ranks add their gradients.
    parts = [batch.split(n_ranks())[rank()] for batch in micro_batches]
    first_replica = rank() * replicas.n
    arguments = []
    for i, share in enumerate(shares_of(parts, replicas.n)):
        arguments.append((share, options, scale, first_replica + i))
    sums = replicas.backward(forward_backward, arguments)

    # 2. Clip, and update the weights.
    parameters = list(replicas.model.parameters())
    total_norm = norm_of([p.grad for p in parameters if p.grad is not None])
    grad_norm = float(total_norm)
    if math.isfinite(grad_norm):  # an update with NaN or infinite gradients would make all weights NaN
        if 0 < options.settings.clip_norm < grad_norm:
            nn.utils.clip_grads_with_norm_(parameters, options.settings.clip_norm, total_norm)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = options.lr
            try:
                with torch.autocast(total_norm.device.type, torch.bfloat16, enabled=options.bf16):
                    optimizer.step()
            except torch.OutOfMemoryError as error:  # some weights are updated, so the step cannot be repeated
                message = "out of memory while weights were updated"
                raise NmtError(message, hint=f"{SMALLER_MODEL}; checkpoints are kept") from error

    # 3. Figures.
    loss, nll = torch.stack(sums).sum(0).tolist()
    n_source_tokens = sum(batch.n_source_tokens for batch in micro_batches)
    return StepFigures(
        loss=loss / n_tokens,
        nll=nll / n_tokens,
        grad_norm=grad_norm,
        n_tokens=n_tokens,
        n_real=n_tokens + n_source_tokens,
        n_positions=sum(batch.n_positions for batch in micro_batches),
    )


def norm_of(gradients: Sequence[Tensor]) -> Tensor:
    """Return the L2 norm over all gradients. The norm of a matrix is computed from the norms of its rows.

    On a CPU, torch's norm of a whole matrix takes twice as long, and its error is 0.2 % for 30M float32 elements.
    """
    norms = [torch.linalg.vector_norm(x, dim=-1) if x.dim() > 1 else x for x in gradients]
    return nn.utils.get_total_norm(norms)


def forward_backward(
    model: nn.Module, micro_batches: Sequence[Batch], options: StepOptions, scale: float, replica: int
) -> Tensor:
    """Accumulate the gradient of a replica's share of the micro-batches, with the summed loss multiplied by `scale`.

    `replica` is its index over all ranks; it seeds dropout. Returns loss and nll, summed over target tokens: (2,).
    """
    device = next(model.parameters()).device
    total = torch.zeros(2, device=device)
    for i, micro_batch in enumerate(micro_batches):
        batch = micro_batch.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
            tgt_in = decoder_input(unwrapped(model), batch, options.prediction_rate, options.seed)
        is_last = i == len(micro_batches) - 1
        reduce_now = n_ranks() == 1 or is_last  # DDP reduces gradients in the last backward pass
        with nullcontext() if reduce_now else model.no_sync():  # type: ignore[operator]
            torch.manual_seed(seed_of(options.seed, i, replica))  # for dropout
            with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
                sums = batch_loss(model, replace(batch, tgt_in=tgt_in), options.settings)
            (sums.loss * scale).backward()  # type: ignore[no-untyped-call]
        total = total + torch.stack([sums.loss.detach(), sums.nll])
    return total


def batch_loss(model: nn.Module, batch: Batch, settings: TrainSettings) -> LossSum:
    """Return the summed loss of a batch, which is on the model's device."""
    is_token = batch.tgt_out != PAD
    logits = model(batch.src, batch.tgt_in, is_token)  # (N, V)
    return smoothed_cross_entropy(logits, batch.tgt_out[is_token], smoothing=settings.label_smoothing)


def shares_of(micro_batches: Sequence[Batch], n_replicas: int) -> list[list[Batch]]:
    """Distribute micro-batches over the replicas; split each one if `n_replicas` does not divide their number."""
    if len(micro_batches) % n_replicas == 0:
        return [list(micro_batches[i::n_replicas]) for i in range(n_replicas)]
    # Every replica gets a part of every micro-batch.
    split = (batch.split(n_replicas) for batch in micro_batches)
    return list(map(list, zip(*split, strict=True)))
