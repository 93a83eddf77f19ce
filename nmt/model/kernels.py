"""Performance tuning: faster equivalents of plain formulas, and checks of which implementation is faster.

The numbers in the comments were measured with torch 2.13 on two x86-64 cores.
"""

import timeit

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def prefers_fused(query: Tensor) -> bool:
    """Whether fused attention is faster; on a CPU, its backward pass takes 2 (fp32) to 9 (bf16) times as long."""
    return query.device.type != "cpu" or not torch.is_grad_enabled()


def prefers_fp32(query: Tensor, key: Tensor) -> bool:
    """Whether attention has so few scores that fp32 is faster than compiling bf16 matmuls, see `Linear`."""
    is_small = query[..., 0].numel() * key.size(-2) < 2**17
    return is_small and query.dtype == torch.bfloat16 and torch.is_autocast_enabled("cpu")


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension, at least in fp32. On a CPU, padded to 16 elements: 15 take ten times as long."""
    n = scores.size(-1)
    if scores.device.type == "cpu" and n < 16:
        return softmax(F.pad(scores, (0, 16 - n), value=-torch.inf))[..., :n]
    return scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))


def bf16_is_faster(device: torch.device) -> bool:
    """Whether bf16 matmuls are enough faster than fp32 to pay for the casts; on a CPU, both are timed."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False

    def fastest_s(dtype: torch.dtype, n_rounds: int) -> float:
        a, b = torch.ones(2048, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)  # as large as in training
        return min(timeit.repeat(lambda: a @ b, number=1, repeat=n_rounds))

    # Two rounds first: a CPU that emulates bf16 takes up to a second per matmul.
    return all(fastest_s(torch.float32, n) > ratio * fastest_s(torch.bfloat16, n) for n, ratio in ((2, 0.5), (20, 1.5)))


class Linear(nn.Linear):
    """A linear layer. With autocast on a CPU, the number of rows of its bf16 matmuls is rounded up.

    oneDNN compiles a bf16 matmul for each new shape, which takes up to 25 times as long as a small matmul. Batches have
    hundreds of shapes. With rounded sizes, most are in oneDNN's cache.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        rows = x.flatten(0, -2).bfloat16()
        multiple = 1 << max(len(rows).bit_length() - 3, 5)  # adds at most a quarter of the rows, or 31
        padded = F.pad(rows, (0, 0, 0, -len(rows) % multiple))
        return super().forward(padded)[: len(rows)].view(*x.shape[:-1], self.out_features)
