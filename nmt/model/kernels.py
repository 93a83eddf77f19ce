"""Performance tuning: faster equivalents of plain formulas, and checks of which implementation is faster.

`Linear`, `Dropout` and `softmax` compute what torch's do. The numbers in the comments were measured with torch 2.13 on
two x86-64 cores.
"""

import timeit

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def prefers_fused(query: Tensor) -> bool:
    """Return whether fused attention is faster; on a CPU, its backward pass takes 2 (fp32) to 9 (bf16) times longer."""
    return query.device.type != "cpu" or not torch.is_grad_enabled()


def prefers_fp32(query: Tensor, key: Tensor) -> bool:
    """Return whether attention has so few scores that fp32 is faster than compiling bf16 matmuls, see `Linear`."""
    if query.dtype != torch.bfloat16 or not torch.is_autocast_enabled("cpu"):
        return False
    n_scores = query[..., 0].numel() * key.size(-2)
    return n_scores < 2**17


def softmax(scores: Tensor) -> Tensor:
    """Return the softmax over the last dimension, at least in fp32."""
    n = scores.size(-1)
    # On a CPU, 15 elements take ten times as long as 16: pad with elements of weight 0.
    if scores.device.type == "cpu" and n < 16:
        padded = F.pad(scores, (0, 16 - n), value=-torch.inf)
        return softmax(padded)[..., :n]
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return scores.softmax(-1, dtype=dtype)


def bf16_is_faster(device: torch.device) -> bool:
    """Return whether bf16 matmuls are enough faster than fp32 to pay for the casts; on a CPU, both are timed."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False

    def fastest_s(dtype: torch.dtype, n_rounds: int) -> float:
        a = torch.ones(2048, 512, dtype=dtype)  # as large as in training
        b = torch.ones(512, 512, dtype=dtype)
        times = timeit.repeat(lambda: a @ b, number=1, repeat=n_rounds)
        return min(times)

    def speedup(n_rounds: int) -> float:
        return fastest_s(torch.float32, n_rounds) / fastest_s(torch.bfloat16, n_rounds)

    # Two rounds first: a CPU that emulates bf16 takes up to a second per matmul.
    return speedup(2) > 0.5 and speedup(20) > 1.5


class Linear(nn.Linear):
    """A linear layer. With autocast on a CPU, the number of rows of its bf16 matmuls is rounded up.

    oneDNN compiles a bf16 matmul for each new shape, which takes up to 25 times as long as a small matmul. Batches have
    hundreds of shapes. With rounded sizes, most are in oneDNN's cache.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        rows = x.flatten(0, -2).bfloat16()
        n = len(rows)
        multiple = 1 << max(n.bit_length() - 3, 5)  # adds at most a quarter of the rows, or 31
        padded = F.pad(rows, (0, 0, 0, -n % multiple))
        y = super().forward(padded)[:n]
        return y.view(*x.shape[:-1], self.out_features)


class Dropout(nn.Module):
    """Zeroes each element with probability p and scales the rest to keep the mean (Srivastava et al. 2014).

    On a CPU p is rounded to n/256: one random byte per element, eight per int64. torch's own dropout draws a Bernoulli
    sample for each element, which takes a fifth of a training step.
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
        # 1. Draw a byte for each element.
        n = x.numel()
        words = torch.empty(-(-n // 8), dtype=torch.int64)
        words.random_(-(2**63), None)  # all 64 bits random
        random_bytes = words.view(torch.uint8)[:n].view(x.shape)
        # 2. Map the lower byte values to 0 and the others to 1. A comparison would take ten times as long.
        last_dropped = n_dropped - 1
        keep = random_bytes.clamp_(last_dropped, n_dropped).sub_(last_dropped)
        # 3. Scale what is kept.
        scale = 256 / (256 - n_dropped)
        return x * keep.to(x.dtype).mul_(scale)
