"""Ranks: processes that work together, started by torchrun or by `start_workers`. A single process is rank 0 of 1.

Ranks work together inside `ranks_joined`; outside of it each is alone. Imports torch only if there are several.
"""

import contextlib
import datetime
import json
import logging
import os
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from nmt.errors import ConfigError, LostRankError
from nmt.processes import child_variables, environment

if TYPE_CHECKING:
    from torch import Tensor, nn

Item = TypeVar("Item")

log = logging.getLogger("nmt")

TIMEOUT = datetime.timedelta(hours=24)  # the first rank may train a tokenizer or read a large corpus meanwhile
POLL_S = 0.02
WARN_AFTER_S = 20.0  # of waiting for other ranks


class Launch(NamedTuple):
    """The position of this process among the processes that were launched together."""

    rank: int  # from 0; rank 0 writes the files
    n_ranks: int
    local_rank: int  # index among the processes on this machine


ALONE = Launch(0, 1, 0)
LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR")  # that torchrun sets
_joined = ALONE
# Referenced until the next collective, to avoid a deadlock: if gloo's thread dropped the last reference, it would wait
# for the GIL, which the main thread holds while it waits for gloo's thread in destroy_process_group.
_last_work: Any = None


def launched() -> Launch:
    """Read the environment variables of torchrun and `start_workers`; `ALONE` if there are none."""
    if not all(name in os.environ for name in LAUNCH_VARIABLES):
        return ALONE
    names = LAUNCH_VARIABLES[:4]
    try:
        rank, n_ranks, local_rank, port = (int(os.environ[name]) for name in names)
        if not (0 <= rank < n_ranks and local_rank >= 0 and 0 <= port < 2**16):
            raise ValueError("out of range")
    except ValueError as error:
        values = ", ".join(f"{name}={os.environ[name]}" for name in names)
        raise ConfigError(f"{values}: {error}", hint="unset them, or use torchrun") from error
    return Launch(rank, n_ranks, local_rank)


def restarted() -> bool:
    """Whether torchrun has restarted the ranks because one has failed."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def rank() -> int:
    """This rank, from 0; 0 outside of `ranks_joined`."""
    return _joined.rank


def n_ranks() -> int:
    """The number of joined ranks; 1 outside of `ranks_joined`."""
    return _joined.n_ranks


def mine(items: Sequence[Item]) -> Sequence[Item]:
    """Return this rank's share: every n-th item, so that a sorted list is divided evenly."""
    return items[rank() :: n_ranks()]


