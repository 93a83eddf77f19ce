"""Ranks: who am I, what have the others, start some more. One process is the case of one rank.

That there are others, torchrun's environment tells, or `start_workers`, which starts processes on this machine
that share its cores. They work together inside `ranks_joined`, outside of which each is alone. How work is cut is
up to whoever does it; see `mine`. Imports torch only where there are several.
"""

import contextlib
import datetime
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from nmt.errors import ConfigError, LostRankError
from nmt.processes import child_variables, environment

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.distributed import Work

Item = TypeVar("Item")

log = logging.getLogger("nmt")

PATIENCE = datetime.timedelta(hours=24)  # others may be at work alone: on a tokenizer, on a large corpus
POLL_S = 0.02
WARN_AFTER_S = 20.0  # of waiting for other ranks


class Place(NamedTuple):
    """Which of how many processes this is.

    Attributes:
        rank: from 0; 0 is the one that writes.
        n_ranks: how many there are.
        local_rank: which on this machine.
    """

    rank: int
    n_ranks: int
    local_rank: int


ALONE = Place(0, 1, 0)
_joined = ALONE
# Kept until the next one: if gloo's thread were the last to let go of it, that thread would wait for Python's lock
# and the main thread, which leaves the group with that lock, for the thread.
_last_work: "Work | None" = None


def launched() -> Place:
    """Who this process is to be, by the environment; alone where nobody launched several.

    Raises:
        ConfigError: the environment contradicts itself.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")
    if not all(name in os.environ for name in (*names, "MASTER_ADDR")):
        return ALONE
    hint = "unset them, or use torchrun"
    try:
        *place, port = (int(os.environ[name]) for name in names)
    except ValueError as error:
        raise ConfigError(f"{', '.join(names)}: {error}", hint=hint) from error
    rank, n_ranks, local_rank = place
    if not 0 <= rank < n_ranks:
        raise ConfigError(f"RANK is {rank} of WORLD_SIZE {n_ranks}", hint=hint)
    if local_rank < 0:
        raise ConfigError(f"LOCAL_RANK is {local_rank}", hint=hint)
    if not 0 <= port < 2**16:
        raise ConfigError(f"MASTER_PORT is {port}, not 0 to 65535", hint=hint)
    return Place(rank, n_ranks, local_rank)


def restarted() -> bool:
    """Whether torchrun has started the ranks anew, after one has died."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def rank() -> int:
    """Which of the joined ranks this is, from 0."""
    return _joined.rank


