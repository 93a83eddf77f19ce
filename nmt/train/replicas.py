"""Data parallelism on a CPU: processes share one set of weights, and each process computes a part of the gradient.

The first replica is the model itself, in this process. Each other replica is in a child process. A child receives
micro-batches through a pipe, and writes its gradient into shared memory. Threads are not used, because they would
contend for the GIL.
"""

import ctypes
import mmap
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor, nn

from nmt.errors import LostRankError
from nmt.processes import child_variables, environment
from nmt.train.signals import SIGNALS

# A forked process starts fast and needs little memory. CUDA does not work in forked processes.
# On systems other than Linux, forked processes are not reliable.
METHOD = "fork" if sys.platform == "linux" and not torch.cuda.is_available() else "spawn"


def n_threads_each(n: int) -> int:
    """Return the number of torch threads of each of `n` replicas."""
    return max(torch.get_num_threads() // n, 1)


class Replicas:
    """The `n` replicas of a model. The first replica is the model itself.

    With several ranks, `n` must be 1. With `n` > 1, the weights are moved to shared memory and must be changed in
    place.
    """

    def __init__(self, model: nn.Module, n: int = 1) -> None:
        self.model, self.n = model, n
        self.n_torch_threads = torch.get_num_threads()  # threads of the optimizer and of validations
        self.n_torch_threads_each = n_threads_each(n)
        self.trained = [p for p in model.parameters() if p.requires_grad]
        if n > 1:
            for parameter in model.parameters():
                parameter.data = shared(parameter).copy_(parameter.data)
        # The gradients of each child process, in shared memory.
        self.gradients = [list(map(shared, self.trained)) for _ in range(n - 1)]
        self.connections: list[Connection] = []
        self.processes: list[Any] = []
        context: Any = get_context(METHOD)
        for gradients in self.gradients:
            connection, other_end = context.Pipe()
            process = context.Process(
                target=serve,
                args=(other_end, connection, model, gradients, self.n_torch_threads_each),
                name="nmt-replica",
                daemon=True,
            )
            with environment(child_variables()):  # so that a spawned process imports nothing from the working directory
                process.start()
            other_end.close()
            self.connections.append(connection)
            self.processes.append(process)

    def backward(self, work: Callable[..., Tensor], shares: Sequence[tuple[Any, ...]]) -> list[Tensor]:
        """Call work(replica, *share) on all replicas in parallel, and add their gradients in `.grad` of the model.

        The order of addition is fixed, so repeated calls give the same gradient, bit for bit.

        Returns:
            The results of the calls, in the order of `shares`.
        Raises:
            LostRankError: a child process has ended.
            Exception: the first error in a child process, raised after all calls have ended.
        """
        self.model.zero_grad(set_to_none=True)
        answers: list[Any] = []
        try:
            for connection, share in zip(self.connections, shares[1:], strict=True):
                connection.send_bytes(pickle.dumps((work, share)))  # `send` would copy tensors to /dev/shm
            try:
                torch.set_num_threads(self.n_torch_threads_each)
                answers.append(work(self.model, *shares[0]))
            finally:
                torch.set_num_threads(self.n_torch_threads)
                answers += [pickle.loads(connection.recv_bytes()) for connection in self.connections]  # noqa: S301
        except (EOFError, ConnectionError) as error:
            raise LostRankError("a process of --replicas has ended", hint="was there enough memory?") from error
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        for gradients in self.gradients:
            for parameter, gradient in zip(self.trained, gradients, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(gradient)
        return answers

    def close(self) -> None:
        for process in self.processes:
            process.kill()  # `terminate` sends SIGTERM, which the process ignores
            process.join()


def shared(x: Tensor) -> Tensor:
    """Return zeros of the size of `x`, in memory that later child processes share."""
    if METHOD == "spawn":
        return torch.zeros_like(x).share_memory_()  # type: ignore[no-any-return, no-untyped-call]
    memory = mmap.mmap(-1, max(x.nbytes, 1))  # `share_memory_` uses /dev/shm, which Docker limits to 64 MB
    return torch.frombuffer(memory, dtype=x.dtype, count=x.numel()).view_as(x)


def serve(connection: Connection, other_end: Connection, model: nn.Module, gradients: list[Tensor], n: int) -> None:
    """Run a replica in a child process, with `n` torch threads, until the pipe closes."""
    other_end.close()  # an open copy would keep the pipe open after the parent ends
    if sys.platform == "linux":  # end with the parent: a surviving replica would keep the run locked
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    for number in SIGNALS:  # ignore Ctrl-C, because the parent must finish its step
        signal.signal(number, signal.SIG_IGN)

    def loop() -> None:
        torch.set_num_threads(n)
        trained = (p for p in model.train().parameters() if p.requires_grad)
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter.grad = gradient
        with suppress(EOFError, ConnectionError):
            while True:
                work, share = pickle.loads(connection.recv_bytes())  # noqa: S301 - sent by the parent
                torch._foreach_zero_(gradients)
                try:
                    answer = work(model, *share)
                except Exception as error:
                    answer = error
                connection.send_bytes(pickle.dumps(answer))

    # Use a second thread. In the main thread, OpenMP would hang if the parent used it before the fork.
    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
