"""The command `nmt`, also as `python -m nmt`: handles Ctrl-C from its first import on, then runs `nmt.cli`."""

import signal
import sys
from types import FrameType

RETRY_S = 0.05


def interrupt(_number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt for Ctrl-C, but not during an import: try again a little later.

    Libraries catch what is raised when they import one another. torch, whose C++ code imports numpy, goes on with
    half of numpy, so that Ctrl-C would be lost or end in an error that has nothing to do with it.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, RETRY_S)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def main() -> None:
    """Run the command."""
    in_foreground = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else Ctrl-C is ignored
    if in_foreground and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.signal(signal.SIGINT, interrupt)
    try:
        from nmt import cli

        cli.main()
    except KeyboardInterrupt:  # before or after what cli.main() handles
        sys.exit(128 + signal.SIGINT)
    finally:
        if hasattr(signal, "setitimer"):  # a process that is ending would die of SIGALRM
            signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
