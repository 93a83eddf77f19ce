"""A disk that fails at a chosen system call."""

import builtins
import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

KILL = 0  # in place of the number of an error: the process is killed
CALLS = ("open", "fsync", "replace", "rename", "chmod", "stat", "unlink", "scandir", "mkdir", "rmdir")


class FailingDisk:
    """Counts the system calls of reads and writes in a block of `failing`, of which one fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails_at = self.n_calls = self.number = 0
        for name in CALLS:
            monkeypatch.setattr(os, name, self.counted(getattr(os, name)))
        open_file = self.counted(io.open)

        class Writer(io.BufferedWriter):
            write = self.counted(io.BufferedWriter.write)
            flush = self.counted(io.BufferedWriter.flush)

        class Reader(io.BufferedReader):
            read = self.counted(io.BufferedReader.read)

        def open_counted(path: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
            if mode == "wb":
                return Writer(open_file(path, mode, 0))
            if mode == "rb":
                return Reader(open_file(path, mode, 0))
            return open_file(path, mode, buffering, *args, **kwargs)

        monkeypatch.setattr(io, "open", open_counted)
        monkeypatch.setattr(builtins, "open", open_counted)

    @contextmanager
    def failing(self, fails_at: int, number: int) -> Iterator[None]:
        """Let the call `fails_at` of the block, counted from 1, fail with errno `number`."""
        self.fails_at = fails_at
        self.n_calls = 0
        self.number = number
        try:
            yield
        finally:
            self.fails_at = 0

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.fails_at:
                self.count()
            return function(*args, **kwargs)

        return call

    def count(self) -> None:
        self.n_calls += 1
        if self.n_calls == self.fails_at:
            if self.number == KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(self.number, os.strerror(self.number))
