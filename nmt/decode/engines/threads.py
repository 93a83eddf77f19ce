"""The number of CPU threads of a search, found by timing its batches."""

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Iterator

import torch

# Multiply-adds of a decoding step from which all threads are tried first. One sentence with beam 5 has 5M with
# 1M parameters, where one thread is about as fast as two, and 38M with 7.6M parameters, where two are faster by 10 %.
MIN_PARALLEL_WORK = 20_000_000
# Batches of a size class after which another number of threads is tried, and then again every so many batches, because
# the load of the machine changes. With a busy core, a batch with two threads may take three times as long.
FIRST_TRY, TRY_EVERY = 8, 32


def parallel_is_faster(n_threads: int) -> bool:
    """Whether so many threads are faster than one now, with matmuls that take 80 ms in all."""
    a, b = torch.ones(256, 512), torch.ones(512, 512)
    seconds: dict[int, list[float]] = {1: [], n_threads: []}
    for _ in range(24):
        for n, of_n in seconds.items():  # interleaved, because the load of the machine changes
            torch.set_num_threads(n)
            start = time.perf_counter()
            a @ b
            of_n.append(time.perf_counter() - start)
    return sum(seconds[n_threads][12:]) < 0.9 * sum(seconds[1][12:])  # in the first rounds, threads start


class ThreadTuner:
    """Runs each batch with the number of torch threads that was fastest for batches of its size.

    torch's threads wait for each other at every operation. So one thread is faster if the work is small, and if
    another program uses a core: then one of the threads waits for that core, and the others for it.

    Args:
        n_parameters: of the models that search.
        n_threads: torch's number of threads; nothing is tuned if it is 1.
    """

    def __init__(self, n_parameters: int, n_threads: int) -> None:
        self.n_parameters = n_parameters
        self.n_threads = n_threads
        self.choices = sorted({1, math.isqrt(n_threads), n_threads})
        self.seconds: defaultdict[int, dict[int, float]] = defaultdict(dict)  # size class -> threads -> s per token
        self.n_batches: defaultdict[int, int] = defaultdict(int)  # by size class

    @contextlib.contextmanager
    def batch(self, n_hypotheses: int, n_tokens: int) -> Iterator[None]:
        """Set torch's number of threads for a batch, and time it.

        Args:
            n_hypotheses: sentences times beams.
            n_tokens: what the time is proportional to within a size class.
        """
        if self.n_threads == 1:
            yield
            return
        size_class = n_hypotheses.bit_length()
        n_threads = self.choose(size_class, n_hypotheses)
        torch.set_num_threads(n_threads)
        start = time.perf_counter()
        try:
            yield
        finally:
            torch.set_num_threads(self.n_threads)
        self.seconds[size_class][n_threads] = (time.perf_counter() - start) / n_tokens
        self.n_batches[size_class] += 1

    def choose(self, size_class: int, n_hypotheses: int) -> int:
        """The number of threads of the next batch: the fastest so far, or another one to time it."""
        seconds, n = self.seconds[size_class], self.n_batches[size_class]
        if not seconds:
            is_large = self.n_parameters * n_hypotheses >= MIN_PARALLEL_WORK
            return self.n_threads if is_large and parallel_is_faster(self.n_threads) else 1
        fastest = min(seconds, key=lambda choice: seconds[choice])
        others = [choice for choice in self.choices if choice != fastest]
        return others[n // TRY_EVERY % len(others)] if n % TRY_EVERY == FIRST_TRY else fastest
