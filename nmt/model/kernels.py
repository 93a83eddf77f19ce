"""Performance tuning: faster equivalents of plain formulas, and checks of which implementation is faster.

The numbers in the comments were measured with torch 2.13 on two x86-64 cores.
"""

import contextlib
import functools
import math
import timeit
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIMD_KEYS = 16  # the CPU's softmax over 15 keys takes ten times as long as over 16
CACHE_SLOTS = 16  # KV caches grow by multiples of this: matmuls over 15 keys take twice as long as over 16
FEW_QUERIES = 32  # with fewer queries, torch's fused attention in bf16 takes twice as long as equation 1 written out
# Tokens per group in `top_continuations`. With V = 8,000, 64 sentences and 5 beams, top-k over groups of 64 takes a
# quarter of the time of top-k over all tokens (1.7 instead of 6.9 ms); with V = 32,000 a tenth.
GROUP = 64
CALLS_BEFORE_TRACING = 64  # tracing takes as long as about 200 traced calls save


def prefers_fused(query: Tensor) -> bool:
    """Whether torch's fused attention is faster than equation 1 written out, for query (B, H, T, d).

    On a CPU, the backward pass of fused attention takes 2 (fp32) to 9 (bf16) times as long.
    """
    if query.device.type != "cpu":
        return True
    few_bf16 = query.size(2) < FEW_QUERIES and query.dtype == torch.bfloat16
    return not (torch.is_grad_enabled() or few_bf16)


def bf16_is_faster(device: torch.device) -> bool:
    """Whether bf16 matmuls are enough faster than fp32 to pay for the casts; on a CPU, both are timed."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    a, b = torch.ones(2048, 512), torch.ones(512, 512)  # as large as in training
    matmuls = [functools.partial(torch.matmul, a.to(dtype), b.to(dtype)) for dtype in (torch.float32, torch.bfloat16)]

    def speedup(n_rounds: int) -> float:
        fp32_s, bf16_s = interleaved_seconds(matmuls, n_rounds)
        return min(fp32_s) / min(bf16_s)

    # Two rounds first: a CPU that emulates bf16 takes up to a second per matmul.
    return speedup(2) > 0.5 and speedup(20) > 1.5


def parallel_is_faster(n_threads: int) -> bool:
    """Whether `n_threads` threads are now faster than one, measured with matmuls that take 80 ms in all."""
    matmul = functools.partial(torch.matmul, torch.ones(256, 512), torch.ones(512, 512))
    one_s, all_s = interleaved_seconds([torch_threads(n)(matmul) for n in (1, n_threads)], n_rounds=24)
    return sum(all_s[12:]) < 0.9 * sum(one_s[12:])  # the first rounds include the start of threads


def interleaved_seconds(calls: Sequence[Callable[[], object]], n_rounds: int) -> list[tuple[float, ...]]:
    """Time several calls, each once per round, because the load of the machine changes. Returns seconds per call."""
    rounds = [[timeit.timeit(call, number=1) for call in calls] for _ in range(n_rounds)]
    return list(zip(*rounds, strict=True))


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
    """Pad scores (..., T, S) with -inf and value (..., S, d) with 0 to `SIMD_KEYS` keys, which changes no weight.

    Only with autograd and several queries: a single query gains nothing, and a trace would freeze the number of keys.
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
    """Reshape (B, K, V) to (B, K, G, 64), groups of neighboring tokens; the last group is padded with -inf."""
    if x.size(-1) % GROUP:
        x = F.pad(x, (0, -x.size(-1) % GROUP), value=-math.inf)
    return x.view(*x.shape[:2], -1, GROUP)


def top_continuations(log_probs: Tensor, live: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the n largest sums `log_probs + live[..., None]` over the beams and tokens of each sentence, best first.

    Two-level top-k: the n groups with the largest maxima contain the n largest sums, so only these groups are searched.
    log_probs is (B, K, V) and live (B, K). Returns sums, beam indices, tokens and the tokens' log_probs, each (B, n);
    n is at most K*V.
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
    flat = chosen.gather(1, index // GROUP) * GROUP + index % GROUP  # index into K*G*64
    beams = flat // (n_groups * GROUP)
    tokens = (flat % (n_groups * GROUP)).clamp(max=n_vocab - 1)  # padding (-inf) ranks last; clamped to a valid id
    return best, beams, tokens, candidates.flatten(1).gather(1, index)


class Traced:
    """A method that is traced (`torch.jit.trace`) after `CALLS_BEFORE_TRACING` calls, to avoid Python overhead.

    At batch size 1 Python overhead is more than half of a step of search: traced layers take 0.6 of the time. In torch
    2.13 torch.export is no replacement: exporting takes more than 10 s, the exported layers take 1.4 times as long as
    the eager ones, and AOTInductor cannot compile the write into the cache. Sizes may change from call to call;
    control flow may depend only on which arguments are None and on their dtypes: each such signature has its own trace.

    Args:
        method: takes tensors and nested sequences of tensors, by keyword.
        layers: the modules that the method uses; no two of them share weights.
    """

    def __init__(self, method: Callable[..., Tensor], layers: Iterable[nn.Module]) -> None:
        self.method = method
        self.layers = layers
        self.n_calls: Counter[tuple[Any, ...]] = Counter()  # by signature
        self.traces: dict[tuple[Any, ...], Callable[..., Tensor] | None] = {}  # None: torch fails to trace it

    def __call__(self, **arguments: Any) -> Tensor:
        """Call the method or its trace, without the arguments that are None."""
        given = {name: value for name, value in arguments.items() if value is not None}
        values = tuple(given.values())
        signature = tuple((name, dtype_of(value)) for name, value in given.items())
        self.n_calls[signature] += 1
        if self.n_calls[signature] > CALLS_BEFORE_TRACING and signature not in self.traces:
            self.traces[signature] = trace(_Method(self.method, self.layers, tuple(given)), values)
        run = self.traces.get(signature)
        return run(*values) if run else self.method(**given)


def dtype_of(value: Any) -> torch.dtype:
    """The dtype of a tensor, or of the first in nested sequences of tensors."""
    while not isinstance(value, Tensor):
        value = value[0]
    return value.dtype


class _Method(nn.Module):
    """The method as a module, because `torch.jit.trace` handles weights of every kind only as parts of a module."""

    def __init__(self, method: Callable[..., Tensor], layers: Iterable[nn.Module], names: Sequence[str]) -> None:
        super().__init__()
        self.method = method
        self.layers = nn.ModuleList(layers)
        self.names = names

    def forward(self, *values: Any) -> Tensor:
        return self.method(**dict(zip(self.names, values, strict=True)))


def trace(module: nn.Module, arguments: tuple[Any, ...]) -> Callable[..., Tensor] | None:
    """Trace a module. Returns None if torch fails to trace it."""
    with contextlib.suppress(AttributeError, RuntimeError, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.trace is deprecated
        traced: Callable[..., Tensor] = torch.jit.trace(module, arguments, check_trace=False)  # type: ignore[no-untyped-call]
        return traced
    return None
