"""Ranks: processes that train together, started by torchrun. A single process is rank 0 of 1.

Ranks work together inside `ranks_joined`; outside of it each is alone. A single rank does not import torch.
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

TIMEOUT = datetime.timedelta(hours=24)  # the first rank may train a tokenizer or read a large corpus meanwhile
WARN_AFTER_S = 20.0  # of waiting for other ranks


class Launch(NamedTuple):
    """The position of this process among the processes that were launched together."""

    rank: int  # from 0; rank 0 writes the files
    n_ranks: int
    local_rank: int  # index among the processes on this machine


ALONE = Launch(0, 1, 0)
LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR")  # that torchrun sets
_joined = ALONE  # changes in `ranks_joined` only
# Referenced until the next collective, to avoid a deadlock: if gloo's thread dropped the last reference, it would wait
# for the GIL, which the main thread holds while it waits for gloo's thread in destroy_process_group.
_last_work: Any = None


def launched() -> Launch:
    """Read the environment variables of torchrun; `ALONE` if one is missing."""
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
    """Return whether torchrun has restarted the ranks because one has failed."""
    return _n_restarts() != "0"


def _n_restarts() -> str:
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def rank() -> int:
    """Return this rank, from 0; 0 outside of `ranks_joined`."""
    return _joined.rank


def n_ranks() -> int:
    """Return the number of joined ranks; 1 outside of `ranks_joined`."""
    return _joined.n_ranks


def mine(items: Sequence[Item]) -> Sequence[Item]:
    """Return this rank's share: every n-th item, so that a sorted list is divided evenly."""
    return items[rank() :: n_ranks()]


@contextlib.contextmanager
def ranks_joined() -> Iterator[None]:
    """Join all ranks for this block, after all have entered it. Raises LostRankError if a rank ends."""
    global _joined
    launch = launched()
    if launch.n_ranks == 1:
        yield
        return
    import torch.distributed as dist

    # torch reports a lost rank as RuntimeError, from any collective.
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
    """Make torch's process group, in a thread: its C++ code waits for the other ranks without handling signals."""
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    joining: Future[None] = Future()

    def join() -> None:
        try:
            store, rank, n_ranks = next(rendezvous("env://", timeout=TIMEOUT))
            # torchrun's store keeps the entries of ranks that it has restarted since.
            store = PrefixStore(f"{_n_restarts()}/{n_ranks}", store)
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=n_ranks, timeout=TIMEOUT)
            joining.set_result(None)
        except Exception as error:  # joining.result() raises it in the main thread
            joining.set_exception(error)

    # Say after a while what this rank waits for, then wait on.
    threading.Thread(target=join, name="nmt-join", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        joining.exception(WARN_AFTER_S)
    if not joining.done():
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        text = "rank %d of %d waits for the others at %s; if none was started, unset RANK and WORLD_SIZE"
        log.warning(text, launch.rank, launch.n_ranks, address)
    joining.result()


def parallel(model: "nn.Module") -> "nn.Module":
    """Wrap the model in DistributedDataParallel, which averages gradients over ranks. With one rank, return it."""
    if n_ranks() == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel

    # Replicas on the CPU are given no device.
    device = next(model.parameters()).device
    gpus = [device] if device.type == "cuda" else None
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # newer torch has renamed broadcast_buffers
        return DistributedDataParallel(model, gpus, broadcast_buffers=False, gradient_as_bucket_view=True)


def unwrapped(model: "nn.Module") -> Any:
    """Return the model that was passed to `parallel`."""
    return getattr(model, "module", model)


def gather_numbers(*numbers: float) -> list[list[float]]:
    """Return the numbers of every rank, in order of ranks, in float64. Waits for all ranks."""
    if n_ranks() == 1:
        return [list(numbers)]
    import torch

    share = torch.tensor(numbers, dtype=torch.float64)
    return [gathered.tolist() for gathered in _gather(share)]


def gather_items(items: Sequence[Item]) -> list[Item]:
    """Return the items of all ranks in order, given this rank's share: the inverse of `mine`. Waits for all ranks.

    They are sent as JSON: tuples arrive as lists.
    """
    if n_ranks() == 1:
        return list(items)
    import torch

    # 1. Pad the contents with blanks to the same length: collectives need tensors of one shape.
    content = json.dumps(items).encode()
    (n_bytes,) = max(gather_numbers(len(content)))
    padded = torch.frombuffer(bytearray(content.ljust(int(n_bytes))), dtype=torch.uint8)
    tensors = _gather(padded)
    # 2. Put each share where `mine` has taken it from.
    shares = [json.loads(bytes(tensor.numpy())) for tensor in tensors]
    n_items = sum(map(len, shares))
    gathered: list[Any] = [None] * n_items
    for rank, share in enumerate(shares):
        gathered[rank :: n_ranks()] = share
    return gathered


def _gather(tensor: "Tensor") -> "list[Tensor]":
    """Return the tensors of all ranks, which have the same shape, in order of ranks."""
    import torch.distributed as dist

    # Asynchronous, only to get the object that `_last_work` keeps.
    global _last_work
    gathered = [tensor.clone() for _ in range(n_ranks())]
    _last_work = dist.all_gather(gathered, tensor, async_op=True)
    _last_work.wait()
    return gathered


def barrier() -> None:
    """Wait until all ranks have reached this call."""
    gather_numbers(0.0)


def broadcast(number: float) -> float:
    """Return the first rank's number. Waits for all ranks."""
    return gather_numbers(number)[0][0]


def summed(*numbers: float) -> list[float]:
    """Return each number summed over ranks. Waits for all ranks."""
    by_rank = gather_numbers(*numbers)
    return [sum(column) for column in zip(*by_rank, strict=True)]
