"""Data parallelism by threads: replicas of a model that share its weights. Their gradients are summed as they arrive.

torch releases the GIL while it computes, and a backward pass runs in the thread that calls it. These threads
synchronize once per step; torch's own threads synchronize at every operation. Unlike processes, the threads share one
set of weights, one gradient and one update, so they need no communication.
"""

import copy
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import Tensor, nn

Result = TypeVar("Result")


class GradientSum:
    """The sum of one parameter's gradients over all replicas and micro-batches.

    A replica's gradient is freed during its backward pass, so all replicas together need the memory of one gradient.
    Gradients are added in a fixed order, whichever thread is first, so that rounding is reproducible.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.queues: list[deque[Tensor]] = []  # one per replica and use of the parameter; they take turns
        self.reset()

    def reset(self) -> None:
        """Start a new sum."""
        self.total: Tensor | None = None
        self.turn = 0  # index of the queue whose gradient is added next
        for queue in self.queues:
            queue.clear()

    def hook(self) -> Callable[[Tensor], None]:
        """Return a post-accumulate-grad hook for one replica's copy of the parameter."""
        queue: deque[Tensor] = deque()
        self.queues.append(queue)

        def take_gradient(replica_parameter: Tensor) -> None:
            assert replica_parameter.grad is not None
            with self.lock:
                queue.append(replica_parameter.grad)
                replica_parameter.grad = None
                while self.queues[self.turn]:
                    self._add(self.queues[self.turn].popleft())
                    self.turn = (self.turn + 1) % len(self.queues)

        return take_gradient

    def take_total(self) -> Tensor | None:
        """Return the sum and forget it. None if there were no gradients.

        If some replica's parameter got no gradient, those of the others are still waiting for their turn.
        """
        for queue in self.queues:
            while queue:
                self._add(queue.popleft())
        total, self.total = self.total, None
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
        models: the models that compute gradients: with one thread, the model itself.
    """

    def __init__(self, model: nn.Module, n: int = 1) -> None:
        self.model = model
        self.sums = {p: GradientSum() for p in model.parameters() if p.requires_grad}
        self.models = [model] if n == 1 else [self._replica() for _ in range(n)]
        # `torch.set_num_threads` is per thread: the main thread keeps its setting, for the optimizer and validation.
        self.n_torch_threads_each = max(torch.get_num_threads() // n, 1)
        self.pool = ThreadPoolExecutor(n, "nmt-replica", self._start_thread)

    def _replica(self) -> nn.Module:
        """Copy the model's modules, but not its weights.

        Modules that share a matrix, such as embeddings tied to the projection, get a parameter each. So the gradient of
        an embedding can stay sparse: only the rows of the batch's tokens are added to the sum.
        """
        replica = copy.deepcopy(self.model, {id(p): p for p in self.model.parameters()})
        for module in reversed(list(replica.modules())):  # about the order in which gradients arrive
            for name, shared in list(module.named_parameters(recurse=False)):
                parameter = nn.Parameter(shared.data, shared.requires_grad)
                setattr(module, name, parameter)
                if shared.requires_grad:
                    parameter.register_post_accumulate_grad_hook(self.sums[shared].hook())  # type: ignore[no-untyped-call]
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
        """Set the gradients of `model` to the sums over all replicas."""
        if len(self) > 1:
            for parameter, gradient_sum in self.sums.items():
                parameter.grad = gradient_sum.take_total()

    def close(self) -> None:
        """Shut down the thread pool."""
        self.pool.shutdown()
