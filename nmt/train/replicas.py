"""Data parallelism by threads: replicas of a model that share its weights, each with its own gradient.

torch releases the GIL while it computes, and a backward pass runs in the thread that calls it. These threads
synchronize once per step; torch's own threads synchronize at every operation. Unlike processes, the threads share one
set of weights and one update, so they need no communication.
"""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import nn

Result = TypeVar("Result")


class Replicas:
    """A model and its replicas, one per thread. With several ranks, the model comes from `distributed.parallel`."""

    def __init__(self, model: nn.Module, n: int = 1) -> None:
        self.models = [model]
        for _ in range(n - 1):
            replica = copy.deepcopy(model)
            for own, shared in zip(replica.parameters(), model.parameters(), strict=True):
                own.data = shared.data
            self.models.append(replica)
        # `torch.set_num_threads` is per thread: the main thread keeps its setting, for the optimizer and validation.
        self.n_torch_threads_each = max(torch.get_num_threads() // n, 1)
        self.pool = ThreadPoolExecutor(n, "nmt-replica", self._start_thread)

    def __len__(self) -> int:
        return len(self.models)

    def _start_thread(self) -> None:
        torch.set_num_threads(self.n_torch_threads_each)
        # Autocast's cache of cast weights is global and cleared when a thread exits its outermost autocast context.
        # So these threads never leave an outer context, and `run` clears the cache.
        torch.autocast_increment_nesting()

    def run(self, work: Callable[[int, nn.Module], Result]) -> list[Result]:
        """Call work(i, replica i) for all replicas, in parallel; return the results in order."""
        if len(self) == 1:
            return [work(0, self.models[0])]
        try:
            futures = [self.pool.submit(work, i, model) for i, model in enumerate(self.models)]
            wait(futures)
        finally:
            torch.clear_autocast_cache()
        return [future.result() for future in futures]

    def train(self) -> None:
        """Set all replicas to training mode."""
        for model in self.models:
            model.train()

    def zero_grad(self) -> None:
        for model in self.models:
            model.zero_grad(set_to_none=True)

    def sum_gradients(self) -> None:
        """Add all gradients to those of the first replica, in a fixed order, so that rounding is reproducible."""
        first, *others = ([p.grad for p in model.parameters() if p.grad is not None] for model in self.models)
        for other in others:
            torch._foreach_add_(first, other)

    def close(self) -> None:
        """Shut down the thread pool."""
        self.pool.shutdown()
