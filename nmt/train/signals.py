"""Ctrl-C and SIGTERM set a request that the training loop checks at each step."""

import contextlib
import logging
import signal
from collections.abc import Iterator
from types import FrameType

from nmt.distributed import rank

log = logging.getLogger("nmt")


class Interrupted(BaseException):
    """A signal interrupted a block that need not finish. No Exception, so that no handler in between catches it."""


class StopRequest:
    """Set by the first Ctrl-C or SIGTERM; the second one ends the process at once.

    Attributes:
        number: the signal's; 0 before a signal.
    """

    def __init__(self) -> None:
        self.number = 0
        self._interruptible = False

    def set(self, number: int) -> None:
        """Note a signal, and interrupt an interruptible block."""
        self.number = number
        if self._interruptible:
            raise Interrupted

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """A block without side effects that a signal interrupts, such as a validation, which may take minutes.

        Only on the first rank: the others end when it does. Another rank that ended alone would end the training
        before the first rank has saved.

        Raises:
            Interrupted: a signal was received.
        """
        try:
            self._interruptible = rank() == 0
            if self.number:
                self.set(self.number)
            yield
        finally:
            self._interruptible = False


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Handle Ctrl-C and SIGTERM by a `StopRequest` inside this block."""
    request = StopRequest()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def note(number: int, _frame: FrameType | None) -> None:
        for either in numbers:
            signal.signal(either, signal.SIG_DFL)
        with contextlib.suppress(RuntimeError):  # the signal interrupted another log message
            log.warning("stopping after this step; once more to stop at once")
        request.set(number)

    try:
        before = {number: signal.signal(number, note) for number in numbers}
    except ValueError:  # not the main thread, which alone receives signals
        yield request
        return
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
