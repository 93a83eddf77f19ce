"""What is tuned for a machine: each function equals a plain formula and exists only because it is faster.

Measured with torch 2.13 on two x86-64 cores.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

SIMD_KEYS = 16  # the CPU's softmax over 15 keys takes ten times as long as over 16
CACHE_SLOTS = 16  # KV caches grow by this many slots: products over 15 keys take twice as long as over 16
FEW_QUERIES = 32  # below this number the fused kernel's bf16 products take twice as long as the formula's
# Neighboring tokens. With V = 8,000, 64 sentences and 5 beams, top-k over groups of 64 takes a quarter of the time of
# top-k over all tokens (1.7 against 6.9 ms); with V = 32,000 a tenth.
GROUP = 64


def prefers_fused(query: Tensor) -> bool:
    """Whether torch's fused attention is faster than equation 1 written out.

    On a CPU its backward pass takes 2 (fp32) to 9 times (bf16) as long.

    Args:
        query: (B, H, T, d).
    """
    if query.device.type != "cpu":
        return True
    few_bf16 = query.size(2) < FEW_QUERIES and query.dtype == torch.bfloat16
    return not (torch.is_grad_enabled() or few_bf16)


def bf16_is_faster(device: torch.device) -> bool:
    """Whether bf16 matmuls are faster than fp32 by enough to pay for the casts: timed on a CPU."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False

    def matmul(dtype: torch.dtype) -> Callable[[], Tensor]:
        a, b = torch.ones(2048, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)  # as large as in training
        return lambda: a @ b

    fp32_s, bf16_s = interleaved_seconds([matmul(torch.float32), matmul(torch.bfloat16)], n_rounds=20)
    return min(fp32_s) > 1.5 * min(bf16_s)


def parallel_is_faster(n_threads: int) -> bool:
    """Whether so many threads are faster than one now, with matmuls that take 80 ms in all."""
    a, b = torch.ones(256, 512), torch.ones(512, 512)

    def matmul(n: int) -> Callable[[], Tensor]:
        def run() -> Tensor:
            with torch_threads(n):
                return a @ b

        return run

    one_s, all_s = interleaved_seconds([matmul(1), matmul(n_threads)], n_rounds=24)
    return sum(all_s[12:]) < 0.9 * sum(one_s[12:])  # in the first rounds, threads start


def interleaved_seconds(calls: Sequence[Callable[[], object]], n_rounds: int) -> list[list[float]]:
    """The durations of several calls, each called once per round, because the load of the machine changes."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(n_rounds):
        for call, of_call in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            call()
            of_call.append(time.perf_counter() - start)
    return seconds


@contextlib.contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Set torch's number of CPU threads for the duration of the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pad_keys(scores: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Pad scores with -inf and values with 0 to `SIMD_KEYS` keys, which changes no weight.

    Only in training: one query gains nothing, and tracing (without autograd) would freeze the number of keys.

    Args:
        scores: (..., T, S).
        value: (..., S, d).
    """
    n_queries, n_keys = scores.shape[-2:]
    if n_keys >= SIMD_KEYS or n_queries == 1 or not torch.is_grad_enabled() or scores.device.type != "cpu":
        return scores, value
    missing = SIMD_KEYS - n_keys
    return F.pad(scores, (0, missing), value=-math.inf), F.pad(value, (0, 0, 0, missing))


def round_up(n: int, multiple: int) -> int:
    """The smallest multiple that is at least n."""
    return n + -n % multiple


def grouped(x: Tensor) -> Tensor:
    """(B, K, V) to (B, K, G, 64): the vocabulary in groups of neighboring tokens, the last filled with -inf."""
    if x.size(-1) % GROUP:
        x = F.pad(x, (0, -x.size(-1) % GROUP), value=-math.inf)
    return x.view(*x.shape[:2], -1, GROUP)


def top_continuations(log_probs: Tensor, live: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The n largest of `log_probs + live[..., None]` over the beams and tokens of each sentence, best first.

    Two-level top-k: the n groups with the largest maxima contain the n largest, so only these are searched.

    Args:
        log_probs: (B, K, V).
        live: (B, K).
        n: wanted; at most K*V are returned.
    Returns:
        sums, beam indices, tokens and the tokens' log_probs, each (B, n).
    """
    n_beams, n_vocab = log_probs.shape[1:]
    n = min(n, n_beams * n_vocab)
    groups = grouped(log_probs)  # (B, K, G, 64)
    n_groups = groups.size(2)
    maxima = (groups.amax(-1) + live[..., None]).flatten(1)  # (B, K*G)
    chosen = maxima.topk(min(n, maxima.size(1)), sorted=False).indices  # (B, C), C <= n
    candidates = groups.flatten(1, 2).gather(1, chosen[..., None].expand(-1, -1, GROUP))  # (B, C, 64)
    sums = candidates + live.gather(1, chosen // n_groups)[..., None]  # (B, C, 64)
    best, index = sums.flatten(1).topk(n)  # (B, n)
    flat = chosen.gather(1, index // GROUP) * GROUP + index % GROUP  # into K*G*64
    beams = flat // (n_groups * GROUP)
    tokens = (flat % (n_groups * GROUP)).clamp(max=n_vocab - 1)  # the fill ranks last, behind -inf in the vocabulary
    return best, beams, tokens, candidates.flatten(1).gather(1, index)
