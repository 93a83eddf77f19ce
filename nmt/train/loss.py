"""The training loss: label-smoothed cross entropy, with a softmax over the vocabulary or a sampled softmax."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK = 2**19  # logits per chunk; in float32, they fit into the cache of a CPU


@dataclass(frozen=True)
class LossSum:
    """Losses in nats, summed over tokens. Sums of several micro-batches can be added, unlike means."""

    loss: Tensor  # loss with label smoothing, differentiable
    nll: Tensor  # loss without label smoothing; exp(nll / n_tokens) is the perplexity
    n_tokens: int  # number of target tokens, EOS included


class PieceSample(NamedTuple):
    """The K pieces of a sampled softmax. They represent all V pieces of the vocabulary."""

    pieces: Tensor  # (K,) int64, the id of each piece
    weights: Tensor  # (K,) the number of pieces that each one represents; the sum is V
    labels: Tensor  # (N,) int64, the index of each target token in `pieces`


def sample_pieces(targets: Tensor, n_vocab: int, share: float) -> PieceSample:
    """Choose the pieces of a sampled softmax: all pieces of the batch's targets, and a random sample of the others.

    In a small model, up to half of the time of a step is spent on logits. Most of them belong to pieces that do not
    occur in the batch, and only the sum of their exponentials matters. So it is estimated from a sample, as in Jean et
    al. (2015). Unlike theirs, this estimate is unbiased, because sampled pieces also count for those left out.

    Args:
        targets: (N,) int64, the target tokens of the batch.
        n_vocab: V, the size of the vocabulary.
        share: K / V, 0-1. At least a third of the K pieces are sampled ones, if there are so many.
    """
    own, labels = targets.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    is_other = torch.ones(n_vocab, dtype=torch.bool, device=targets.device)
    is_other[own] = False
    (others,) = is_other.nonzero(as_tuple=True)
    n_sampled = max(round(share * n_vocab) - len(own), len(own) // 2, 1)
    sampled = others[torch.randperm(len(others), device=targets.device)[:n_sampled]]
    weights = torch.ones(len(own) + len(sampled), device=targets.device)
    weights[len(own) :] = len(others) / max(len(sampled), 1)
    return PieceSample(torch.cat([own, sampled]), weights, labels)


def smoothed_cross_entropy(
    logits: Tensor, targets: Tensor, *, smoothing: float, weights: Tensor | None = None
) -> LossSum:
    """Return the label-smoothed cross entropy, summed over target tokens.

    The target distribution is q = (1-ε)·onehot + ε/V over all V tokens (Szegedy et al. 2016, section 7). So the loss of
    a token is -(1-ε)·log p[target] - ε·mean(log p).

    Args:
        logits: (N, V). The loss is float64 for float64 logits, otherwise float32.
        targets: (N,) int64, the target tokens, with EOS and without padding.
        smoothing: ε in [0, 1).
        weights: (V,), the number of pieces that each logit represents, see `sample_pieces`; by default 1. Targets must
            have the weight 1.
    """
    if logits.shape[:1] != targets.shape:
        raise ValueError(f"{tuple(logits.shape)} logits for {tuple(targets.shape)} targets")
    loss, nll = _SmoothedCrossEntropy.apply(logits, targets, smoothing, weights)  # type: ignore[no-untyped-call]
    return LossSum(loss, nll, len(targets))


class _SmoothedCrossEntropy(torch.autograd.Function):
    """The label-smoothed cross entropy. The forward pass also computes the gradient, which is softmax(logits) - q.

    The logits are large. Computing in chunks that fit into the cache of a CPU takes half as long as autograd.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, smoothing: float, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        loss = torch.zeros((), dtype=dtype, device=logits.device)
        nll = torch.zeros_like(loss)
        n_vocab = logits.size(1)
        counts = logits.new_ones(n_vocab, dtype=dtype) if weights is None else weights.to(dtype)
        log_counts = counts.log()
        uniform = counts / counts.sum()  # (V,)
        floor = smoothing * uniform  # the smallest value of q
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        n_rows = max(len(logits), 1)
        if logits.device.type == "cpu":
            n_rows = max(CHUNK // n_vocab, 1)
        for start in range(0, len(logits), n_rows):
            rows = slice(start, start + n_rows)
            x = logits[rows].to(dtype)  # (R, V) for a chunk of R rows
            target = targets[rows, None]  # (R, 1)
            mean_logits = x @ uniform  # (R,)
            if weights is not None:
                x = x + log_counts  # exp(x) is now count·exp(logit)
            probs = x.softmax(-1)
            # logsumexp(x) = max(x) - log(max(p)), where p = softmax(x). It is finite, because max(p) is at least 1/V.
            log_total = x.amax(-1) - probs.amax(-1).log()  # (R,)
            sum_log_total = log_total.sum()
            # Compute the cross entropies with the targets and with the uniform distribution.
            chunk_nll = sum_log_total - x.gather(1, target).sum()
            chunk_uniform = sum_log_total - mean_logits.sum()
            nll = nll + chunk_nll
            loss = loss + (1 - smoothing) * chunk_nll + smoothing * chunk_uniform
            if gradient is not None:
                probs.sub_(floor)
                at_target = probs.new_full(target.shape, smoothing - 1)
                gradient[rows] = probs.scatter_add_(1, target, at_target)
        if gradient is not None:
            ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        # The gradient is large, so multiply in place. A second backward pass is not possible.
        return gradient.mul_(grad_loss), None, None, None
