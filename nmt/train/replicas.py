"""Data parallelism with threads: each thread computes the gradient of its share of a batch with a replica of the model.

torch releases the GIL while it computes, and a backward pass runs in the thread that calls it. These threads wait for
each other only at the end of a step and while another one adds to the same gradient; torch's own threads synchronize
at every operation. Unlike processes, the threads share one set of weights, one gradient and one update, so they need no
communication.
"""

import copy
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import Tensor, nn

Result = TypeVar("Result")


class GradientSum:
    """The sum of one parameter's gradients over all replicas and micro-batches.

    Each gradient is added and freed during the backward pass, so several replicas need little more memory than one.
    The order of addition does not depend on the timing of threads, so the sum is the same bit for bit.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.queues: list[deque[Tensor]] = []  # one per attached parameter: gradients that are not added yet
        self.reset()

    def reset(self) -> None:
        """Start a new sum."""
        self.total: Tensor | None = None
        self.next_queue = 0  # index; queues are read in turn, one gradient each
        for queue in self.queues:
            queue.clear()

    def attach(self, parameter: Tensor) -> None:
        """Add the gradients of `parameter` to the sum as soon as they are computed; `parameter.grad` stays None."""
        queue: deque[Tensor] = deque()
        self.queues.append(queue)

        def add_gradient(parameter: Tensor) -> None:
            assert parameter.grad is not None
            with self.lock:
                queue.append(parameter.grad)
                parameter.grad = None
                while self.queues[self.next_queue]:
                    self._add(self.queues[self.next_queue].popleft())
                    self.next_queue = (self.next_queue + 1) % len(self.queues)

        parameter.register_post_accumulate_grad_hook(add_gradient)  # type: ignore[no-untyped-call]

    def take_total(self) -> Tensor | None:
        """Return the sum, or None if there were no gradients, and start a new one. Call it after the backward passes.

        Gradients are still in the queues if another attached parameter had none; they are added here.
        """
        for queue in self.queues:
            while queue:
                self._add(queue.popleft())
        total = self.total
        self.reset()
        return total

    def _add(self, gradient: Tensor) -> None:
        if self.total is None:
            self.total = gradient.to_dense() if gradient.is_sparse else gradient
        else:
            self.total.add_(gradient)


class Replicas:
    """A model and its replicas, one per thread. With several ranks, the model comes from `distributed.parallel`.

    Attributes:
        model: the model whose weights the optimizer updates.
        models: the replicas. With one thread there are none, and this list contains `model`.
    """

    def __init__(self, model: nn.Module, n: int = 1) -> None:
        self.model = model
        self.sums: defaultdict[nn.Parameter, GradientSum] = defaultdict(GradientSum)  # of all replicas, by parameter
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
        # Reversed is roughly the order of the backward pass, so gradients are added early.
        for module in reversed(list(replica.modules())):
            for name, shared in list(module.named_parameters(recurse=False)):
                parameter = nn.Parameter(shared.data, shared.requires_grad)
                setattr(module, name, parameter)
                if shared.requires_grad:
                    self.sums[shared].attach(parameter)
            if isinstance(module, nn.Embedding):
                module.sparse = True
        return replica

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
        self.model.zero_grad(set_to_none=True)
        for gradient_sum in self.sums.values():
            gradient_sum.reset()

    def collect_gradients(self) -> None:
        """Set the gradients of `model` to the sums over all replicas. Without replicas, `model` has its gradients."""
        for parameter, gradient_sum in self.sums.items():
            parameter.grad = gradient_sum.take_total()

    def close(self) -> None:
        """Shut down the thread pool."""
        self.pool.shutdown()
