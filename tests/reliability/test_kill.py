"""kill -9, Ctrl-C and SIGTERM at random moments: nothing is lost."""

import contextlib
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import soak
from small_run import MIX

from nmt.run.checkpoint import read_checkpoint
from nmt.run.directory import RunDirectory

from .runs import VALIDATE_EVERY, newest_step, steps_done, temps, trained, training, unbroken, weights, write_config

STOPPED = {signal.SIGINT: 130, signal.SIGTERM: 143}


def kill(config: Path, run: Path, after_s: float, *, in_save: bool) -> bool:
    """Train, and kill -9 after `after_s`, or during the next write; return whether training had ended before."""
    with training(config, run) as one:
        one.process.join(after_s)
        while in_save and one.process.exitcode is None and not temps(run):
            time.sleep(0.0005)
        one.process.kill()
        assert one.end() in (0, -signal.SIGKILL), one.messages
        return one.end() == 0


def random_settings(draw: random.Random) -> dict[str, Any]:
    """Changes of the small training's config."""
    return {
        "train__optimizer": draw.choice(["muon", "adamw"]),
        "train__average": draw.choice(["none", "ema"]),
        "train__metric": draw.choice(["bleu", "loss"]),
        "train__snapshots": draw.choice([0, 4]),
        "train__accumulate": draw.choice([1, 2]),
        "train__freeze": draw.choice([[], ["encoder"], ["embeddings"]]),
        "train__decoder_input": draw.choice(["teacher_forcing", "scheduled_sampling"]),
        "data__mix": draw.choice([{}, MIX]),
    }


@pytest.mark.parametrize("seed", range(soak(2, 20)))
def test_kill_9_at_random_moments_loses_nothing(tmp_path: Path, seed: int) -> None:
    """The first seed trains with the usual settings; after a kill, the files may have any times."""
    draw, n_kills, n_in_save, n_runs = random.Random(seed), 0, 0, 0
    config = write_config(tmp_path, **(random_settings(draw) if seed else {}))
    expected, seconds = unbroken(config)

    def goes_on() -> bool:  # on a busy machine, the first kills may miss all writes
        return n_kills < soak(2 - seed, 10) or (not seed and not n_in_save and n_kills < 20)

    while goes_on():
        run, step, done = tmp_path / f"run{n_runs}", 0, False
        while not done and goes_on():
            done = kill(config, run, draw.uniform(0, seconds), in_save=draw.random() < 0.5)
            n_kills += not done
            n_in_save += bool(temps(run))
            newest = newest_step(run)
            assert newest >= step
            assert steps_done(run) - newest <= VALIDATE_EVERY
            step = newest
            for file in run.rglob("*"):
                os.utime(file, (draw.choice([0, 2e9]),) * 2)
        assert trained(config, run) == expected
        assert not temps(run)
        n_runs += 1
    print(f"{n_kills} kills in {n_runs} runs, {n_in_save} in a write")
    assert n_in_save or seed


def test_a_copy_of_a_run_in_training_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    """A slow copy: one part of it is older than the rest. If that is the model file, the best model may be lost."""
    config, draw, n_refused = write_config(tmp_path, train__metric="loss"), random.Random(3), 0
    expected, _ = unbroken(config)
    for number in range(soak(1, 100)):
        run, copied = tmp_path / f"run{number}", tmp_path / f"copy{number}"
        copied.mkdir()
        first = draw.choice(["model.safetensors", "checkpoints", "metrics.jsonl"]) if number else "model.safetensors"
        with training(config, run) as one:
            for step, but, of in ((10, "", first), (draw.choice([15, 20, 40]) if number else 40, first, "*")):
                while (RunDirectory(run).newest_step() or 0) < step and one.process.exitcode is None:
                    time.sleep(0.01)
                for path in run.glob(of):
                    with contextlib.suppress(FileNotFoundError, shutil.Error):  # the training has deleted a file
                        if path.name != but:
                            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, copied / path.name)
        with training(config, copied) as one:
            code = one.end()
        if code:
            n_refused += 1
            assert (code, one.messages.count("nmt: error: ")) == (2, 1), one.messages
            assert "Traceback" not in one.messages
            continue
        assert weights(copied).split()[:2] == expected.split()[:2]  # the step and the checkpoint
        best = read_checkpoint(RunDirectory(copied).checkpoint_file(40)).progress["best_step"]
        assert read_checkpoint(copied / "model.safetensors").progress["step"] == best
    print(f"{n_refused} copies refused")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_signal_at_a_random_moment_saves_and_the_resumed_run_has_the_same_weights(
    tmp_path: Path, device: str
) -> None:
    """The signal may come in a micro-batch, a validation or a save."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    config = write_config(tmp_path, train__accumulate=2, train__deterministic=device == "cuda")
    expected, seconds = unbroken(config, "--device", device)
    draw, slowest, n_runs = random.Random(2), 0.0, 0
    numbers = soak([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM] * 20)
    while numbers:
        run, code = tmp_path / f"run{n_runs}", -1
        while code != 0 and numbers:
            with training(config, run, "--device", device) as one:
                while "pairs, " not in one.messages and one.process.exitcode is None:
                    time.sleep(0.002)
                one.process.join(draw.uniform(0, seconds / 2))
                step, start = RunDirectory(run).newest_step() or 0, time.monotonic()
                one.send(numbers[-1])
                code = one.end()
                seconds_to_end = time.monotonic() - start
            if "stopping after this step" not in one.messages or "done: " in one.messages:  # not yet, or not any more
                assert code in (0, -numbers[-1], STOPPED[numbers[-1]]), one.messages
                continue
            assert code == STOPPED[numbers.pop()], one.messages
            slowest = max(slowest, seconds_to_end)
            assert "nmt: warning: stopping after this step; once more to stop at once" in one.messages
            assert f"nmt: error: stopped at step {newest_step(run)}, all saved" in one.messages
            assert one.messages.count("hint: ") == one.messages.count("the same command goes on") == 1
            assert "Traceback" not in one.messages
            assert step <= newest_step(run) == steps_done(run)
        assert trained(config, run, "--device", device) == expected
        n_runs += 1
    print(f"the slowest ended after {slowest:.2f} s")
    assert slowest < soak(60, 5)


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    config = write_config(tmp_path, train__max_steps=100_000, train__validate_every=100_000)
    with training(config, tmp_path / "run") as one:
        while steps_done(tmp_path / "run") < 1:
            assert one.process.exitcode is None, one.messages
            time.sleep(0.01)
        one.send(signal.SIGSTOP)  # so that both signals are pending when it continues
        one.send(signal.SIGTERM)
        one.send(signal.SIGINT)
        one.send(signal.SIGCONT)
        assert one.end() in (-signal.SIGTERM, -signal.SIGINT, 130, 143)
