"""Performance tuning: faster equivalents of torch's modules, and functions that choose the faster implementation.

`Linear`, `Dropout` and `softmax` compute the same as their counterparts in torch. The numbers in the comments were
measured with torch 2.13 on two x86-64 cores.
"""

import timeit

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def prefers_fused(query: Tensor) -> bool:
    """Return whether fused attention is faster than plain attention.

    Only for training on a CPU, it is slower. There, its backward pass takes 2 (fp32) to 9 (bf16) times as long.
    """
    return query.device.type != "cpu" or not torch.is_grad_enabled()


def prefers_fp32(query: Tensor, key: Tensor) -> bool:
    """Return whether attention should use fp32 instead of bf16 on a CPU.

    With few scores, compiling a bf16 matmul takes longer than the matmul in fp32, see `Linear`.
    """
    if query.dtype != torch.bfloat16 or not torch.is_autocast_enabled("cpu"):
        return False
    n_scores = query[..., 0].numel() * key.size(-2)
    return n_scores < 2**17


def softmax(scores: Tensor) -> Tensor:
    """Return the softmax over the last dimension, computed in fp32 or a more precise type."""
    n = scores.size(-1)
    # On a CPU, a softmax over 15 elements takes ten times as long as over 16. So pad to 16 with elements of weight 0.
    if scores.device.type == "cpu" and n < 16:
        padded = F.pad(scores, (0, 16 - n), value=-torch.inf)
        return softmax(padded)[..., :n]
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return scores.softmax(-1, dtype=dtype)


def bf16_is_faster(device: torch.device) -> bool:
    """Return whether bf16 is faster than fp32, casts included.

    On a CPU, matmuls of both types are timed.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False

    def fastest_s(dtype: torch.dtype, n_rounds: int) -> float:
        a = torch.ones(2048, 512, dtype=dtype)  # matrices as large as in training
        b = torch.ones(512, 512, dtype=dtype)
        times = timeit.repeat(lambda: a @ b, number=1, repeat=n_rounds)
        return min(times)

    def speedup(n_rounds: int) -> float:
        return fastest_s(torch.float32, n_rounds) / fastest_s(torch.bfloat16, n_rounds)

    # Time only two rounds first, because a CPU that emulates bf16 takes up to a second per matmul.
    return speedup(2) > 0.5 and speedup(20) > 1.5


class Linear(nn.Linear):
    """A linear layer. With autocast on a CPU, it pads its input, so that fewer shapes occur.

    oneDNN compiles a bf16 matmul for each new shape. This takes up to 25 times as long as a small matmul.
    """

    def forward(self, x: Tensor, outputs: Tensor | None = None) -> Tensor:
        """Map x (..., D) to (..., O). With `outputs` (K,), compute only these outputs, (..., K)."""
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if outputs is not None:
            weight, bias = weight[outputs], None if bias is None else bias[outputs]
        if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
            return F.linear(x, weight, bias)
        rows = x.flatten(0, -2).bfloat16()
        n = len(rows)
        multiple = 1 << max(n.bit_length() - 3, 5)  # adds at most n / 4 rows, or 31 if n is small
        padded = F.pad(rows, (0, 0, 0, -n % multiple))
        y = F.linear(padded, weight, bias)[:n]
        return y.view(*x.shape[:-1], len(weight))


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014): zeroes each element with probability p, and scales the rest to keep the mean.

    On a CPU, a random byte decides whether an element is dropped, so p is rounded to a multiple of 1/256. torch's own
    dropout is slower: it takes a fifth of a training step.
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
        n_dropped = min(max(round(self.p * 256), 1), 255)  # how many of the 256 byte values drop an element
        # 1. Draw a byte for each element.
        n = x.numel()
        words = torch.empty(-(-n // 8), dtype=torch.int64)
        words.random_(-(2**63), None)  # all 64 bits are random
        random_bytes = words.view(torch.uint8)[:n].view(x.shape)
        # 2. Map the lower byte values to 0 and the others to 1. A comparison would take ten times as long.
        last_dropped = n_dropped - 1
        keep = random_bytes.clamp_(last_dropped, n_dropped).sub_(last_dropped)
        # 3. Scale the elements that are kept.
        scale = 256 / (256 - n_dropped)
        return x * keep.to(x.dtype).mul_(scale)
