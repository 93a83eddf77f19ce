"""Disks that are full, fail, or return other bytes than were written: training continues from intact files."""

import errno
import os
import random
import resource
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from conftest import soak
from small_run import config_of, run_training, steps_of

from nmt.errors import ModelError, OutputError
from nmt.run.directory import RunDirectory
from nmt.train.checkpointer import Checkpointer

from .disk import FailingDisk
from .runs import damaged, newest_step, temps, weights

EVERY, N_STEPS = soak(8, 1), soak(12, 160)  # the distance between the calls that fail, and the steps of training


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO][: soak(1, 2)])
def test_a_save_that_fails_at_any_of_its_calls_leaves_the_old_checkpoint_and_training_goes_on(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """Every other save fails, each at a later system call; `make soak` goes on until all calls have failed once."""
    settings: dict[str, Any] = {"train__validate_every": 1, "train__metric": "loss", "train__max_steps": N_STEPS}
    run_training(config_of(corpus, "unbroken", **settings))
    disk = FailingDisk(monkeypatch)
    write = Checkpointer.write
    failed = list[int]()

    def write_or_fail(self: Checkpointer) -> None:
        before = newest_step(self.run.path)
        step = self.state.progress.step
        fails_at = step // 2 * EVERY + 1
        try:
            with disk.failing(fails_at, number) if step % 2 else nullcontext():
                write(self)
        except OutputError:
            failed.append(fails_at)
            raise
        finally:
            assert newest_step(self.run.path) >= before  # also checks that all files load
            assert not temps(self.run.path)

    monkeypatch.setattr(Checkpointer, "write", write_or_fail)
    config = config_of(corpus, **settings)
    run_training(config)
    result = weights(corpus / "run")
    assert result == weights(corpus / "unbroken")
    every_step = range(1, N_STEPS + 1)
    assert steps_of(config, "loss") == list(every_step)
    n_failed = len(failed)
    reason = os.strerror(number)
    assert caplog.text.count("training goes on, the next validation tries again") == n_failed
    assert caplog.text.count(reason) == n_failed
    print(f"{n_failed} of the calls of a save, up to the {max(failed)}th, failed with {reason}")
    assert n_failed >= soak(4, 34)
    if EVERY == 1:  # the last saves made fewer calls than `fails_at`, so they succeeded
        assert max(failed) < N_STEPS // 2 - 3


def test_figures_that_find_no_room_are_lost(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = RunDirectory.append_metrics

    def append_or_fail(self: RunDirectory, *lines: dict[str, Any]) -> None:
        if lines[-1]["step"] in (2, 3, 4):
            raise OutputError("no room for figures", hint="")
        append(self, *lines)

    monkeypatch.setattr(RunDirectory, "append_metrics", append_or_fail)
    config = config_of(corpus, train__max_steps=6)
    run_training(config)
    result = steps_of(config, "step")
    assert result == [1, 5, 5, 6, 6]
    assert caplog.text.count("no room for figures; training goes on") == 1


def test_only_a_final_save_that_fails_ends_a_training(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The kernel refuses files of more than 60 kB; a checkpoint is larger."""
    run_training(config_of(corpus, "unbroken", train__max_steps=20))
    run_training(config_of(corpus, train__max_steps=5))
    longer = config_of(corpus, train__max_steps=20)
    run = corpus / "run"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
    try:
        with pytest.raises(OutputError, match=r"cannot write .*: File too large"):
            run_training(longer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caplog.text.count("training goes on, the next validation tries again") == 3  # at 10, 15 and 20
    assert newest_step(run) == 5
    assert not temps(run)
    run_training(longer)
    result = weights(run)
    assert result == weights(corpus / "unbroken")


def test_a_damaged_checkpoint_is_named_and_not_used(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    draw = random.Random(1)
    whole = corpus / "whole"
    run_training(config_of(corpus, "whole", train__max_steps=10))
    for i in range(soak(4, 200)):
        run = RunDirectory(shutil.copytree(whole, corpus / f"run{i}"))
        file = run.checkpoint_file(10)
        file.write_bytes(damaged(file.read_bytes(), draw))
        caplog.clear()
        run_training(config_of(corpus, f"run{i}", train__max_steps=10))
        (warning,) = [text for text in caplog.messages if str(file) in text]
        assert "kept as step-10.damaged, going on from step 5" in warning
        assert weights(run.path) == weights(whole)
        assert run.checkpoint_steps() == [5, 10]
        shutil.rmtree(run.path)


def test_without_an_intact_checkpoint_training_ends(corpus: Path) -> None:
    config = config_of(corpus, train__max_steps=10)
    run = RunDirectory(corpus / "run")
    run_training(config)
    for step in run.checkpoint_steps():
        run.checkpoint_file(step).write_bytes(b"")
    with pytest.raises(ModelError, match=f"no checkpoint of {run.path} can be read") as caught:
        run_training(config)
    assert caught.value.hint.startswith("begin anew with --fresh")
