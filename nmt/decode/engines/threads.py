"""Choose the number of CPU threads of a search by timing its batches."""

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Iterator

from nmt.model.kernels import parallel_is_faster, torch_threads

# With at least this many multiply-adds per decoding step, all threads are tried first. For one sentence with beam 5, a
# model of 1M parameters takes 5M, where one thread is about as fast as two; a model of 7.6M parameters takes 38M, where
# two threads are 10 % faster.
MIN_PARALLEL_WORK = 20_000_000
# After FIRST_TRY batches of a size class, and then every TRY_EVERY batches, another number of threads is tried, because
# the load of the machine changes. If a core is busy, a batch with two threads may take three times as long.
FIRST_TRY, TRY_EVERY = 8, 32


class ThreadTuner:
    """Runs each batch with the number of torch threads that was fastest for batches of its size.

    torch's threads wait for each other at every operation. So one thread is faster if the work is small, or if another
    program uses a core: the thread on this core is slow, and all others wait for it.
    """

    def __init__(self, n_parameters: int, n_threads: int) -> None:
        self.n_parameters = n_parameters  # of all models of the ensemble
        self.n_threads = n_threads  # torch's number of threads; 1 disables tuning
        self.choices = sorted({1, math.isqrt(n_threads), n_threads})
        self.seconds: defaultdict[int, dict[int, float]] = defaultdict(dict)  # per token, by size class and threads
        self.n_batches: defaultdict[int, int] = defaultdict(int)  # by size class

    @contextlib.contextmanager
    def batch(self, n_hypotheses: int, n_tokens: int) -> Iterator[None]:
        """Set torch's number of threads for a batch, whose time is proportional to `n_tokens`, and time it."""
        if self.n_threads == 1:
            yield
            return
        size_class = n_hypotheses.bit_length()
        n_threads = self.choose(size_class, n_hypotheses)
        start = time.perf_counter()
        with torch_threads(n_threads):
            yield
        self.seconds[size_class][n_threads] = (time.perf_counter() - start) / n_tokens
        self.n_batches[size_class] += 1

    def choose(self, size_class: int, n_hypotheses: int) -> int:
        """Choose the number of threads for the next batch: the fastest so far, or another one in order to time it."""
        seconds, n = self.seconds[size_class], self.n_batches[size_class]
        if not seconds:
            is_large = self.n_parameters * n_hypotheses >= MIN_PARALLEL_WORK
            return self.n_threads if is_large and parallel_is_faster(self.n_threads) else 1
        fastest = min(seconds, key=lambda choice: seconds[choice])
        others = [choice for choice in self.choices if choice != fastest]
        return others[n // TRY_EVERY % len(others)] if n % TRY_EVERY == FIRST_TRY else fastest
