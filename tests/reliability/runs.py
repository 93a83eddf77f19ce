"""A training of a second in its own process, which a test can kill, checks of its files, and damaged files."""

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from conftest import FORKS, PATIENCE_S
from small_run import config_of, write_small_corpus

from nmt.config import dump_config
from nmt.run.checkpoint import hash_tensors, read_checkpoint
from nmt.run.directory import RunDirectory

VALIDATE_EVERY = 5
RECIPE = {"train__max_steps": 40}


def write_config(home: Path, **changes: Any) -> Path:
    """Write the small corpus and its config with 40 steps, a checkpoint every 5, and these changes."""
    path = write_small_corpus(home) / "small.yaml"
    config = config_of(home, **RECIPE | changes)
    path.write_text(dump_config(config), encoding="utf-8")
    return path


# --- commands in processes of their own -------------------------------------------------------------------


@dataclass
class Command:
    """A running `nmt` command, with its stderr in a file."""

    process: BaseProcess
    log: Path

    @property
    def messages(self) -> str:
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    @property
    def has_ended(self) -> bool:
        return self.process.exitcode is not None

    def end(self) -> int:
        """Wait until it ends; return the exit code, or minus the number of the signal that killed it."""
        self.process.join(PATIENCE_S)
        assert self.process.exitcode is not None, "it does not end"
        return self.process.exitcode

    def send(self, number: int) -> None:
        assert self.process.pid is not None
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(self.process.pid, number)


def start_command(log: Path, *words: object) -> Command:
    """Start `nmt WORDS` in a process of its own."""
    arguments = [str(word) for word in words]
    process = FORKS.Process(target=run_main, args=(arguments, str(log)))
    process.start()
    return Command(process, log)


@contextlib.contextmanager
def running(log: Path, *words: object) -> Iterator[Command]:
    """Start `nmt WORDS`; it is killed if it still runs after the block."""
    command = start_command(log, *words)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.join()


def training(config: Path, run: Path, *settings: str) -> contextlib.AbstractContextManager[Command]:
    """Start `nmt train CONFIG run=RUN` in its own process, which is killed if it still runs after the block."""
    log = run.with_name(f"{run.name}.{time.monotonic_ns()}.log")
    return running(log, "train", config, f"run={run}", "--replicas", 2, *settings)


def trained(config: Path, run: Path, *settings: str) -> str:
    """Train until the run is finished; return its `weights`."""
    with training(config, run, *settings) as command:
        assert command.end() == 0, command.messages
    return weights(run)


def unbroken(config: Path, *settings: str) -> tuple[str, float]:
    """Train without an interruption; return the weights, and the seconds that it took."""
    first = FORKS.Process(target=int)  # the fork server does its imports now, so they are not timed
    first.start()
    first.join()
    start = time.monotonic()
    expected = trained(config, config.with_name("unbroken"), *settings)
    return expected, time.monotonic() - start


def run_main(arguments: list[str], log: str) -> None:
    """Run `nmt` with these arguments, in a process of its own, with stderr in a file."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stderr = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(stderr, 2)
    sys.argv = ["nmt", *arguments]
    import torch

    from nmt.__main__ import main

    torch.set_num_threads(2)  # for two replicas; --threads and OMP_NUM_THREADS would be too late
    try:
        main()
    finally:  # the exit code is known: a signal that comes later must not change it
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


# --- files ------------------------------------------------------------------------------------------------


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content cut short, or with some bits flipped; an empty file gets a byte."""
    if not content:
        return draw.randbytes(1)
    if draw.random() < 0.5:
        return content[: draw.randrange(len(content))]
    flipped = bytearray(content)
    for _ in range(draw.choice([1, 1, 10])):
        mask = 1 << draw.randrange(8)
        flipped[draw.randrange(len(content))] ^= mask
    return bytes(flipped)


def temps(run: Path) -> list[Path]:
    """Temporary files that interrupted writes have left."""
    return list(run.rglob("*.tmp.*"))


def newest_step(run: Path) -> int:
    """Check that all checkpoints and the model file load; return the newest step, 0 if there is no checkpoint."""
    directory = RunDirectory(run)
    for step in directory.checkpoint_steps():
        read_checkpoint(directory.checkpoint_file(step))
    if directory.model_file.exists():
        read_checkpoint(directory.model_file)
    return directory.newest_step() or 0


def steps_done(run: Path) -> int:
    """The last step in metrics.jsonl, 0 if there is none."""
    lines = RunDirectory(run).read_metrics()
    steps = [int(line["step"]) for line in lines]
    return max(steps, default=0)


def weights(run: Path) -> str:
    """The newest step, and the SHA-256 of all tensors of its checkpoint (with moments) and of the model file."""
    directory = RunDirectory(run)
    step = directory.newest_step()
    assert step is not None
    checkpoint = read_checkpoint(directory.checkpoint_file(step))
    model = read_checkpoint(directory.model_file)
    return f"{step} {hash_tensors(checkpoint.tensors)} {hash_tensors(model.tensors)}"
