"""Data parallelism on a CPU: processes with one set of weights, each of which computes the gradient of its share.

The first replica is the model itself, in this process. Each of the others is in a process that gets its share of a
batch by a pipe, and adds its gradient to memory that this process reads. Threads would contend for the GIL.
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

# A fork starts at once and shares memory until it is written. CUDA and the libraries of other systems do not allow it.
METHOD = "fork" if sys.platform == "linux" and not torch.cuda.is_available() else "spawn"


class Replicas:
    """A model and its replicas. With several ranks, n is 1 and `model` is wrapped by `distributed.parallel`.

    With more than one replica, the weights of `model` move to shared memory: change them in place.
    """

    def __init__(self, model: nn.Module, n: int = 1) -> None:
        self.model, self.n = model, n
        self.n_torch_threads = torch.get_num_threads()  # for the optimizer and for validation
        self.n_torch_threads_each = max(self.n_torch_threads // n, 1)
        self.trained = [p for p in model.parameters() if p.requires_grad]
        for parameter in model.parameters() if n > 1 else ():
            parameter.data = shared(parameter).copy_(parameter.data)
        # Of the other replicas: one list each, with the gradient of every trained parameter.
        self.gradients = [list(map(shared, self.trained)) for _ in range(n - 1)]
        self.connections: list[Connection] = []
        self.processes: list[Any] = []
        context: Any = get_context(METHOD)
        for gradients in self.gradients:
            connection, other_end = context.Pipe()
            arguments = (other_end, connection, model, gradients, self.n_torch_threads_each)
            process = context.Process(target=serve, args=arguments, name="nmt-replica", daemon=True)
            with environment(child_variables()):  # a spawned process imports nothing from the working directory
                process.start()
            other_end.close()
            self.connections.append(connection)
            self.processes.append(process)

    def backward(self, work: Callable[..., Tensor], shares: Sequence[tuple[Any, ...]]) -> list[Tensor]:
        """Call work(replica, *share) on all replicas in parallel, and set each parameter's `.grad` to the sum.

        Returns the results in order. The order of addition is fixed, so the sums are the same bit for bit. Raises the
        error of a replica when all are done, and LostRankError if a process has ended.
        """
        self.model.zero_grad(set_to_none=True)
        answers: list[Any] = []
        try:
            for connection, share in zip(self.connections, shares[1:], strict=True):
                connection.send_bytes(pickle.dumps((work, share)))  # `send` would put tensors into /dev/shm
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
            process.kill()  # not terminate(), which sends SIGTERM: the process ignores it
            process.join()


def shared(x: Tensor) -> Tensor:
    """Return zeros with the shape of x, in memory that is shared with processes that start later."""
    if METHOD == "spawn":
        return torch.zeros_like(x).share_memory_()  # type: ignore[no-any-return, no-untyped-call]
    memory = mmap.mmap(-1, max(x.nbytes, 1))  # share_memory_ uses /dev/shm, which Docker limits to 64 MB
    return torch.frombuffer(memory, dtype=x.dtype, count=x.numel()).view_as(x)


def serve(connection: Connection, other_end: Connection, model: nn.Module, gradients: list[Tensor], n: int) -> None:
    """Compute gradients with n torch threads until the parent ends or closes the pipe."""
    other_end.close()  # the parent's end: with this copy open, the pipe would outlive the parent
    if sys.platform == "linux":  # a replica that outlives its parent would keep the run locked
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    for number in SIGNALS:  # Ctrl-C is sent to all processes, and the parent still has to finish the step
        signal.signal(number, signal.SIG_IGN)

    def loop() -> None:
        torch.set_num_threads(n)
        trained = (p for p in model.train().parameters() if p.requires_grad)
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter.grad = gradient
        with suppress(EOFError, ConnectionError):
            while True:
                work, share = pickle.loads(connection.recv_bytes())  # noqa: S301 - from the parent
                torch._foreach_zero_(gradients)
                try:
                    answer = work(model, *share)
                except Exception as error:
                    answer = error
                connection.send_bytes(pickle.dumps(answer))

    thread = threading.Thread(target=loop)  # in the main thread, OpenMP hangs if it was used before the fork
    thread.start()
    thread.join()
