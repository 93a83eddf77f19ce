"""`nmt prune`: delete the checkpoints that a run no longer needs. It can still be resumed."""

from dataclasses import dataclass
from pathlib import Path

from nmt.errors import ModelError, OutputError, os_errors_as
from nmt.run.checkpoint import read_checkpoint, read_newest
from nmt.run.directory import RunDirectory
from nmt.train.progress import parse_progress


@dataclass(frozen=True)
class Pruned:
    """What pruning a run deletes, or would delete."""

    kept: int  # step of the checkpoint
    files: list[Path]  # checkpoints, oldest first, then snapshots
    n_bytes: int


def prune(path: Path, *, dry_run: bool = False) -> Pruned:
    """Delete all checkpoints except the newest one that can be read; the model file, which is read first, stays.

    If the training is unfinished, its snapshots are kept, too.
    """
    run = RunDirectory(path)
    run.read_config()  # raises ModelError if it is no run
    if not run.model_file.is_file():  # before a lock is written; an export has none
        raise ModelError(f"{run.path} has no model yet", hint="train it with `nmt train`")
    with run.lock():
        read_checkpoint(run.model_file, prefixes=("model",))
        newest = read_newest(run)
        if newest is None:
            raise ModelError(f"{run.path} has no checkpoint", hint="train it with `nmt train`")
        progress = parse_progress(newest.checkpoint.progress, run.checkpoint_file(newest.step))
        is_finished = progress.finished_at == progress.step

        # 1. What is not needed: damaged and older checkpoints, and snapshots of a finished training.
        files = sorted(run.checkpoints.glob("step-*.damaged"))
        for step in run.checkpoint_steps():
            if step != newest.step:
                files.append(run.checkpoint_file(step))
        if is_finished:
            files += map(run.snapshot_file, run.snapshot_steps())

        # 2. Delete it.
        n_bytes = sum(file.stat().st_size for file in files)
        with os_errors_as(OutputError, f"delete the checkpoints of {path}", hint="check permissions"):
            if not dry_run:
                for file in files:
                    file.unlink(missing_ok=True)
    return Pruned(newest.step, files, n_bytes)
