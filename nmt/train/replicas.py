"""Threads that share a training step on a CPU: each works on its part of a batch, with a gradient of its own.

Python's lock is free while torch computes, and a backward pass runs in the thread that asks for it. So threads
with a core each meet once a step, where torch's own threads meet at every operation; and unlike with a process a
core, there is one set of weights, one update, and nothing to send.
"""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import nn

Result = TypeVar("Result")


class Replicas:
    """A model, once for each thread: the weights are the same tensors, the gradients are not.

    Args:
        model: the first of them; of several ranks, from `distributed.parallel`.
        n: how many.

    Attributes:
        models: one a thread, the given one first.
    """

    def __init__(self, model: nn.Module, n: int = 1) -> None:
        self.models = [model, *(_with_weights_of(model) for _ in range(n - 1))]
        self.n_threads = torch.get_num_threads()
        self.share = max(self.n_threads // n, 1)
        self.pool = ThreadPoolExecutor(n, "nmt-replica", self._begin)

    def __len__(self) -> int:
        return len(self.models)

    def _begin(self) -> None:
        torch.set_num_threads(self.share)
        # Autocast keeps the weights that it has cast, for all threads in one place, and drops them when one of
        # them leaves it. Thus none ever does, and `each` drops them.
        torch.autocast_increment_nesting()

    def each(self, work: Callable[[int, nn.Module], Result]) -> list[Result]:
        """What the work returns for every number and its model, all done at the same time."""
        if len(self) == 1:
            return [work(0, self.models[0])]
        torch.set_num_threads(self.share)  # to MKL, the threads of all threads
        try:
            done = [self.pool.submit(work, *numbered) for numbered in enumerate(self.models)]
            wait(done)
        finally:
            torch.set_num_threads(self.n_threads)
            torch.clear_autocast_cache()
        return [future.result() for future in done]

    def train(self) -> None:
        """Let all of them drop out."""
        for model in self.models:
            model.train()

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for model in self.models:
            model.zero_grad(set_to_none=True)

    def add_gradients(self) -> None:
        """Add all gradients to those of the first model; in their order, so that the sum is the same each time."""
        first, *others = ([p.grad for p in model.parameters() if p.grad is not None] for model in self.models)
        for other in others:
            torch._foreach_add_(first, other)

    def close(self) -> None:
        """End the threads."""
        self.pool.shutdown()


def _with_weights_of(model: nn.Module) -> nn.Module:
    replica = copy.deepcopy(model)
    for own, shared in zip(replica.parameters(), model.parameters(), strict=True):
        own.data = shared.data
    return replica
