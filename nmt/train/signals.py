"""Handlers of Ctrl-C and SIGTERM, which set a stop request that the training loop checks at each step."""

import contextlib
import logging
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from nmt.distributed import rank

log = logging.getLogger("nmt")

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """The exception that a signal raises in a block that need not finish.

    It is no subclass of Exception, so that `except Exception` does not catch it.
    """


@dataclass
class StopRequest:
    """A request to stop training, set by the first Ctrl-C or SIGTERM. A second signal ends the process at once."""

    number: int = 0  # number of the received signal; 0 if none was received
    in_interruptible: bool = False  # whether a signal raises `Interrupted` now

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let a signal raise `Interrupted` inside this block. The block is a validation, which can be repeated.

        Only rank 0 is interrupted. If another rank ended first, rank 0 would fail before it has saved.
        """
        try:
            self.in_interruptible = rank() == 0
            if self.in_interruptible and self.number:
                raise Interrupted
            yield
        finally:
            self.in_interruptible = False


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Handle Ctrl-C and SIGTERM inside this block: a signal sets the `StopRequest`."""
    request = StopRequest()
    before: dict[signal.Signals, Any] = {}

    def note(number: int, _frame: FrameType | None) -> None:
        # Restore the default handlers, so that a second signal ends the process.
        for either in SIGNALS:
            signal.signal(either, signal.SIG_DFL)
        with contextlib.suppress(RuntimeError):  # raised if the signal interrupted another log message
            log.warning("stopping after this step; once more to stop at once")
        request.number = number
        if request.in_interruptible:
            raise Interrupted

    with contextlib.suppress(ValueError):  # raised outside of the main thread
        before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield request
    finally:
        # After the block, the previous handlers apply again.
        for number, handler in before.items():
            signal.signal(number, handler)
