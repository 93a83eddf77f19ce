"""Ctrl-C and SIGTERM as a request that the training loop reads after each step."""

import contextlib
import logging
import signal
from collections.abc import Iterator
from types import FrameType

log = logging.getLogger("nmt")


class StopRequest:
    """Set by the first Ctrl-C or SIGTERM; the second one ends the process at once."""

    number: int = 0


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a request that the loop reads after each step."""
    request = StopRequest()

    def note(number: int, _frame: FrameType | None) -> None:
        request.number = number
        signal.signal(number, signal.SIG_DFL)
        log.warning("stopping after this step; once more to stop at once")

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs us there handles signals
        yield request
        return
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
