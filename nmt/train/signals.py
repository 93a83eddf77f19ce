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
    """A signal interrupted a block that need not finish. No Exception, so that no handler in between catches it."""


@dataclass
class StopRequest:
    """Set by the first Ctrl-C or SIGTERM; the second one ends the process at once."""

    number: int = 0  # the signal's; 0 before a signal
    in_interruptible: bool = False

    def set(self, number: int) -> None:
        """Note a signal, and interrupt an interruptible block."""
        self.number = number
        if self.in_interruptible:
            raise Interrupted

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """A block without side effects in which a signal raises `Interrupted`: a validation, which may take minutes.

        Only on the first rank: the others end when it does. Another rank that ended alone would end the training
        before the first rank has saved.
        """
        try:
            self.in_interruptible = rank() == 0
            if self.number:
                self.set(self.number)
            yield
        finally:
            self.in_interruptible = False


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Handle Ctrl-C and SIGTERM by a `StopRequest` inside this block."""
    request = StopRequest()
    before: dict[signal.Signals, Any] = {}

    def note(number: int, _frame: FrameType | None) -> None:
        for either in SIGNALS:
            signal.signal(either, signal.SIG_DFL)
        with contextlib.suppress(RuntimeError):  # the signal interrupted another log message
            log.warning("stopping after this step; once more to stop at once")
        request.set(number)

    with contextlib.suppress(ValueError):  # not the main thread, which alone receives signals
        before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
