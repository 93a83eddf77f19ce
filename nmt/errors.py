"""The errors that users see, each with an exit code and a hint on what to do; `cli/app.py` prints them."""

import contextlib
import zlib
from collections.abc import Iterator


class NmtError(Exception):
    """Base class of the errors that users see; `str()` is the message, usually one line.

    `lines` are its parts, each printed on a line of its own: a file name in them may contain line ends.
    """

    exit_code = 1

    def __init__(self, *lines: str, hint: str = "") -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
        self.hint = hint


class OutputError(NmtError):
    """A file cannot be written: disk full, no permission, no such directory."""


class DownloadError(NmtError):
    """A file cannot be downloaded, or its content is not as expected."""


class DivergedError(NmtError):
    """Training cannot continue: the loss or the gradient is not finite."""


class LostRankError(NmtError):
    """Another process of the same job has ended."""


class StoppedError(NmtError):
    """Ctrl-C or SIGTERM ended a training; everything is saved. The exit code is 128 + the signal number: 130 or 143."""

    def __init__(self, message: str, signal_number: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.exit_code = 128 + signal_number


class InputError(NmtError):
    """The user's files, config or arguments are wrong."""

    exit_code = 2


class ConfigError(InputError):
    """A setting is unknown, misspelled, out of range or incompatible with another."""


class DataError(InputError):
    """A corpus is missing, empty or misaligned."""


class ModelError(InputError):
    """A model file, a run directory or a tokenizer is missing, damaged or not supported."""


@contextlib.contextmanager
def os_errors_as(kind: type[NmtError], action: str, *, hint: str) -> Iterator[None]:
    """Convert errors of files, gzipped ones too, to an error of this kind: `cannot ACTION: No space left on device`."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise kind(f"cannot {action}: {reason}", hint=hint) from error
