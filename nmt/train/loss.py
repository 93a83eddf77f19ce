"""The training loss: label-smoothed cross entropy."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CHUNK = 2**19  # logits per chunk; in float32, they fit into the cache of a CPU


@dataclass(frozen=True)
class LossSum:
    """Losses in nats, summed over tokens. Sums of several micro-batches can be added, unlike means."""

    loss: Tensor  # loss with label smoothing, differentiable
    nll: Tensor  # loss without label smoothing; exp(nll / n_tokens) is the perplexity
    n_tokens: int  # number of target tokens, EOS included


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, *, smoothing: float) -> LossSum:
    """Return the label-smoothed cross entropy, summed over target tokens.

    The target distribution is q = (1-ε)·onehot + ε/V over all V tokens (Szegedy et al. 2016, section 7). So the loss of
    a token is -(1-ε)·log p[target] - ε·mean(log p).

    Args:
        logits: (N, V). The loss is float64 for float64 logits, otherwise float32.
        targets: (N,) int64, the target tokens, with EOS and without padding.
        smoothing: ε in [0, 1).
    """
    if logits.shape[:1] != targets.shape:
        raise ValueError(f"{tuple(logits.shape)} logits for {tuple(targets.shape)} targets")
    loss, nll = _SmoothedCrossEntropy.apply(logits, targets, smoothing)  # type: ignore[no-untyped-call]
    return LossSum(loss, nll, len(targets))


class _SmoothedCrossEntropy(torch.autograd.Function):
    """The label-smoothed cross entropy. The forward pass also computes the gradient, which is softmax(logits) - q.

    The logits are large. Computing in chunks that fit into the cache of a CPU takes half as long as autograd.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        loss = torch.zeros((), dtype=dtype, device=logits.device)
        nll = torch.zeros_like(loss)
        n_vocab = logits.size(1)
        floor = smoothing / n_vocab  # the smallest value of q
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        n_rows = max(len(logits), 1)
        if logits.device.type == "cpu":
            n_rows = max(CHUNK // n_vocab, 1)
        for start in range(0, len(logits), n_rows):
            rows = slice(start, start + n_rows)
            x = logits[rows].to(dtype)  # (R, V) for a chunk of R rows
            target = targets[rows, None]  # (R, 1)
            probs = x.softmax(-1)
            # logsumexp(x) = max(x) - log(max(p)), where p = softmax(x). It is finite, because max(p) is at least 1/V.
            log_total = x.amax(-1) - probs.amax(-1).log()  # (R,)
            sum_log_total = log_total.sum()
            # Compute the cross entropy with the targets, and V times the cross entropy with the uniform distribution.
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
        # The gradient is large, so multiply in place. A second backward pass is not possible.
        return gradient.mul_(grad_loss), None, None
