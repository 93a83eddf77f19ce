"""RUN/train.log: a copy of the log that `nmt train` prints to stderr."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from nmt.cli.streams import log, printable
from nmt.errors import NmtError, OutputError
from nmt.files import append_whole


class RunLog(logging.Handler):
    """Appends log records to a file, each line with its time and level.

    Lines are kept until `open` is called, because only a process that holds the run's lock may write into the run.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.is_open = False
        self.lines = ""

    def open(self) -> None:
        self.is_open = True
        self.write()

    def emit(self, record: logging.LogRecord) -> None:
        start = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z', time.localtime(record.created))} {record.levelname}"
        self.lines += "".join(f"{start} {printable(line)}\n" for line in record.getMessage().split("\n"))
        if self.is_open:
            self.write()

    def write(self) -> None:
        """Append the lines. If that fails, warn, and write no more."""
        lines, self.lines = self.lines, ""
        try:
            append_whole(self.file, lines.encode())
        except OutputError as error:
            log.removeHandler(self)
            log.warning("%s; training goes on without this log", error)


@contextlib.contextmanager
def kept_log(file: Path) -> Iterator[Callable[[], None]]:
    """Copy the block's log, and the NmtError that ends it, to `file`. Yields the function that opens the file."""
    handler = RunLog(file)
    log.addHandler(handler)
    try:
        yield handler.open
    except NmtError as error:
        message = f"{type(error).__name__}: {error}"
        handler.handle(logging.LogRecord(log.name, logging.ERROR, __file__, 0, message, None, None))
        raise
    finally:
        log.removeHandler(handler)
