"""This process and its children: signals, and environment variables that torch and children read.

Children run the same code and import nothing from the working directory.
"""

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from nmt.errors import LostRankError

Item = TypeVar("Item")
Result = TypeVar("Result")

MIN_ITEMS = 6  # fewer take less time than starting other processes
MAX_PROCESSES = 16  # more would wait for the parent, which reads and writes for all

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8  # of glibc's malloc.h


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM; an exception, so that temporary files are removed and child processes end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def stop_on_signals() -> None:
    """Raise `Stopped` on Ctrl-C and SIGTERM; a second SIGTERM kills the process."""
    # Signals that are ignored stay so: shells ignore SIGINT in background jobs.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _stop)


def keep_stderr_open() -> None:
    """If stderr is closed, open /dev/null instead: a file of data would get descriptor 2 and the messages."""
    if sys.stderr is None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        if null != 2:
            os.close(null)
        sys.stderr = open(2, "w")  # noqa: SIM115 - until the process ends


def _stop(number: int, _frame: FrameType | None) -> None:
    """Raise `Stopped`; during an import, exit at once.

    Some libraries catch exceptions during imports. For example, torch would continue with a broken numpy, and the
    signal would be lost.
    """
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "_initializing", False):
            os._exit(128 + number)
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
    raise Stopped(number)


def set_environment_variables(threads: int = 0) -> None:
    """Set the environment variables that configure OpenMP, oneDNN and torch. Call it before torch is imported.

    Variables that the user has set are kept, except OMP_NUM_THREADS.

    - Waiting OpenMP threads spin briefly, then sleep. By default they spin for milliseconds: if another program uses a
      core, 200 sentences take 6 times as long. If they slept at once, one sentence would take 2.5 times as long. The
      variable is GOMP_SPINCOUNT (iterations) on Linux, KMP_BLOCKTIME (milliseconds) on macOS and Windows.
    - oneDNN and torch cache 128 compiled bf16 matmuls instead of 1,024; a step of training needs about 30.
    - OMP_NUM_THREADS is `threads`. With 0, only an invalid value is replaced, because CTranslate2 fails on it.
    - MKL would lower `threads` to the number of cores, and torch does what MKL does.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
        os.environ.setdefault("KMP_BLOCKTIME", "1")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "128")
    outermost, *_ = os.environ.get("OMP_NUM_THREADS", "1").split(",")  # 4,2 means 4 threads, each with 2
    if threads or not outermost.isdecimal():
        os.environ["OMP_NUM_THREADS"] = str(threads or usable_cores())
    if threads:
        os.environ.setdefault("MKL_DYNAMIC", "FALSE")


def prepare_torch() -> None:
    """Set environment variables and malloc's options for torch. Call it before torch is imported."""
    set_environment_variables()
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Let glibc's malloc keep large blocks that torch frees, unless the user has set one of malloc's variables.

    Otherwise, the system has to map and clear the pages of each tensor of more than 32 MB, which takes 4 to 20 % of a
    training step. Peak memory increases by up to 3 %. Not for CTranslate2: its threads would contend for the one heap,
    and a greedy search in int8 would take 1.4 times as long.
    """
    chosen = [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))]
    if sys.platform != "linux" or chosen:
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:  # musl has no mallopt
        mallopt(M_MMAP_MAX, 0)  # take large blocks from the heap too; free returns mapped blocks to the system
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)  # keep up to 2 GB of free memory at the end of the heap
        mallopt(M_TOP_PAD, 2**26)  # grow the heap by 64 MB, so that it grows rarely
        mallopt(M_ARENA_MAX, 1)  # one heap for all threads; other heaps are limited to blocks of 64 MB


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def child_variables() -> dict[str, str]:
    """Return variables for a child Python process: it imports this nmt, and nothing from the working directory."""
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [str(Path(__file__).parents[1]), *filter(None, inherited)]  # "" means the working directory
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(paths)}


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the duration of the block."""
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(before)


def in_parallel(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Like `map`, but in one process per usable core, at most `MAX_PROCESSES`; few items are processed in this process.

    Each process receives `work`, which may hold tokenizers, once, then items one by one. It exits when its pipe closes.
    `ProcessPoolExecutor` would pickle `work` with each item, and its processes would outlive a parent that is killed.
    """
    stream = iter(items)
    first_items = list(itertools.islice(stream, MIN_ITEMS))
    if len(first_items) < MIN_ITEMS:
        yield from map(work, first_items)
        return
    context = multiprocessing.get_context("spawn")  # forking a process with threads may deadlock
    n_processes = min(usable_cores(), MAX_PROCESSES)
    pipes: deque[Connection] = deque()  # one per process; the first has the oldest item
    processes = []
    try:
        for item in itertools.chain(first_items, stream):
            if len(pipes) == n_processes:
                # Wait for the oldest result; its process gets this item.
                yield pipes[0].recv()
                pipes.rotate(-1)
            else:
                pipe, child_pipe = context.Pipe()
                process = context.Process(target=_serve, args=(work, child_pipe), daemon=True)
                with environment(child_variables()):
                    process.start()
                child_pipe.close()
                pipes.append(pipe)
                processes.append(process)
            pipes[-1].send(item)
        for pipe in pipes:
            yield pipe.recv()
    except (EOFError, ConnectionError) as error:
        raise LostRankError("a process that prepared the corpus is gone", hint="was there enough memory?") from error
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:  # wait, so that their memory is free for what comes next
            process.terminate()
            process.join()


def _serve(work: Callable[[Any], Any], pipe: Connection) -> None:
    """Answer items with results until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent handles it
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pipe.send(work(pipe.recv()))
