"""Data parallelism by threads: replicas of a model that share its weights, each with its own gradient.

torch releases Python's lock while it computes, and a backward pass runs in the thread that calls it. These threads
synchronize once per step, where torch's own threads synchronize at every operation; and unlike processes they need
no communication: one set of weights, one update.
"""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from nmt.config import TrainSettings
from nmt.model.base import Seq2Seq

Result = TypeVar("Result")

# Positions per thread and step. At d_model 128, two threads with 384 each are as fast as two of torch's own threads
# on free cores, and twice as fast if another program uses one of the cores.
MIN_THREAD_TOKENS = 384


class Replicas:
    """A model and its replicas.

    Args:
        model: the first replica; with several ranks, from `distributed.parallel`.
        n: number of replicas, one per thread.

    Attributes:
        models: the replicas, the given model first.
    """

    def __init__(self, model: nn.Module, n: int = 1) -> None:
        self.models = [model, *(_with_weights_of(model) for _ in range(n - 1))]
        self.n_torch_threads = torch.get_num_threads()
        self.n_torch_threads_each = max(self.n_torch_threads // n, 1)
        self.pool = ThreadPoolExecutor(n, "nmt-replica", self._start_thread)
        if n > 1:  # until `close`: OpenMP threads that the optimizer starts would spin and slow down the replicas
            torch.set_num_threads(self.n_torch_threads_each)

    def __len__(self) -> int:
        return len(self.models)

    def _start_thread(self) -> None:
        torch.set_num_threads(self.n_torch_threads_each)
        # Autocast's cache of cast weights is global and cleared when a thread exits its outermost autocast. So these
        # threads stay inside one, and `run` clears the cache.
        torch.autocast_increment_nesting()

    def run(self, work: Callable[[int, nn.Module], Result]) -> list[Result]:
        """Call work(i, replica i) for all replicas, in parallel; returns the results in order."""
        if len(self) == 1:
            return [work(0, self.models[0])]
        try:
            futures = [self.pool.submit(work, i, model) for i, model in enumerate(self.models)]
            wait(futures)
        finally:
            torch.clear_autocast_cache()
        return [future.result() for future in futures]

    def train(self) -> None:
        """Training mode for all replicas."""
        for model in self.models:
            model.train()

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for model in self.models:
            model.zero_grad(set_to_none=True)

    def sum_gradients(self) -> None:
        """Add all gradients to those of the first replica, in a fixed order, so that rounding is reproducible."""
        first, *others = ([p.grad for p in model.parameters() if p.grad is not None] for model in self.models)
        for other in others:
            torch._foreach_add_(first, other)

    def close(self) -> None:
        """End the threads, and restore torch's number of threads."""
        self.pool.shutdown()
        torch.set_num_threads(self.n_torch_threads)


def _with_weights_of(model: nn.Module) -> nn.Module:
    replica = copy.deepcopy(model)
    for own, shared in zip(replica.parameters(), model.parameters(), strict=True):
        own.data = shared.data
    return replica


def n_fitting_threads(model: Seq2Seq, n_vocab: int, settings: TrainSettings, n_before: int | None = None) -> int:
    """The number of replicas that trains fastest: on a CPU one per core, if memory and the batch suffice.

    Args:
        model: on its device.
        n_vocab: target pieces.
        settings: batch_tokens, accumulate.
        n_before: of a resumed run, which keeps it because each thread has its own dropout.
    """
    if model.device.type != "cpu":
        return 1
    n_threads = n_before or settings.batch_tokens * settings.accumulate // MIN_THREAD_TOKENS
    n_parameters = sum(p.numel() for p in model.parameters())
    free = free_memory() - 12 * n_parameters  # bytes; all threads share the moments and one gradient
    each = 4 * n_parameters + 12 * settings.batch_tokens * n_vocab  # a gradient, and three times the logits
    return max(1, min(n_threads, torch.get_num_threads(), 1 + free // each))


def free_memory() -> int:
    """Available memory in bytes; more than any machine has if the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 2**60
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
