"""This process and its children: signals, what torch reads from the environment, how children start and end.

Children run the parent's code, import no module of the working directory, and end with the parent. Knows nothing
of what they compute. Imports no torch.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

# Modules that import what a command needs. They do so before anything is opened that must be cleaned up.
IMPORTERS = ("__main__", "nmt.__main__", "nmt.cli", "nmt.decode.translator")


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM: unwinds the stack, so that temporary files are removed and children end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def stop_on_signals() -> None:
    """Let Ctrl-C and SIGTERM raise `Stopped`; a second SIGTERM ends the process at once.

    A signal that is ignored stays ignored, as shells ask it of commands in the background.
    """
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is default:
            signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise `Stopped`; while a command imports what it needs, end the process.

    Libraries catch what is raised when they import one another. torch, whose C++ code imports numpy, goes on with
    half of numpy: the signal would be lost, or end in an error that has nothing to do with it.
    """
    while frame is not None:
        caller = frame.f_back
        is_import = frame.f_code.co_filename.startswith("<frozen importlib")
        if is_import and caller is not None and caller.f_globals.get("__name__") in IMPORTERS:
            os._exit(128 + number)
        frame = caller
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
    raise Stopped(number)


def prepare_torch(threads: int = 0) -> None:
    """Set the environment variables that torch reads when it is imported, unless the user has set them.

    - OpenMP threads that wait spin only briefly, then sleep. By default they spin for milliseconds: if another
      program uses a core, they take the time of the thread that they wait for, and 200 sentences take 6 times as
      long. If they slept at once, waking them would cost more than small operations: one sentence took 2.5 times as
      long.
    - bf16 matmuls are compiled for each shape, and every batch has another. oneDNN and torch keep 1,024 of them
      each, a gigabyte scattered between the tensors. A step needs fewer than 32.

    Args:
        threads: of the CPU; 0 leaves the number to torch. NMT_WORKER_THREADS, a worker's share, overrides it.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "32")
    if threads := int(os.environ.get("NMT_WORKER_THREADS", threads)):
        os.environ["OMP_NUM_THREADS"] = str(threads)


def child_variables() -> dict[str, str]:
    """Environment variables under which a child Python imports this nmt, but nothing from the working directory.

    An empty entry of PYTHONPATH means the working directory, where a file named like a library would be imported
    in its place.
    """
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    package = str(Path(__file__).parents[1])
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join([package, *filter(None, inherited)])}


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the length of the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def end_with_parent() -> None:
    """End this process when its parent ends, however that ends.

    The parent holds the other end of stdin and writes nothing: stdin is at its end when the parent is gone.
    """

    def watch() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=watch, name="nmt-parent", daemon=True).start()
