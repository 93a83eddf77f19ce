"""Communication between ranks, the processes that torchrun starts to train one model together.

Ranks communicate only inside `ranks_joined`. Outside, each process counts as the only rank. If there is one rank, this
module does not import torch.
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

from nmt.errors import LostRankError

if TYPE_CHECKING:
    from torch import Tensor, nn

Item = TypeVar("Item")

log = logging.getLogger("nmt")

TIMEOUT = datetime.timedelta(hours=24)  # long, because the other ranks wait while rank 0 trains a tokenizer
CONNECT_TIMEOUT = datetime.timedelta(seconds=10)
WARN_AFTER_S = 20.0  # a rank that has waited this long for other ranks logs a warning


class Launch(NamedTuple):
    """The position of this process among the processes that were launched together."""

    rank: int  # counted from 0; rank 0 writes the files
    n_ranks: int
    local_rank: int  # index among the processes on this machine


ALONE = Launch(0, 1, 0)
# The environment variables that torchrun sets. The last is an address, the others are numbers.
LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR")
_joined = ALONE  # position among the joined ranks; set only by `ranks_joined`
# The work object of the last collective. Without this reference, gloo's thread could drop the object, which needs the
# GIL. This is a deadlock if the main thread holds the GIL and waits for gloo's thread.
_last_work: Any = None
# References to torchrun's store, which rank 0 may serve, and to the process group. The last reference to the group must
# not be that of DistributedDataParallel: it would hold the GIL while it waits for gloo's thread, which may need it.
_kept: Any = None


def launched() -> Launch:
    """Return the position of this process from torchrun's environment variables.

    Returns `ALONE` if a variable is missing or malformed.
    """
    *numbers, address = (os.environ.get(name, "") for name in LAUNCH_VARIABLES)
    if not address or not all(map(str.isdecimal, numbers)):
        return ALONE
    rank, n_ranks, local_rank, _port = map(int, numbers)
    return Launch(rank, n_ranks, local_rank)


def restarted() -> bool:
    """Return whether torchrun has restarted the ranks because a rank failed."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def rank() -> int:
    """Return the number of this rank, counted from 0. Outside of `ranks_joined`, the number is 0."""
    return _joined.rank


def n_ranks() -> int:
    """Return the number of joined ranks. Outside of `ranks_joined`, the number is 1."""
    return _joined.n_ranks


def mine(items: Sequence[Item]) -> Sequence[Item]:
    """Return this rank's share of the items: every n-th item from index `rank()`. n is the number of ranks.

    If the items are sorted by length, all ranks get items of similar lengths.
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
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        raise LostRankError(
            f"another of the {launch.n_ranks} processes is gone",
            hint="what it said, if anything, stands beside this; was there enough memory?",
        ) from error
    finally:
        _joined = ALONE
        if dist.is_initialized():
            dist.destroy_process_group()


def _join(launch: Launch) -> None:
    """Create torch's process group.

    A second thread waits for the other ranks, so that the main thread can still handle signals.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    joining: Future[None] = Future()

    def join() -> None:
        try:
            launch_store, rank, n_ranks = next(rendezvous("env://", timeout=TIMEOUT))
            store = _new_store(launch_store, rank)
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=n_ranks, timeout=TIMEOUT)
            global _kept
            _kept = launch_store, dist.group.WORLD
            joining.set_result(None)
        except Exception as error:  # joining.result() raises the error in the main thread
            joining.set_exception(error)

    threading.Thread(target=join, name="nmt-join", daemon=True).start()
    try:
        joining.result(WARN_AFTER_S)
    except TimeoutError:  # the other ranks are late: warn, and continue to wait
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        log.warning(
            "rank %d of %d waits for the others at %s; if none was started, unset RANK and WORLD_SIZE",
            launch.rank,
            launch.n_ranks,
            address,
        )
        joining.result()


def _new_store(store: Any, rank: int) -> Any:
    """Return a store that rank 0 has opened for this start of the ranks. `store` is torchrun's, and tells its port.

    After a restart, torchrun's store still has the entries of the old ranks. torchrun gives no number of the start on
    which machines agree: each one counts the failures of its own ranks only.
    """
    from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]

    host = os.environ["MASTER_ADDR"]
    if rank == 0:
        opened = TCPStore(host, 0, is_master=True, timeout=TIMEOUT, wait_for_workers=False)
        store.set("nmt/port", str(opened.port))
        return opened
    while True:
        # An old port is that of a process that has ended: torchrun starts no rank before all old ones have ended.
        port = int(store.get("nmt/port"))
        with contextlib.suppress(DistError):
            opened = TCPStore(host, port, timeout=CONNECT_TIMEOUT, wait_for_workers=False)
            opened.set_timeout(TIMEOUT)
            return opened


def parallel(model: "nn.Module") -> "nn.Module":
    """Wrap the model in DistributedDataParallel, which averages gradients over ranks.

    With one rank, return the model itself.
    """
    if n_ranks() == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel

    # DistributedDataParallel expects a list of one GPU, or None if the model is on the CPU.
    device = next(model.parameters()).device
    gpus = [device] if device.type == "cuda" else None
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # newer torch has renamed broadcast_buffers
        return DistributedDataParallel(model, gpus, broadcast_buffers=False, gradient_as_bucket_view=True)


def gather_numbers(*numbers: float) -> list[list[float]]:
    """Return the numbers of each rank, in order of ranks. Waits for all ranks."""
    if n_ranks() == 1:
        return [list(numbers)]
    import torch

    return [gathered.tolist() for gathered in _gather(torch.tensor(numbers, dtype=torch.float64))]


def gather_items(items: Sequence[Item]) -> list[Item]:
    """Return the items of all ranks in their original order: the inverse of `mine`. Waits for all ranks.

    Items are sent as JSON, so tuples arrive as lists.
    """
    if n_ranks() == 1:
        return list(items)
    import torch

    # 1. Pad the JSON of each rank with spaces: collectives need tensors of equal shapes.
    content = json.dumps(items).encode()
    (n_bytes,) = max(gather_numbers(len(content)))
    padded = torch.frombuffer(bytearray(content.ljust(int(n_bytes))), dtype=torch.uint8)
    tensors = _gather(padded)
    # 2. Put the items of each share at the indices from which `mine` took them.
    shares = [json.loads(bytes(tensor.numpy())) for tensor in tensors]
    gathered: list[Any] = [None] * sum(map(len, shares))
    for rank, share in enumerate(shares):
        gathered[rank :: n_ranks()] = share
    return gathered


def _gather(tensor: "Tensor") -> "list[Tensor]":
    """Return the tensors of all ranks, in order of ranks. All tensors must have the same shape."""
    import torch.distributed as dist

    # With `async_op=True`, the call returns the work object.
    global _last_work
    gathered = [tensor.clone() for _ in range(n_ranks())]
    _last_work = dist.all_gather(gathered, tensor, async_op=True)
    _last_work.wait()
    return gathered


def summed(*numbers: float) -> list[float]:
    """Return, for each number, the sum over all ranks. Waits for all ranks."""
    return [sum(column) for column in zip(*gather_numbers(*numbers), strict=True)]
