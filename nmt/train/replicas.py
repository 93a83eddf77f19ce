"""Data parallelism on a CPU: processes share one set of weights, and each process computes a part of the gradient.

The first replica is the model itself, in this process. Every other replica is in a child process. A child receives its
share of the micro-batches through a pipe, and writes its gradient into shared memory, which this process reads.
Processes are used instead of threads, because threads would contend for the GIL.
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

# A forked process starts at once, and shares a page of memory with its parent until one of the two processes writes to
# the page. CUDA does not work in forked processes, nor do the libraries of systems other than Linux.
METHOD = "fork" if sys.platform == "linux" and not torch.cuda.is_available() else "spawn"


class Replicas:
    """The `n` replicas of a model, of which the first is the model itself.

    With several ranks, `n` must be 1, and `model` is wrapped by `distributed.parallel`. If `n` is greater than 1, the
    weights of `model` are moved to shared memory. Then the weights must be changed in place only.
    """

    def __init__(self, model: nn.Module, n: int = 1) -> None:
        self.model, self.n = model, n
        self.n_torch_threads = torch.get_num_threads()  # number of threads of the optimizer and of validations
        self.n_torch_threads_each = max(self.n_torch_threads // n, 1)
        self.trained = [p for p in model.parameters() if p.requires_grad]
        for parameter in model.parameters() if n > 1 else ():
            parameter.data = shared(parameter).copy_(parameter.data)
        # One list per child process, with the gradient of each trained parameter. These gradients are in shared memory.
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
        """Call work(replica, *share) on all replicas in parallel, and add the gradients of all replicas.

        The sum is the `.grad` of the parameters of the model. Gradients are added in a fixed order, so repeated calls
        give the same sums, bit for bit. Returns the results of the calls in the order of `shares`. If calls fail in
        child processes, raises the first error after the calls on all replicas have ended. Raises LostRankError if a
        child process has ended.
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
    """Return a tensor of zeros that is as large as `x`, in memory that is shared with processes that start later."""
    if METHOD == "spawn":
        return torch.zeros_like(x).share_memory_()  # type: ignore[no-any-return, no-untyped-call]
    memory = mmap.mmap(-1, max(x.nbytes, 1))  # `share_memory_` uses /dev/shm, which Docker limits to 64 MB
    return torch.frombuffer(memory, dtype=x.dtype, count=x.numel()).view_as(x)


def serve(connection: Connection, other_end: Connection, model: nn.Module, gradients: list[Tensor], n: int) -> None:
    """Run a replica in a child process: compute gradients with `n` torch threads until the pipe closes."""
    other_end.close()  # otherwise, this copy of the parent's end would keep the pipe open after the parent ends
    if sys.platform == "linux":  # end this process with the parent: a surviving replica would keep the run locked
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    for number in SIGNALS:  # Ctrl-C is also sent to child processes, which the parent needs to finish the step
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

    # Run in a second thread: in the main thread, OpenMP would hang if the parent has used OpenMP before the fork.
    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
