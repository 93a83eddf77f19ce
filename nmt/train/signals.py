"""Ctrl-C and SIGTERM as a request that the training loop reads after each step."""

import contextlib
import logging
import signal
from collections.abc import Iterator
from types import FrameType

from nmt.distributed import rank

log = logging.getLogger("nmt")


class Interrupted(BaseException):
    """A signal came in a block that need not be finished; no error, so that nothing on its way catches it."""


class StopRequest:
    """Set by the first Ctrl-C or SIGTERM; the second one ends the process at once.

    Attributes:
        number: of the signal; 0 before there was one.
    """

    def __init__(self) -> None:
        self.number = 0
        self._breaks_off = False

    def set(self, number: int) -> None:
        """Note a signal; breaks off a block that may be."""
        self.number = number
        if self._breaks_off:
            raise Interrupted

    @contextlib.contextmanager
    def breaking_off(self) -> Iterator[None]:
        """A block without effect, such as a validation, that a signal breaks off: it may last for minutes.

        The first rank's only: by it all others end. One of them that leaves by itself would take the rest along
        before anything is saved.

        Raises:
            Interrupted: a signal came.
        """
        try:
            self._breaks_off = rank() == 0
            if self.number:
                self.set(self.number)
            yield
        finally:
            self._breaks_off = False


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a request that the loop reads after each step."""
    request = StopRequest()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def note(number: int, _frame: FrameType | None) -> None:
        for either in numbers:
            signal.signal(either, signal.SIG_DFL)
        with contextlib.suppress(RuntimeError):  # it came in the middle of another message
            log.warning("stopping after this step; once more to stop at once")
        request.set(number)

    try:
        before = {number: signal.signal(number, note) for number in numbers}
    except ValueError:  # not in the main thread: whoever runs us there handles signals
        yield request
        return
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
