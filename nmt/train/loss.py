"""The training loss: label-smoothed cross entropy."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CHUNK = 2**19  # logits per chunk: in float32 they fit into a CPU's cache


@dataclass(frozen=True)
class LossSum:
    """Sums over tokens, in nats, so that micro-batches add up."""

    loss: Tensor  # with label smoothing, differentiable
    nll: Tensor  # without label smoothing; exp(nll / n_tokens) is the perplexity
    n_tokens: int  # target tokens, EOS counted


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, *, smoothing: float) -> LossSum:
    """Label-smoothed cross entropy, summed over target tokens.

    q = (1-ε)·onehot + ε/V over all V (Szegedy et al. 2016, section 7); loss = -(1-ε)·log p[target] - ε·mean(log p).

    Args:
        logits: (N, V), any float dtype; computed in float32 or higher precision.
        targets: (N,) int64, target tokens without padding, EOS included.
        smoothing: ε in [0, 1).
    """
    if logits.shape[:1] != targets.shape:
        raise ValueError(f"{tuple(logits.shape)} logits for {tuple(targets.shape)} targets")
    loss, nll = _SmoothedCrossEntropy.apply(logits, targets, smoothing)  # type: ignore[no-untyped-call]
    return LossSum(loss, nll, len(targets))


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Computes the loss and, in the forward pass, its gradient softmax(logits) - q.

    The (N, V) logits are the largest tensor of a step, and autograd would read them from memory a dozen times.
    Computing in chunks that fit into the cache takes half as long.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        loss = torch.zeros((), dtype=dtype, device=logits.device)
        nll = torch.zeros_like(loss)
        n_vocab = logits.size(1)
        floor = smoothing / n_vocab  # of q
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        n_rows = max(len(logits), 1)
        if logits.device.type == "cpu":
            n_rows = max(CHUNK // n_vocab, 1)
        for start in range(0, len(logits), n_rows):
            rows = slice(start, start + n_rows)
            x = logits[rows].to(dtype)  # (n, V)
            target = targets[rows, None]  # (n, 1)
            probs = x.softmax(-1)
            # logsumexp from the softmax: the largest probability is at least 1/V, so its logarithm is finite
            log_total = x.amax(-1) - probs.amax(-1).log()  # (n,)
            sum_log_total = log_total.sum()
            # Two cross entropies: of the targets, and of the uniform distribution times V.
            chunk_nll = sum_log_total - x.gather(1, target).sum()
            chunk_uniform = n_vocab * sum_log_total - x.sum()
            nll = nll + chunk_nll
            loss = loss + (1 - smoothing) * chunk_nll + floor * chunk_uniform
            if gradient is not None:
                probs.sub_(floor)
                at_target = probs.new_full(target.shape, smoothing - 1)
                gradient[rows] = probs.scatter_add_(1, target, at_target)
        if gradient is not None:
            ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient.mul_(grad_loss), None, None  # in place because it is large; torch allows no second backward
