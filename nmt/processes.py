"""Control of this process and its child processes: signals, environment variables, memory, and parallel work.

Child processes import the same nmt as this process, and nothing from the working directory.
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

MIN_ITEMS = 6  # with fewer items, starting child processes takes longer than the work
MAX_PROCESSES = 16  # more children would wait for the parent, which sends and receives all items

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8  # options of mallopt, from glibc's malloc.h


class Stopped(KeyboardInterrupt):
    """The exception for Ctrl-C and SIGTERM.

    When it is raised, `finally` blocks remove temporary files and end child processes.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def stop_on_signals() -> None:
    """Install signal handlers: Ctrl-C and SIGTERM raise `Stopped`, and a second SIGTERM kills the process."""
    # Do not replace a handler that ignores the signal: shells start background jobs with SIGINT ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _stop)


def keep_stderr_open() -> None:
    """If stderr is closed, open /dev/null in its place.

    Otherwise the next file that is opened would get descriptor 2, and messages would be written to it.
    """
    if sys.stderr is None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        if null != 2:
            os.close(null)
        sys.stderr = open(2, "w")  # noqa: SIM115 - it stays open until the process ends


def _stop(number: int, _frame: FrameType | None) -> None:
    """Raise `Stopped`. During an import, end the process at once instead.

    Some libraries catch exceptions during imports. For example, torch would catch `Stopped` while it imports numpy, and
    continue with a broken numpy.
    """
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "_initializing", False):
            os._exit(128 + number)
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
    raise Stopped(number)


def set_environment_variables(threads: int = 0) -> None:
    """Set environment variables that configure OpenMP, oneDNN and torch. Call this function before torch is imported.

    Variables that the user has set are kept, except OMP_NUM_THREADS.

    - GOMP_SPINCOUNT (iterations, on Linux) and KMP_BLOCKTIME (milliseconds, on macOS and Windows) limit how long
      waiting OpenMP threads spin. The default is too long if another program uses a core: 200 sentences then take 6
      times as long. Without spinning, one sentence would take 2.5 times as long.
    - ONEDNN_PRIMITIVE_CACHE_CAPACITY and LRU_CACHE_CAPACITY limit the caches of oneDNN and torch to 64 compiled bf16
      matmuls. A training step needs about 30. Compiled matmuls fragment the heap, because they lie between the blocks
      of tensors: with 128 of them, training takes 100 to 300 MB more, and is no faster.
    - OMP_NUM_THREADS is set to `threads`. If `threads` is 0, a valid value of the user is kept. An invalid value, on
      which CTranslate2 would fail, is replaced by the number of usable cores.
    - MKL_DYNAMIC is set to FALSE if `threads` is not 0. Otherwise MKL would lower the number of threads to the number
      of cores.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
        os.environ.setdefault("KMP_BLOCKTIME", "1")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "64")
    outermost, *_ = os.environ.get("OMP_NUM_THREADS", "1").split(",")  # 4,2: 4 threads, each of which starts 2 threads
    if threads or not outermost.isdecimal():
        os.environ["OMP_NUM_THREADS"] = str(threads or usable_cores())
    if threads:
        os.environ.setdefault("MKL_DYNAMIC", "FALSE")


def prepare_torch() -> None:
    """Set environment variables and malloc's options for torch. Call this function before torch is imported."""
    set_environment_variables()
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Let glibc's malloc keep large blocks that torch frees. Do nothing if the user has set one of malloc's variables.

    By default, the system maps and clears the pages of each tensor over 32 MB. This takes 4 to 20 % of a training step.
    Keeping the blocks raises peak memory by up to 3 %.

    Do not call this function for CTranslate2: its threads would contend for the single heap.
    """
    chosen = [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))]
    if sys.platform != "linux" or chosen:
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:  # musl has no mallopt
        mallopt(M_MMAP_MAX, 0)  # take large blocks from the heap: mapped blocks return to the system when freed
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)  # keep up to 2 GB of free memory at the end of the heap
        mallopt(M_TOP_PAD, 2**26)  # grow the heap by 64 MB, so that it grows rarely
        mallopt(M_ARENA_MAX, 1)  # use one heap for all threads: other heaps cannot hold blocks over 64 MB


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def child_variables() -> dict[str, str]:
    """Return environment variables for a child Python process.

    With these variables, the child imports the same nmt as this process, and nothing from the working directory.
    """
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [str(Path(__file__).parents[1]), *filter(None, inherited)]  # an empty entry means the working directory
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(paths)}


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the duration of the block. After the block, restore the old values."""
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(before)


def in_parallel(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `work(item)` for each item, in order, computed by one child process per usable core.

    Fewer than `MIN_ITEMS` items are computed in this process. `ProcessPoolExecutor` is not used, because it would
    pickle `work`, which may hold tokenizers, with each item. Its processes would also outlive a killed parent.
    """
    stream = iter(items)
    first_items = list(itertools.islice(stream, MIN_ITEMS))
    if len(first_items) < MIN_ITEMS:
        yield from map(work, first_items)
        return
    context = multiprocessing.get_context("spawn")  # forking a process with threads may deadlock
    n_processes = min(usable_cores(), MAX_PROCESSES)
    pipes: deque[Connection] = deque()  # one per child; the child with the oldest item is first
    processes = []
    try:
        for item in itertools.chain(first_items, stream):
            if len(pipes) == n_processes:
                # Wait for the result of the oldest item. The child process that computed it gets the new item.
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
        for process in processes:  # wait for each process to end, so that the caller can use its memory
            process.terminate()
            process.join()


def _serve(work: Callable[[Any], Any], pipe: Connection) -> None:
    """Run in a child process: receive items and send back `work(item)`, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent handles it
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pipe.send(work(pipe.recv()))
