"""Ranks: the processes that torchrun starts to train one model together. A process without torchrun is rank 0 of 1.

Ranks communicate only inside `ranks_joined`. Outside of it, each process counts as the only rank. If there is one rank,
this module does not import torch.
"""

import contextlib
import datetime
import json
import logging
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from nmt.errors import ConfigError, LostRankError

if TYPE_CHECKING:
    from torch import Tensor, nn

Item = TypeVar("Item")

log = logging.getLogger("nmt")

TIMEOUT = datetime.timedelta(hours=24)  # long: the others wait while the first rank trains a tokenizer
WARN_AFTER_S = 20.0  # after waiting this long for other ranks, log a warning


class Launch(NamedTuple):
    """The position of this process among the processes that were launched together."""

    rank: int  # counted from 0; rank 0 writes the files
    n_ranks: int
    local_rank: int  # index among the processes on this machine


ALONE = Launch(0, 1, 0)
# The environment variables that torchrun sets.
LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR")
_joined = ALONE  # this process among the joined ranks; only `ranks_joined` changes it
# The work object of the last collective. It is referenced until the next collective, to avoid a deadlock: if gloo's
# thread dropped the last reference, it would wait for the GIL, while the main thread holds the GIL and waits for gloo's
# thread in destroy_process_group.
_last_work: Any = None


def launched() -> Launch:
    """Return the position of this process from torchrun's environment variables.

    Returns `ALONE` if a variable is missing. Raises ConfigError if the value of a numeric one is not a number.
    """
    if not all(name in os.environ for name in LAUNCH_VARIABLES):
        return ALONE
    *numbers, _address = LAUNCH_VARIABLES
    try:
        rank, n_ranks, local_rank, _port = (int(os.environ[name]) for name in numbers)
    except ValueError as error:
        names = ", ".join(numbers)
        raise ConfigError(f"{names}: {error}", hint="unset them, or use torchrun") from error
    return Launch(rank, n_ranks, local_rank)


def restarted() -> bool:
    """Return whether torchrun has restarted the ranks because one of them failed."""
    return _n_restarts() != "0"


def _n_restarts() -> str:
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def rank() -> int:
    """Return the number of this rank, counted from 0. Outside of `ranks_joined`, it is 0."""
    return _joined.rank


def n_ranks() -> int:
    """Return the number of joined ranks. Outside of `ranks_joined`, it is 1."""
    return _joined.n_ranks


def mine(items: Sequence[Item]) -> Sequence[Item]:
    """Return this rank's share of the items: every n-th item, where n is the number of ranks.

    If the items are sorted by length, all ranks have items of about the same lengths.
    """
    return items[rank() :: n_ranks()]


@contextlib.contextmanager
def ranks_joined() -> Iterator[None]:
    """Join all ranks for the duration of the block. The block begins when all ranks have reached it.

    Raises LostRankError if another rank ends during the block.
    """
    global _joined
    launch = launched()
    if launch.n_ranks == 1:
        yield
        return
    import torch.distributed as dist

    # If a rank is lost, collectives of the other ranks raise RuntimeError.
    try:
        _join(launch)
        _joined = launch
        yield
    except RuntimeError as error:
        is_of_ranks = isinstance(error, dist.DistError) or "gloo" in str(error)
        if not is_of_ranks:
            raise
        hint = "what it said, if anything, stands beside this; was there enough memory?"
        raise LostRankError(f"another of the {launch.n_ranks} processes is gone", hint=hint) from error
    finally:
        _joined = ALONE
        if dist.is_initialized():
            dist.destroy_process_group()


def _join(launch: Launch) -> None:
    """Create torch's process group.

    A second thread creates it, because torch's C++ code does not handle signals while it waits for the other ranks.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    joining: Future[None] = Future()

    def join() -> None:
        try:
            store, rank, n_ranks = next(rendezvous("env://", timeout=TIMEOUT))
            # When torchrun restarts the ranks, its store keeps the old entries: use other names for the new ones.
            store = PrefixStore(f"{_n_restarts()}/{n_ranks}", store)
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=n_ranks, timeout=TIMEOUT)
            joining.set_result(None)
        except Exception as error:  # joining.result() raises the error in the main thread
            joining.set_exception(error)

    # If the others are late, log what this rank waits for, then continue to wait.
    threading.Thread(target=join, name="nmt-join", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        joining.exception(WARN_AFTER_S)
    if not joining.done():
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        text = "rank %d of %d waits for the others at %s; if none was started, unset RANK and WORLD_SIZE"
        log.warning(text, launch.rank, launch.n_ranks, address)
    joining.result()


def parallel(model: "nn.Module") -> "nn.Module":
    """Wrap the model in DistributedDataParallel, which averages gradients over ranks.

    With one rank, return the model itself.
    """
    if n_ranks() == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel

    # DistributedDataParallel expects a list of one GPU, or None for a model on the CPU.
    device = next(model.parameters()).device
    gpus = [device] if device.type == "cuda" else None
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # newer torch has renamed broadcast_buffers
        return DistributedDataParallel(model, gpus, broadcast_buffers=False, gradient_as_bucket_view=True)


def unwrapped(model: "nn.Module") -> Any:
    """Return the model that was passed to `parallel`."""
    return getattr(model, "module", model)


def gather_numbers(*numbers: float) -> list[list[float]]:
    """Return the numbers of each rank, in order of ranks. They are sent as float64. Waits for all ranks."""
    if n_ranks() == 1:
        return [list(numbers)]
    import torch

    share = torch.tensor(numbers, dtype=torch.float64)
    return [gathered.tolist() for gathered in _gather(share)]


def gather_items(items: Sequence[Item]) -> list[Item]:
    """Return the items of all ranks in their original order. Waits for all ranks.

    This is the inverse of `mine`: each rank passes its share. Items are sent as JSON, so tuples arrive as lists.
    """
    if n_ranks() == 1:
        return list(items)
    import torch

    # 1. Pad the JSON of each rank with spaces to the same length: collectives need tensors of equal shapes.
    content = json.dumps(items).encode()
    (n_bytes,) = max(gather_numbers(len(content)))
    padded = torch.frombuffer(bytearray(content.ljust(int(n_bytes))), dtype=torch.uint8)
    tensors = _gather(padded)
    # 2. Put the items of each share at the indices from which `mine` took them.
    shares = [json.loads(bytes(tensor.numpy())) for tensor in tensors]
    n_items = sum(map(len, shares))
    gathered: list[Any] = [None] * n_items
    for rank, share in enumerate(shares):
        gathered[rank :: n_ranks()] = share
    return gathered


def _gather(tensor: "Tensor") -> "list[Tensor]":
    """Return the tensors of all ranks, in order of ranks. They must have the same shape."""
    import torch.distributed as dist

    # The call is asynchronous only to return the work object, which `_last_work` keeps.
    global _last_work
    gathered = [tensor.clone() for _ in range(n_ranks())]
    _last_work = dist.all_gather(gathered, tensor, async_op=True)
    _last_work.wait()
    return gathered


def barrier() -> None:
    """Wait until all ranks have reached this call."""
    gather_numbers(0.0)


def broadcast(number: float) -> float:
    """Return the number that the first rank passes. Waits for all ranks."""
    return gather_numbers(number)[0][0]


def summed(*numbers: float) -> list[float]:
    """Return, for each number, the sum over all ranks. Waits for all ranks."""
    by_rank = gather_numbers(*numbers)
    return [sum(column) for column in zip(*by_rank, strict=True)]
