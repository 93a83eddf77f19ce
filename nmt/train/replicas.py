"""Data parallelism with threads: each thread computes the gradient of its share of a batch with a replica of the model.

torch releases the GIL while it computes, and a backward pass runs in the thread that calls it. These threads wait for
each other only at the end of a step; torch's own threads synchronize at every operation. Unlike processes, the threads
share one set of weights and one update, so they need no communication.
"""

import copy
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import nn

Result = TypeVar("Result")


class Replicas:
    """A model and its replicas, one per thread. With several ranks, the model comes from `distributed.parallel`."""

    def __init__(self, model: nn.Module, n: int = 1) -> None:
        self.model = model  # the optimizer updates its weights; with one thread, it is also the only replica
        # Maps each parameter of `model` to the parameters of the replicas, which share its storage.
        self.copies: defaultdict[nn.Parameter, list[nn.Parameter]] = defaultdict(list)
        self.models = [model] if n == 1 else [self._replica() for _ in range(n)]
        # `torch.set_num_threads` affects only the thread that calls it. The main thread, which runs the optimizer and
        # validation, still uses all cores.
        self.n_torch_threads_each = max(torch.get_num_threads() // n, 1)
        self.pool = ThreadPoolExecutor(n, "nmt-replica", self._start_thread)

    def _replica(self) -> nn.Module:
        """Return a copy of the model whose parameters share storage with the model's.

        Tied weights become one parameter per module, so the gradient of an embedding can be sparse even if it is tied
        to the projection, whose gradient is dense. A sparse gradient has only the rows of the batch's tokens.
        """
        replica = copy.deepcopy(self.model, {id(p): p for p in self.model.parameters()})
        for module in replica.modules():
            for name, shared in list(module.named_parameters(recurse=False)):
                parameter = nn.Parameter(shared.data, shared.requires_grad)
                setattr(module, name, parameter)
                self.copies[shared].append(parameter)
            if isinstance(module, nn.Embedding):
                module.sparse = True
        return replica

    def _start_thread(self) -> None:
        torch.set_num_threads(self.n_torch_threads_each)
        # Autocast's cache of cast weights is global and cleared when a thread exits its outermost autocast context.
        # So these threads never leave an outer context, and `run` clears the cache.
        torch.autocast_increment_nesting()

    def run(self, work: Callable[[int, nn.Module], Result]) -> list[Result]:
        """Call work(i, replica i) for all replicas, in parallel; return the results in order."""
        if len(self.models) == 1:
            return [work(0, self.models[0])]
        try:
            futures = [self.pool.submit(work, i, model) for i, model in enumerate(self.models)]
            wait(futures)
        finally:
            torch.clear_autocast_cache()
        return [future.result() for future in futures]

    def train(self) -> None:
        for model in self.models:
            model.train()

    def zero_grad(self) -> None:
        for model in (self.model, *self.models):
            model.zero_grad(set_to_none=True)

    def collect_gradients(self) -> None:
        """Set the gradients of `model` to the sums over all replicas. Without replicas, `model` has its gradients.

        The order of addition is fixed, so the sums are the same bit for bit.
        """
        for parameter, copies in self.copies.items():
            for one in copies:
                gradient, one.grad = one.grad, None
                if gradient is None:
                    continue
                if parameter.grad is None:
                    parameter.grad = gradient.to_dense() if gradient.is_sparse else gradient
                else:
                    parameter.grad.add_(gradient)

    def close(self) -> None:
        self.pool.shutdown()
