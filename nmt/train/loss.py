"""What training minimises."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class LossSum:
    """Sums over tokens, so that micro-batches add up; scalars in nats.

    Attributes:
        loss: with smoothing; carries the gradient.
        nll: without; exp(nll / n_tokens) is the perplexity.
        n_tokens: real target tokens, EOS counted.
    """

    loss: Tensor
    nll: Tensor
    n_tokens: int


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, *, smoothing: float) -> LossSum:
    """Label-smoothed cross entropy, summed over target tokens.

    The wanted distribution is (1-ε)·onehot + ε/V over all V (Szegedy et al. 2016, section 7), and so
    loss = -(1-ε)·log p[gold] - ε·mean(log p).

    Args:
        logits: (N, V), any float type; reduced in float32 at least.
        targets: (N,) int64, the real tokens of a batch, EOS included, no padding.
        smoothing: ε in [0, 1).
    Raises:
        ValueError: the shapes disagree.
    """
    if logits.shape[:1] != targets.shape:
        raise ValueError(f"{tuple(logits.shape)} logits for {tuple(targets.shape)} targets")
    log_probs = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    nll = F.nll_loss(log_probs, targets, reduction="sum")
    loss = (1 - smoothing) * nll - smoothing * log_probs.mean(-1).sum() if smoothing else nll
    return LossSum(loss, nll.detach(), len(targets))


def symmetric_divergence(logits: Tensor) -> Tensor:
    """R-Drop's regulariser (Liang et al. 2021, equation 2): (KL(p‖q) + KL(q‖p)) / 2, summed over positions.

    Args:
        logits: (2N, V): position i under two dropout masks stands at i and N + i.
    """
    p, q = logits.float().log_softmax(-1).chunk(2)
    return ((p.exp() - q.exp()) * (p - q)).sum() / 2