def merged(parts: Sequence[Sequence[Item]]) -> list[Item]:
    """Return all items in order, given the shares of all ranks; the inverse of `mine`."""
    return [parts[i % len(parts)][i // len(parts)] for i in range(sum(map(len, parts)))]


@contextlib.contextmanager
def ranks_joined(check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Join all ranks for this block, after all have entered it. Raises LostRankError if a rank ends.

    `check` is called while waiting and raises if another rank has ended.
    """
    global _joined
    launch = launched()
    if launch.n_ranks == 1:
        yield
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    text = "rank %d of %d waits for the others at %s; if none was started, unset RANK and WORLD_SIZE, or use torchrun"
    timer = threading.Timer(WARN_AFTER_S, log.warning, [text, launch.rank, launch.n_ranks, address])
    timer.daemon = True
    timer.start()
    try:
        store = _connect(check)
        store = PrefixStore(_meet(store, launch, check), store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=launch.rank, world_size=launch.n_ranks, timeout=TIMEOUT)
        timer.cancel()
        _joined = launch
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        hint = "what it said, if anything, stands beside this; was there enough memory?"
        raise LostRankError(f"another of the {launch.n_ranks} processes is gone", hint=hint) from error
    finally:
        timer.cancel()
        _joined = ALONE
        if dist.is_initialized():
            dist.destroy_process_group()


def _connect(check: Callable[[], None]) -> Any:
    """Connect to the store at MASTER_ADDR and MASTER_PORT."""
    from torch.distributed.rendezvous import rendezvous

    store: Future[Any] = Future()

    def connect() -> None:
        try:
            store.set_result(next(rendezvous("env://", timeout=TIMEOUT))[0])
        except Exception as error:  # store.result() raises it in the main thread
            store.set_exception(error)

    # In a thread: the C++ code retries until the store exists, and handles no signals meanwhile.
    threading.Thread(target=connect, name="nmt-store", daemon=True).start()
    while not store.done():
        check()
        time.sleep(POLL_S)
    return store.result()


def _meet(store: Any, launch: Launch, check: Callable[[], None]) -> str:
    """Wait until all ranks of this attempt have connected; return the attempt's id.

    The store may hold entries of ranks that have died since. So each rank writes a new id under `hello`, the first rank
    writes all ids that it has read to `answer`, and work begins when every rank has found its own id in the answer.
    """

    def get(key: str) -> str:
        value: bytes = store.get(key) if store.check([key]) else b""
        return value.decode()

    own_id, attempt = uuid.uuid4().hex, ""
    answered: list[str] = []
    others = range(1, launch.n_ranks)
    store.set(f"hello/{launch.rank}", own_id)
    while True:
        if launch.rank > 0:
            answer: list[str] = json.loads(get("answer") or "[]")
            if own_id in answer:
                attempt = answer[0]
                store.set(f"seen/{launch.rank}", attempt)
                if store.check([f"begin/{attempt}"]):
                    return attempt
        else:
            ids = [get(f"hello/{i}") for i in others]
            if all(ids) and ids != answered:
                attempt, answered = uuid.uuid4().hex, ids
                store.set("answer", json.dumps([attempt, *ids]))
            if attempt and all(get(f"seen/{i}") == attempt for i in others):
                store.set(f"begin/{attempt}", "")
                return attempt
        check()
        time.sleep(POLL_S)


def parallel(model: "nn.Module") -> "nn.Module":
    """Wrap the model in DistributedDataParallel, which averages gradients over ranks. With one rank, return it."""
    if n_ranks() == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel

    device = next(model.parameters()).device
    gpus = [device] if device.type == "cuda" else None
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # newer torch has renamed broadcast_buffers
        return DistributedDataParallel(model, gpus, broadcast_buffers=False, gradient_as_bucket_view=True)


def unwrapped(model: "nn.Module") -> Any:
    """Return the model that was passed to `parallel`."""
    return getattr(model, "module", model)


def gather(content: bytes) -> list[bytes]:
    """Return the content of every rank, in order of ranks. Waits for all ranks."""
    if n_ranks() == 1:
        return [content]
    import torch

    sizes = _all(torch.tensor([len(content)]))
    padded = torch.zeros(int(max(sizes)), dtype=torch.uint8)
    padded[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else 0
    return [bytes(x[:size].numpy()) for x, size in zip(_all(padded), map(int, sizes), strict=True)]


def barrier() -> None:
    """Wait until all ranks have reached this call."""
    gather(b"")


def gather_numbers(*numbers: float) -> list[list[float]]:
    """Return the numbers of every rank, in order of ranks, in float64. Waits for all ranks."""
    if n_ranks() == 1:
        return [list(numbers)]
    import torch

    return [x.tolist() for x in _all(torch.tensor(numbers, dtype=torch.float64))]


def broadcast(number: float) -> float:
    """Return the first rank's number. Waits for all ranks."""
    return gather_numbers(number)[0][0]


def summed(*numbers: float) -> list[float]:
    """Return each number summed over ranks. Waits for all ranks."""
    return [sum(of_ranks) for of_ranks in zip(*gather_numbers(*numbers), strict=True)]


def _all(x: "Tensor") -> "list[Tensor]":
    import torch.distributed as dist

    global _last_work
    found = [x.clone() for _ in range(n_ranks())]
    _last_work = dist.all_gather(found, x, async_op=True)
    _last_work.wait()
    return found


@contextlib.contextmanager
def start_workers(n_workers: int, arguments: Sequence[str], n_threads: int) -> Iterator[Callable[[], None]]:
    """Run `nmt` with these arguments in more processes on this machine, so that there are `n_workers` ranks.

    Yields a function for `ranks_joined` that raises a LostRankError if a worker has ended.
    """
    if n_workers == 1:
        yield lambda: None
        return
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    # This rank hosts the store. Store and gloo use the loopback interface: resolving a host name may need the network.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(n_workers), "MASTER_ADDR": "127.0.0.1"}
    variables |= {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    variables |= {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    command = [sys.executable, "-m", "nmt", *arguments]
    workers: list[subprocess.Popen[bytes]] = []

    def check() -> None:
        for i, worker in enumerate(workers, 1):
            if (code := worker.poll()) is not None:
                reason = f"process {i} of {n_workers} ended by itself, with exit code {code}"
                raise LostRankError(reason, hint="what it said, if anything, stands above; try fewer --processes")

    completed = False
    try:
        with environment(variables):
            for i in range(1, n_workers):
                own = {"RANK": str(i), "LOCAL_RANK": str(i), "NMT_WORKER_THREADS": str(n_threads)}
                env = {**os.environ, **child_variables(), **own}
                # The worker's stdin is closed when its parent ends, or loses it to a signal: see end_with_parent.
                worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env)
                workers.append(worker)
            yield check
            completed = True
    finally:
        for worker in workers:
            with worker:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.wait(10 if completed else 2)  # a worker ends by itself when its work is done
                worker.kill()
