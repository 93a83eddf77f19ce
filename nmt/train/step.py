"""The training step: compute, sum and clip the gradients of several micro-batches, then update the weights."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from nmt.config import TrainSettings
from nmt.distributed import n_ranks, rank, summed
from nmt.errors import NmtError
from nmt.model.base import Seq2Seq
from nmt.seeds import seed_of
from nmt.text import PAD
from nmt.text.batches import Batch
from nmt.train.loss import LossSum, sample_pieces, smoothed_cross_entropy
from nmt.train.memory import SMALLER_MODEL
from nmt.train.replicas import Replicas


@dataclass(frozen=True)
class StepOptions:
    """The values on which a step depends, besides weights and batches."""

    settings: TrainSettings  # a step uses `label_smoothing`, `softmax_share` and `clip_norm`
    lr: float  # learning rate
    seed: int  # seed of dropout and of the sampled softmax, derived from the seed of the run and the step
    bf16: bool = False  # whether to autocast matmuls to bfloat16; weights, gradients and losses stay float32


@dataclass(frozen=True)
class StepFigures:
    """The figures of a step: losses in nats per target token, the gradient norm, and counts."""

    loss: float  # loss with label smoothing
    nll: float  # loss without label smoothing
    grad_norm: float  # norm before clipping
    n_tokens: int  # number of target tokens


def train_step(
    replicas: Replicas,
    optimizers: Sequence[torch.optim.Optimizer],
    micro_batches: Sequence[Batch],
    options: StepOptions,
) -> StepFigures:
    """Update the weights once from several micro-batches.

    The gradient is that of one large batch, except for dropout and the sampled softmax, which are drawn for each part.
    All ranks receive the same micro-batches, and each rank computes its part of them. Within a rank, the replicas share
    the micro-batches (`shares_of`).
    """
    n_tokens = sum(batch.n_target_tokens for batch in micro_batches)
    scale = n_ranks() / n_tokens  # for the mean over tokens; n_ranks() undoes the averaging of DDP
    # 1. Compute the gradient of this rank's part. DDP adds the gradients of all ranks.
    parts = [batch.split(n_ranks())[rank()] for batch in micro_batches]
    first_replica = rank() * replicas.n
    arguments = []
    for i, share in enumerate(shares_of(parts, replicas.n)):
        arguments.append((share, options, scale, first_replica + i))
    sums = replicas.backward(forward_backward, arguments)

    # 2. Clip the gradient, and update the weights.
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
            except torch.OutOfMemoryError as error:  # some weights have changed, so the step cannot be repeated
                raise NmtError(
                    "out of memory while weights were updated", hint=f"{SMALLER_MODEL}; checkpoints are kept"
                ) from error

    # 3. Compute the figures.
    loss, nll = summed(*torch.stack(sums).sum(0).tolist())  # over all ranks
    return StepFigures(loss / n_tokens, nll / n_tokens, grad_norm, n_tokens)


def norm_of(gradients: Sequence[Tensor]) -> Tensor:
    """Return the L2 norm over all gradients. The norm of a matrix is computed from the norms of its rows.

    On a CPU, a single call for the whole matrix takes twice as long. Its error is 0.2 % for 30M float32 elements.
    """
    norms = [torch.linalg.vector_norm(x, dim=-1) if x.dim() > 1 else x for x in gradients]
    return nn.utils.get_total_norm(norms)


def forward_backward(
    model: nn.Module, micro_batches: Sequence[Batch], options: StepOptions, scale: float, replica: int
) -> Tensor:
    """Run the forward and backward passes of a replica, and add the gradients to `.grad`.

    Args:
        scale: factor of the loss, which is summed over target tokens.
        replica: index of the replica among the replicas of all ranks; the random seed depends on it.
    Returns:
        (2,), loss and nll, summed over target tokens.
    """
    device = next(model.parameters()).device
    total = torch.zeros(2, device=device)
    for i, micro_batch in enumerate(micro_batches):
        batch = micro_batch.to(device)
        # DDP adds gradients over ranks in the last backward pass only.
        reduce_now = n_ranks() == 1 or i == len(micro_batches) - 1
        with nullcontext() if reduce_now else model.no_sync():  # type: ignore[operator]
            torch.manual_seed(seed_of(options.seed, i, replica))
            with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
                sums = batch_loss(model, batch, options.settings, options.settings.softmax_share)
            (sums.loss * scale).backward()  # type: ignore[no-untyped-call]
        total = total + torch.stack([sums.loss.detach(), sums.nll])
    return total


def batch_loss(model: nn.Module, batch: Batch, settings: TrainSettings, softmax_share: float = 1.0) -> LossSum:
    """Return the loss of a batch, summed over target tokens. The batch must be on the device of the model.

    If `softmax_share` is below 1, it is estimated with a sampled softmax, see `sample_pieces`.
    """
    is_token = batch.tgt_out != PAD
    targets = batch.tgt_out[is_token]
    pieces = weights = None  # the whole vocabulary
    if softmax_share < 1:
        seq2seq = cast(Seq2Seq, getattr(model, "module", model))  # DDP has the model as `module`
        pieces, weights, targets = sample_pieces(targets, seq2seq.projection.out_features, softmax_share)
    logits = model(batch.src, batch.tgt_in, is_token, pieces)  # (N, V), or (N, K) for K pieces
    return smoothed_cross_entropy(logits, targets, smoothing=settings.label_smoothing, weights=weights)


def shares_of(micro_batches: Sequence[Batch], n_replicas: int) -> list[list[Batch]]:
    """Return the micro-batches of each replica.

    The replicas get whole micro-batches if the numbers divide evenly. Otherwise every micro-batch is split.
    """
    if len(micro_batches) % n_replicas == 0:
        return [list(micro_batches[i::n_replicas]) for i in range(n_replicas)]
    split = (batch.split(n_replicas) for batch in micro_batches)
    return list(map(list, zip(*split, strict=True)))
