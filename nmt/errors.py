"""What can go wrong, as the user meets it.

Raised where the facts are known (file, line, got, allowed), caught in `cli.py` alone; the Python API raises the
same classes. Each carries a `hint` that says what to do and the exit code that the command ends with.

    NmtError             1   the work failed
    ├── OutputError      1   a file that cannot be written
    ├── DivergedError    1   training whose figures are no longer numbers
    ├── LostRankError    1   another process of the same work is gone
    ├── StoppedError   130   Ctrl-C, or 143 for SIGTERM: all is saved
    └── InputError       2   the user's files, config or arguments
        ├── ConfigError  2   a setting
        ├── DataError    2   a corpus
        └── ModelError   2   a model file, a run directory or a tokenizer
"""


class NmtError(Exception):
    """Base of all errors that a user can cause; `str()` is the one-line message."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class OutputError(NmtError):
    """A file cannot be written: no room, no permission, no such directory."""


class DivergedError(NmtError):
    """Training cannot go on: the loss or the gradient is not finite."""


class LostRankError(NmtError):
    """Another process that the work was shared with is gone."""


class InputError(NmtError):
    """Something that the user gave is wrong."""

    exit_code = 2


class ConfigError(InputError):
    """A setting is unknown, misspelt, out of range or at odds with another."""


class DataError(InputError):
    """A corpus is missing, empty or misaligned."""


class ModelError(InputError):
    """A model file, a run directory or a tokenizer is not what it should be."""


class StoppedError(NmtError):
    """A signal asked for the end; everything is saved. Exits 128 + the signal's number."""

    def __init__(self, message: str, signal_number: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.exit_code = 128 + signal_number
