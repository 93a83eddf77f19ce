"""The errors that users see. Each error has an exit code and a hint; `cli/app.py` prints the message and the hint."""

import contextlib
import zlib
from collections.abc import Iterator


class NmtError(Exception):
    """Base class of the errors that users see. `str(error)` is the message, usually a single line.

    `lines` are the lines of the message. A line end inside one of them, for example in a file name, is escaped.
    """

    exit_code = 1

    def __init__(self, *lines: str, hint: str = "") -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
        self.hint = hint


class OutputError(NmtError):
    """The error that a file cannot be written: disk full, no permission, no such directory."""


class DownloadError(NmtError):
    """The error that a download fails or has unexpected content."""


class DivergedError(NmtError):
    """The error that training cannot continue, because the loss or the gradient is not finite."""


class LostRankError(NmtError):
    """The error that another process of the same job, such as another rank, has ended too early."""


class StoppedError(NmtError):
    """The exception that Ctrl-C or SIGTERM has ended a training. The state of the training has been saved.

    The exit code is 128 + the number of the signal: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, message: str, signal_number: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.exit_code = 128 + signal_number


class InputError(NmtError):
    """The error that files, config or arguments of the user are wrong."""

    exit_code = 2


class ConfigError(InputError):
    """The error that a setting is unknown, misspelled, out of range or incompatible with another setting."""


class DataError(InputError):
    """The error that a corpus is missing, empty or misaligned."""


class ModelError(InputError):
    """The error that a model file, a run directory or a tokenizer is missing, damaged or not supported."""


@contextlib.contextmanager
def os_errors_as(kind: type[NmtError], action: str, *, hint: str) -> Iterator[None]:
    """Raise an error of class `kind` if the block fails to read or write a file, plain or gzipped.

    The message is `cannot ACTION: REASON`, for example `cannot write a.txt: No space left on device`.
    """
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise kind(f"cannot {action}: {reason}", hint=hint) from error
