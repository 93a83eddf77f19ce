"""Ctrl-C and SIGTERM set a request that the training loop checks at each step."""

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
    """A signal interrupted a block that need not finish. Not an Exception, so that `except Exception` lets it pass."""


@dataclass
class StopRequest:
    """Set by the first Ctrl-C or SIGTERM; a second signal ends the process at once."""

    number: int = 0  # of the received signal; 0 if there was none
    in_interruptible: bool = False

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let a signal raise `Interrupted` in this block: a validation, which may take minutes and has no side effects.

        Only rank 0 is interrupted; the other ranks end when it ends. If another rank ended first, the training would
        end before rank 0 has saved.
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
    """Turn Ctrl-C and SIGTERM inside this block into a `StopRequest`."""
    request = StopRequest()
    before: dict[signal.Signals, Any] = {}

    def note(number: int, _frame: FrameType | None) -> None:
        # A second signal ends the process.
        for either in SIGNALS:
            signal.signal(either, signal.SIG_DFL)
        with contextlib.suppress(RuntimeError):  # raised if the signal interrupted another log message
            log.warning("stopping after this step; once more to stop at once")
        request.number = number
        if request.in_interruptible:
            raise Interrupted

    with contextlib.suppress(ValueError):  # raised outside the main thread, which alone can handle signals
        before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield request
    finally:
        # Outside of the block, signals mean what they meant before.
        for number, handler in before.items():
            signal.signal(number, handler)
