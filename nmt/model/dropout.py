"""Dropout that is fast on a CPU: one random int64 decides eight elements, instead of one Bernoulli sample for each."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zeroes each element with probability p and scales the rest to keep the mean (Srivastava et al. 2014).

    On a CPU p is rounded to n/256: one random byte per element. torch's own dropout takes a fifth of a training step.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return x with elements dropped, or x itself in eval mode."""
        if not (self.training and self.p):
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        n_dropped = min(max(round(self.p * 256), 1), 255)  # of 256 byte values
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64)
        words.random_(-(2**63), None)  # all 64 bits random
        keep = words.view(torch.uint8)[: x.numel()].view(x.shape)
        keep = keep.clamp_(n_dropped - 1, n_dropped).sub_(n_dropped - 1)  # 0 or 1; comparing takes ten times as long
        return x * keep.to(x.dtype).mul_(256 / (256 - n_dropped))
