"""The command `nmt`, also as `python -m nmt`: handles Ctrl-C from its first import on, then runs `nmt.cli`."""

import os
import signal
import sys
from types import FrameType

# Modules whose functions import what a command needs before its work, when there is nothing to clean up yet.
AT_START = ("__main__", "nmt.__main__", "nmt.cli", "nmt.decode.translator")


def interrupt(_number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt for Ctrl-C; while the command imports what it needs, end the process at once.

    Libraries catch what is raised when they import one another. torch, whose C++ code imports numpy, goes on with
    half of numpy, so that Ctrl-C would be lost or end in an error that has nothing to do with it.
    """
    while frame is not None:
        caller = frame.f_back
        is_import = frame.f_code.co_filename.startswith("<frozen importlib")
        if is_import and caller is not None and caller.f_globals.get("__name__") in AT_START:
            os._exit(128 + signal.SIGINT)
        frame = caller
    raise KeyboardInterrupt


def main() -> None:
    """Run the command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else Ctrl-C is ignored: in the background
        signal.signal(signal.SIGINT, interrupt)
    try:
        from nmt import cli

        cli.main()
    except KeyboardInterrupt:  # before or after what cli.main() handles
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
