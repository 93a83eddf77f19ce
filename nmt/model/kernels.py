"""Performance tuning: faster equivalents of plain formulas, and checks of which implementation is faster.

The numbers in the comments were measured with torch 2.13 on two x86-64 cores.
"""

import math
import timeit

import torch
import torch.nn.functional as F
from torch import Tensor

SIMD_KEYS = 16  # the CPU's softmax over 15 keys takes ten times as long as over 16


def prefers_fused(query: Tensor) -> bool:
    """Whether torch's fused attention is faster than equation 1 written out.

    On a CPU, the backward pass of fused attention takes 2 (fp32) to 9 (bf16) times as long.
    """
    return query.device.type != "cpu" or not torch.is_grad_enabled()


def bf16_is_faster(device: torch.device) -> bool:
    """Whether bf16 matmuls are enough faster than fp32 to pay for the casts; on a CPU, both are timed."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False

    def fastest_s(dtype: torch.dtype, n_rounds: int) -> float:
        a, b = torch.ones(2048, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)  # as large as in training
        return min(timeit.repeat(lambda: a @ b, number=1, repeat=n_rounds))

    def speedup(n_rounds: int) -> float:
        return fastest_s(torch.float32, n_rounds) / fastest_s(torch.bfloat16, n_rounds)

    # Two rounds first: a CPU that emulates bf16 takes up to a second per matmul.
    return speedup(2) > 0.5 and speedup(20) > 1.5


def pad_keys(scores: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Pad scores (..., T, S) with -inf and value (..., S, d) with 0 to `SIMD_KEYS` keys, which changes no weight.

    Only in training: elsewhere attention is fused.
    """
    n_keys = scores.size(-1)
    if n_keys >= SIMD_KEYS or not torch.is_grad_enabled() or scores.device.type != "cpu":
        return scores, value
    missing = SIMD_KEYS - n_keys
    return F.pad(scores, (0, missing), value=-math.inf), F.pad(value, (0, 0, 0, missing))
