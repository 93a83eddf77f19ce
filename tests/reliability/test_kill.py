"""kill -9, Ctrl-C and SIGTERM at random moments: nothing is lost."""

import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import soak, wait_until
from small_run import MIX

from nmt.run.checkpoint import read_checkpoint
from nmt.run.directory import RunDirectory

from .runs import (
    VALIDATE_EVERY,
    Command,
    newest_step,
    steps_done,
    temps,
    trained,
    training,
    unbroken,
    weights,
    write_config,
)

STOPPED = {signal.SIGINT: 130, signal.SIGTERM: 143}


def kill(config: Path, run: Path, after_s: float, *, in_save: bool) -> bool:
    """Train, and kill -9 after `after_s`, or during the next write; return whether training had ended before."""
    with training(config, run) as command:
        command.process.join(after_s)
        while in_save and not command.has_ended and not temps(run):
            time.sleep(0.0005)
        command.process.kill()
        assert command.end() in (0, -signal.SIGKILL), command.messages
        return command.end() == 0


CHOICES: dict[str, list[Any]] = {
    "train__optimizer": ["muon", "adamw"],
    "train__average": ["none", "ema"],
    "train__metric": ["bleu", "loss"],
    "train__accumulate": [1, 2],
    "train__freeze": [[], ["encoder"], ["embeddings"]],
    "data__mix": [{}, MIX],
}


@pytest.mark.parametrize("seed", range(soak(2, 20)))
def test_kill_9_at_random_moments_loses_nothing(tmp_path: Path, seed: int) -> None:
    """The first seed trains with the usual settings; after a kill, the files may have any times."""
    draw = random.Random(seed)
    n_kills = 0
    n_in_save = 0
    n_runs = 0
    settings = {name: draw.choice(values) for name, values in CHOICES.items()}
    config = write_config(tmp_path, **settings if seed else {})
    expected, seconds = unbroken(config)

    def is_enough() -> bool:
        is_unlucky = seed == 0 and n_in_save == 0  # on a busy machine, the first kills may miss all writes
        return n_kills >= (20 if is_unlucky else soak(2 - seed, 10))

    while not is_enough():
        run = tmp_path / f"run{n_runs}"
        step = 0
        has_ended = False
        while not has_ended and not is_enough():
            after_s = draw.uniform(0, seconds)
            has_ended = kill(config, run, after_s, in_save=draw.random() < 0.5)
            n_kills += not has_ended
            n_in_save += bool(temps(run))
            assert newest_step(run) >= step
            step = newest_step(run)
            assert steps_done(run) - step <= VALIDATE_EVERY
            for file in run.rglob("*"):  # as after a restored backup
                time_s = draw.choice([0, 2e9])
                os.utime(file, (time_s, time_s))
        assert trained(config, run) == expected
        assert not temps(run)
        n_runs += 1
    print(f"{n_kills} kills in {n_runs} runs, {n_in_save} in a write")
    assert n_in_save or seed


def wait_for_step(run: Path, step: int, command: Command) -> None:
    """Wait for a checkpoint of this step, or the end of training."""
    directory = RunDirectory(run)
    wait_until(lambda: command.has_ended or (directory.newest_step() or 0) >= step)


def copy_part(run: Path, to: Path, names: list[str]) -> None:
    """Copy files and folders of a run that is being trained, which may delete some meanwhile."""
    for name in names:
        path = run / name
        with suppress(FileNotFoundError, shutil.Error):
            if path.is_dir():
                shutil.copytree(path, to / name)
            else:
                shutil.copyfile(path, to / name)


def test_a_copy_of_a_run_in_training_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    """A slow copy: one part of it is older than the rest. If that is the model file, the best model may be lost."""
    config = write_config(tmp_path, train__metric="loss")
    draw = random.Random(3)
    n_refused = 0
    expected, _ = unbroken(config)
    for number in range(soak(1, 100)):
        run = tmp_path / f"run{number}"
        copied = tmp_path / f"copy{number}"
        copied.mkdir()
        early = "model.safetensors"
        step_of_the_rest = 40
        if number:
            early = draw.choice(["model.safetensors", "checkpoints", "metrics.jsonl"])
            step_of_the_rest = draw.choice([15, 20, 40])

        # 1. A run is trained, and copied in two parts.
        with training(config, run) as command:
            wait_for_step(run, 10, command)
            copy_part(run, copied, [early])
            wait_for_step(run, step_of_the_rest, command)
            names = [path.name for path in run.iterdir() if path.name != early]
            copy_part(run, copied, names)

        # 2. Training goes on in the copy, or it is refused.
        with training(config, copied) as command:
            code = command.end()
        if code:
            n_refused += 1
            assert (code, command.messages.count("nmt: error: ")) == (2, 1), command.messages
            assert "Traceback" not in command.messages
            continue
        step_and_checkpoint = expected.rpartition(" ")[0]
        assert weights(copied).startswith(step_and_checkpoint)
        last = read_checkpoint(RunDirectory(copied).checkpoint_file(40))
        model = read_checkpoint(copied / "model.safetensors")
        assert model.progress["step"] == last.progress["best_figures"]["step"]
    print(f"{n_refused} copies refused")


def check_stopped(command: Command, run: Path, step_before: int) -> None:
    """Check that a training that a signal has stopped says so, and has saved all."""
    step = newest_step(run)
    assert "nmt: warning: stopping after this step; once more to stop at once" in command.messages
    assert f"nmt: error: stopped at step {step}, all saved" in command.messages
    assert command.messages.count("hint: ") == command.messages.count("the same command goes on") == 1
    assert "Traceback" not in command.messages
    assert step_before <= step == steps_done(run)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_signal_at_a_random_moment_saves_and_the_resumed_run_has_the_same_weights(
    tmp_path: Path, device: str
) -> None:
    """The signal may come in a micro-batch, a validation or a save."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    config = write_config(tmp_path, train__accumulate=2, train__deterministic=device == "cuda")
    expected, seconds = unbroken(config, "--device", device)
    draw = random.Random(2)
    slowest_s = 0.0
    n_runs = 0
    signals = soak([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM] * 20)
    while signals:
        run = tmp_path / f"run{n_runs}"
        code = -1
        while code != 0 and signals:
            number = signals[-1]
            with training(config, run, "--device", device) as command:
                wait_until(lambda: "pairs, " in command.messages or command.has_ended)
                command.process.join(draw.uniform(0, seconds / 2))
                step = RunDirectory(run).newest_step() or 0
                start = time.monotonic()
                command.send(number)
                code = command.end()
                taken_s = time.monotonic() - start
            if "stopping after this step" in command.messages and "done: " not in command.messages:
                assert code == STOPPED[number], command.messages
                check_stopped(command, run, step)
                slowest_s = max(slowest_s, taken_s)
                signals.pop()
            else:  # training did not handle signals yet, or not any more
                assert code in (0, -number, STOPPED[number]), command.messages
        assert trained(config, run, "--device", device) == expected
        n_runs += 1
    print(f"the slowest ended after {slowest_s:.2f} s")
    assert slowest_s < soak(60, 5)


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    config = write_config(tmp_path, train__max_steps=100_000, train__validate_every=100_000)
    with training(config, tmp_path / "run") as command:
        wait_until(lambda: steps_done(tmp_path / "run") or command.has_ended)
        command.send(signal.SIGSTOP)  # so that both signals are pending when it continues
        command.send(signal.SIGTERM)
        command.send(signal.SIGINT)
        command.send(signal.SIGCONT)
        assert command.end() in (-signal.SIGTERM, -signal.SIGINT, 130, 143), command.messages
