"""Child processes: they run the parent's code, import no module of the working directory, and end with the parent.

Knows nothing of what the children compute. Imports no torch.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived; like Ctrl-C it unwinds the stack, so that temporary files are removed and children end."""


def raise_on_sigterm() -> None:
    """Turn the first SIGTERM into `Terminated`; a second one ends the process at once."""

    def terminate(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)


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
