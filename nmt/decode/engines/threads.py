"""The number of CPU threads of a search, found by timing its batches."""

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Iterator

from nmt.model.kernels import parallel_is_faster, torch_threads

# Multiply-adds of a decoding step from which all threads are tried first. One sentence with beam 5 has 5M with
# 1M parameters, where one thread is about as fast as two, and 38M with 7.6M parameters, where two are faster by 10 %.
MIN_PARALLEL_WORK = 20_000_000
# Batches of a size class after which another number of threads is tried, and then again every so many batches, because
# the load of the machine changes. With a busy core, a batch with two threads may take three times as long.
FIRST_TRY, TRY_EVERY = 8, 32


class ThreadTuner:
    """Runs each batch with the number of torch threads that was fastest for batches of its size.

    torch's threads wait for each other at every operation. So one thread is faster if the work is small, and if
    another program uses a core: then one of the threads waits for that core, and the others for it.
    """

    def __init__(self, n_parameters: int, n_threads: int) -> None:
        self.n_parameters = n_parameters  # of the models that search
        self.n_threads = n_threads  # torch's; nothing is tuned if it is 1
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
        """The number of threads of the next batch: the fastest so far, or another one to time it."""
        seconds, n = self.seconds[size_class], self.n_batches[size_class]
        if not seconds:
            is_large = self.n_parameters * n_hypotheses >= MIN_PARALLEL_WORK
            return self.n_threads if is_large and parallel_is_faster(self.n_threads) else 1
        fastest = min(seconds, key=lambda choice: seconds[choice])
        others = [choice for choice in self.choices if choice != fastest]
        return others[n // TRY_EVERY % len(others)] if n % TRY_EVERY == FIRST_TRY else fastest
