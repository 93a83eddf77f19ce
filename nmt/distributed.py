"""Ranks: who am I, what have the others, start some more. One process is the case of one rank.

Ranks find one another by torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), which
`start_workers` sets too, for processes of this machine that share its cores. The work itself is cut by whoever
does it; see `mine`. Imports torch only where there are several.
"""

import contextlib
import datetime
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from nmt.errors import NmtError

if TYPE_CHECKING:
    from torch import Tensor, nn

Item = TypeVar("Item")

PATIENCE = datetime.timedelta(hours=24)  # others may be at work alone: on a tokenizer, on a large corpus


def rank() -> int:
    """Which process this is, from 0; 0 is the one that writes."""
    return int(os.environ.get("RANK", "0"))


def n_ranks() -> int:
    """How many processes work together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    """Which process of this machine this is."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def mine(items: Sequence[Item]) -> Sequence[Item]:
    """This rank's part: every n-th item, so that a sorted list is cut evenly."""
    return items[rank() :: n_ranks()]


def merged(parts: Sequence[Sequence[Item]]) -> list[Item]:
    """All items in their order again, from what every rank made of its part."""
    items: list[Item] = [None] * sum(map(len, parts))  # type: ignore[list-item]
    for i, part in enumerate(parts):
        items[i :: len(parts)] = part
    return items


@contextlib.contextmanager
def ranks_joined() -> Iterator[None]:
    """Work together for the length of the block; begins when all ranks have come to it.

    Raises:
        NmtError: another rank has gone.
    """
    if n_ranks() == 1:
        yield
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    try:
        store, *_ = next(rendezvous("env://", timeout=PATIENCE))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            store=PrefixStore(attempt, store),  # else a restarted rank finds where one before it could be met
            rank=rank(),
            world_size=n_ranks(),
            timeout=PATIENCE,
        )
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise NmtError(
            f"another of the {n_ranks()} processes is gone: {str(error).splitlines()[0]}",
            hint="what it said stands above, if anything; the same command goes on from the last checkpoint",
        ) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def parallel(model: "nn.Module") -> "nn.Module":
    """The model such that a backward pass leaves the mean of all ranks' gradients in it."""
    if n_ranks() == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel

    on_cuda = next(model.parameters()).is_cuda
    return DistributedDataParallel(
        model,
        device_ids=[local_rank()] if on_cuda else None,
        broadcast_buffers=False,
        gradient_as_bucket_view=True,
    )


def gather(content: bytes) -> list[bytes]:
    """What every rank has, in the order of ranks; waits for all of them."""
    if n_ranks() == 1:
        return [content]
    import torch

    sizes = _all(torch.tensor([len(content)]))
    padded = torch.zeros(int(max(sizes)), dtype=torch.uint8)
    padded[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else 0
    return [bytes(x[:size].numpy()) for x, size in zip(_all(padded), map(int, sizes), strict=True)]


def gather_numbers(*numbers: float) -> list[list[float]]:
    """The numbers of every rank, in the order of ranks, exactly; waits for all of them."""
    if n_ranks() == 1:
        return [list(numbers)]
    import torch

    return [x.tolist() for x in _all(torch.tensor(numbers, dtype=torch.float64))]


def _all(x: "Tensor") -> "list[Tensor]":
    import torch
    import torch.distributed as dist

    found = [torch.empty_like(x) for _ in range(n_ranks())]
    dist.all_gather(found, x)
    return found


@contextlib.contextmanager
def start_workers(n_workers: int) -> Iterator[None]:
    """Run the same command in further processes too, as ranks beside this one; each takes its share of threads.

    Nothing to do where torchrun has started ranks already, or for one worker.
    """
    if n_workers == 1 or n_ranks() > 1:
        yield
        return
    import torch

    n_threads = max(torch.get_num_threads() // n_workers, 1)
    torch.set_num_threads(n_threads)
    joined = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(n_workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    if sys.platform == "linux":
        joined["GLOO_SOCKET_IFNAME"] = "lo"  # else gloo asks the network what this machine is called
    os.environ |= joined
    command = [sys.executable, "-m", "nmt", *sys.argv[1:], "--threads", str(n_threads)]
    workers = [
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, env={**os.environ, "RANK": str(i), "LOCAL_RANK": str(i)}
        )
        for i in range(1, n_workers)
    ]
    try:
        yield
    finally:
        for name in joined:
            del os.environ[name]
        for worker in workers:  # they end with this one's work; one that cannot is of no more use
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(10)
            worker.kill()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
