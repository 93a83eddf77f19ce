"""Disks that are full, fail, or return other bytes than were written: training continues from intact files."""

import builtins
import errno
import io
import os
import random
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import soak
from small_run import config_of, run_training

from nmt.errors import ModelError, OutputError
from nmt.run.directory import RunDirectory
from nmt.train import checkpointer
from reliability.runs import damaged, newest_step, temps, weights


class FailingDisk:
    """Counts the system calls of reads and writes; call `fails_at` (0: none) fails with errno `number` (0: a kill)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.number = number
        self.fails_at = self.n_calls = 0
        for name in ["open", "fsync", "replace", "rename", "chmod", "stat", "unlink", "scandir", "mkdir", "rmdir"]:
            monkeypatch.setattr(os, name, self.counted(getattr(os, name)))
        real = self.counted(io.open)

        class Writer(io.BufferedWriter):
            write = self.counted(io.BufferedWriter.write)
            flush = self.counted(io.BufferedWriter.flush)

        class Reader(io.BufferedReader):
            read = self.counted(io.BufferedReader.read)

        def open_(path: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
            if mode not in ("rb", "wb"):
                return real(path, mode, buffering, *args, **kwargs)
            raw = real(path, mode, 0)
            return Writer(raw) if mode == "wb" else Reader(raw)

        for module in (io, builtins):
            monkeypatch.setattr(module, "open", open_)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.fails_at:
                self.n_calls += 1
                if self.n_calls == self.fails_at:
                    if not self.number:
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise OSError(self.number, os.strerror(self.number))
            return function(*args, **kwargs)

        return call


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO][: soak(1, 2)])
def test_a_save_that_fails_at_any_of_its_calls_leaves_the_old_checkpoint_and_training_goes_on(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """Every other save fails, each at a later system call; `make soak` goes on until all calls have failed once."""
    every, n_steps = soak(9, 1), soak(12, 160)
    settings: dict[str, Any] = {"train__validate_every": 1, "train__metric": "loss", "train__max_steps": n_steps}
    run_training(config_of(corpus, "unbroken", **settings))
    disk, write, seen = FailingDisk(monkeypatch, number), checkpointer.Checkpointer.write, []

    def failing(self: checkpointer.Checkpointer) -> None:
        before, fails_at = newest_step(self.run.path), (self.state.progress.step - 1) // 2 * every + 1
        disk.fails_at, disk.n_calls = fails_at * (self.state.progress.step % 2), 0
        try:
            return write(self)
        except OutputError:
            seen.append(fails_at)
            raise
        finally:
            disk.fails_at = 0
            assert newest_step(self.run.path) >= before  # also checks that all files load
            assert not temps(self.run.path)

    monkeypatch.setattr(checkpointer.Checkpointer, "write", failing)
    run_training(config_of(corpus, **settings))
    assert weights(corpus / "run") == weights(corpus / "unbroken")
    steps = [line["step"] for line in RunDirectory(corpus / "run").read_metrics() if "loss" in line]
    assert steps == list(range(1, n_steps + 1))
    assert caplog.text.count("training goes on, the next validation tries again") == len(seen)
    assert caplog.text.count(os.strerror(number)) == len(seen)
    print(f"{len(seen)} of the calls of a save, up to the {max(seen)}th, failed with {os.strerror(number)}")
    assert len(seen) >= soak(4, 36)
    if every == 1:  # the last saves made fewer calls than `fails_at`, so they succeeded
        assert max(seen) < n_steps // 2 - 3


def test_figures_that_find_no_room_are_lost(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = RunDirectory.append_metrics

    def failing(self: RunDirectory, *lines: dict[str, Any]) -> None:
        if 2 <= lines[-1]["step"] <= 4:
            raise OutputError("no room for figures", hint="")
        append(self, *lines)

    monkeypatch.setattr(RunDirectory, "append_metrics", failing)
    run_training(config_of(corpus, train__max_steps=6))
    steps = [line["step"] for line in RunDirectory(corpus / "run").read_metrics()]
    assert steps == [1, 5, 5, 6, 6]
    assert caplog.text.count("no room for figures; training goes on") == 1


def test_only_a_final_save_that_fails_ends_a_training(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The kernel refuses files of more than 60 kB; a checkpoint is larger."""
    run_training(config_of(corpus, "unbroken", train__max_steps=20))
    run_training(config_of(corpus, train__max_steps=5))
    longer, run = config_of(corpus, train__max_steps=20), corpus / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
    try:
        with pytest.raises(OutputError, match=r"cannot write .*: File too large"):
            run_training(longer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caplog.text.count("training goes on, the next validation tries again") == 3  # at 10, 15 and 20
    assert newest_step(run) == 5
    assert not temps(run)
    run_training(longer)
    assert weights(run) == weights(corpus / "unbroken")


def test_a_damaged_checkpoint_is_named_and_not_used(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    draw = random.Random(1)
    run_training(config_of(corpus, "whole", train__max_steps=10))
    for i in range(soak(4, 200)):
        run = RunDirectory(shutil.copytree(corpus / "whole", corpus / f"run{i}"))
        file = run.checkpoint_file(10)
        file.write_bytes(damaged(file.read_bytes(), draw))
        caplog.clear()
        run_training(config_of(corpus, f"run{i}", train__max_steps=10))
        (warning,) = [text for text in caplog.messages if str(file) in text]
        assert "kept as step-10.damaged, going on from step 5" in warning
        assert weights(run.path) == weights(corpus / "whole")
        assert run.checkpoint_steps() == [5, 10]
        shutil.rmtree(run.path)


def test_without_an_intact_checkpoint_training_ends(corpus: Path) -> None:
    config, run = config_of(corpus, train__max_steps=10), RunDirectory(corpus / "run")
    run_training(config)
    for step in run.checkpoint_steps():
        run.checkpoint_file(step).write_bytes(b"")
    with pytest.raises(ModelError, match=f"no checkpoint of {run.path} can be read") as caught:
        run_training(config)
    assert caught.value.hint.startswith("begin anew with --fresh")