def n_ranks() -> int:
    """How many ranks work together."""
    return _joined.n_ranks


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
def ranks_joined(check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Work together for the length of the block; begins when all ranks have come to it.

    Args:
        check: called while waiting; raises where there is nobody to wait for.
    Raises:
        LostRankError: another rank has gone.
    """
    global _joined
    place = launched()
    if place.n_ranks == 1:
        yield
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    try:
        with _warning_of_a_long_wait(place):
            store = _connect(check)
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
                store=PrefixStore(_meet(store, place, check), store),
                rank=place.rank,
                world_size=place.n_ranks,
                timeout=PATIENCE,
            )
        _joined = place
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise LostRankError(
            f"another of the {place.n_ranks} processes is gone",
            hint="what it said, if anything, stands beside this; was there enough memory?",
        ) from error
    finally:
        _joined = ALONE
        if dist.is_initialized():
            dist.destroy_process_group()


@contextlib.contextmanager
def _warning_of_a_long_wait(place: Place) -> Iterator[None]:
    """Say whom this rank waits for, if the block takes long: perhaps nobody has started them."""
    others = f"the other {place.n_ranks - 1}" if place.n_ranks > 2 else "the other one"
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    timer = threading.Timer(
        WARN_AFTER_S,
        log.warning,
        [
            "rank %d of %d waits for %s at %s; if none was started, unset RANK and WORLD_SIZE, or use torchrun",
            *(place.rank, place.n_ranks, others, address),
        ],
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _connect(check: Callable[[], None]) -> Any:
    """The store through which ranks meet, at MASTER_ADDR and MASTER_PORT.

    A thread connects: in C++, where no signal is handled, it tries again until the store is there.
    """
    from torch.distributed.rendezvous import rendezvous

    result: list[Any] = []

    def connect() -> None:
        try:
            result.append(next(rendezvous("env://", timeout=PATIENCE))[0])
        except Exception as error:  # raised by the thread that waits
            result.append(error)

    threading.Thread(target=connect, name="nmt-store", daemon=True).start()
    while not result:
        check()
        time.sleep(POLL_S)
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]


def _meet(store: Any, place: Place, check: Callable[[], None]) -> str:
    """Wait until all ranks of this attempt are here; the name that the attempt goes by.

    The store may still hold what ranks that have died since wrote into it. So each rank says hello with a new
    word, the first one answers with all the words that it has seen, and begins when every rank has found its own
    word in the answer.
    """
    word = uuid.uuid4().hex
    if place.rank > 0:
        store.set(f"hello/{place.rank}", word)
        while True:
            answer = json.loads(store.get("answer")) if store.check(["answer"]) else {}
            if answer.get(str(place.rank)) == word:
                store.set(f"seen/{place.rank}", answer["attempt"])
                if store.check([f"begin/{answer['attempt']}"]):
                    return str(answer["attempt"])
            check()
            time.sleep(POLL_S)
    others = [str(i) for i in range(1, place.n_ranks)]
    words: dict[str, str] = {}
    while True:
        now = {i: store.get(f"hello/{i}").decode() for i in others if store.check([f"hello/{i}"])}
        if len(now) == len(others):
            if now != words:
                words, word = now, uuid.uuid4().hex
                store.set("answer", json.dumps({**words, "attempt": word}))
            seen = [store.get(f"seen/{i}").decode() for i in others if store.check([f"seen/{i}"])]
            if seen == [word] * len(others):
                store.set(f"begin/{word}", "")
                return word
        check()
        time.sleep(POLL_S)


def parallel(model: "nn.Module") -> "nn.Module":
    """The model such that a backward pass leaves the mean of all ranks' gradients in it."""
    if n_ranks() == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel

    device = next(model.parameters()).device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # broadcast_buffers has another name in newer torch
        return DistributedDataParallel(
            model,
            [device] if device.type == "cuda" else None,
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
        )


def unwrapped(model: "nn.Module") -> Any:
    """The model in what `parallel` has made of it."""
    return getattr(model, "module", model)


def gather(content: bytes) -> list[bytes]:
    """What every rank has, in the order of ranks; waits for all of them."""
    if n_ranks() == 1:
        return [content]
    import torch

    sizes = _all(torch.tensor([len(content)]))
    padded = torch.zeros(int(max(sizes)), dtype=torch.uint8)
    padded[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else 0
    return [bytes(x[:size].numpy()) for x, size in zip(_all(padded), map(int, sizes), strict=True)]


def barrier() -> None:
    """Wait until all ranks have come here."""
    gather(b"")


def gather_numbers(*numbers: float) -> list[list[float]]:
    """The numbers of every rank, in the order of ranks, exactly; waits for all of them."""
    if n_ranks() == 1:
        return [list(numbers)]
    import torch

    return [x.tolist() for x in _all(torch.tensor(numbers, dtype=torch.float64))]


def summed(*numbers: float) -> list[float]:
    """Each of the numbers summed over ranks; waits for all of them."""
    return [sum(of_ranks) for of_ranks in zip(*gather_numbers(*numbers), strict=True)]


def _all(x: "Tensor") -> "list[Tensor]":
    import torch
    import torch.distributed as dist

    global _last_work
    found = [torch.empty_like(x) for _ in range(n_ranks())]
    _last_work = dist.all_gather(found, x, async_op=True)
    _last_work.wait()
    return found


@contextlib.contextmanager
def start_workers(n_workers: int, arguments: Sequence[str], n_threads: int) -> Iterator[Callable[[], None]]:
    """Run the same command in further processes too, as ranks beside this one on this machine.

    Args:
        n_workers: how many there are then, this one among them.
        arguments: of the command, without `nmt`.
        n_threads: of each of them.
    Yields:
        what raises LostRankError when a worker has ended, for `ranks_joined`.
    """
    if n_workers == 1:
        yield lambda: None
        return
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    # This rank keeps the store, through which the others find one another. The loopback: else gloo resolves the
    # machine's name, which may need the network.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(n_workers), "MASTER_ADDR": "127.0.0.1"}
    meeting |= {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    if sys.platform == "linux":
        meeting["GLOO_SOCKET_IFNAME"] = "lo"
    command = [sys.executable, "-m", "nmt", *arguments]
    workers: list[subprocess.Popen[bytes]] = []

    def check() -> None:
        for i, worker in enumerate(workers, 1):
            if (code := worker.poll()) is not None:
                raise LostRankError(
                    f"process {i} of {n_workers} ended by itself, with exit code {code}",
                    hint="what it said, if anything, stands above; try fewer --workers",
                )

    well = False
    try:
        with environment(meeting):
            with _uninterrupted():  # or one that has just been started would be known to nobody
                for i in range(1, n_workers):
                    own = {"RANK": str(i), "LOCAL_RANK": str(i), "NMT_WORKER_THREADS": str(n_threads)}
                    workers.append(
                        subprocess.Popen(
                            command,
                            stdin=subprocess.PIPE,  # see end_with_parent
                            stdout=subprocess.DEVNULL,
                            env={**os.environ, **child_variables(), **own},
                        )
                    )
            yield check
            well = True
    finally:
        for worker in workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(10 if well else 2)  # it ends with this one's work
            worker.kill()
            worker.wait()
            assert worker.stdin
            worker.stdin.close()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the end of the block."""
    pressed: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {number: signal.signal(number, lambda n, _: pressed.append(n)) for number in numbers}
    except ValueError:  # signals reach the main thread only, and this is another
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for arrived in pressed:
        signal.raise_signal(arrived)
