"""Deletion of the checkpoints that a run no longer needs (`nmt prune`). A pruned run can still be resumed."""

from dataclasses import dataclass
from pathlib import Path

from nmt.errors import ModelError, OutputError, os_errors_as
from nmt.run.checkpoint import read_checkpoint, read_newest
from nmt.run.directory import RunDirectory


@dataclass(frozen=True)
class Pruned:
    """The files that pruning a run has deleted."""

    kept: int  # step of the checkpoint that is kept
    files: list[Path]  # damaged checkpoints, then other checkpoints from the oldest on
    n_bytes: int  # total size of `files`


def prune(path: Path) -> Pruned:
    """Delete all checkpoints of a run except the newest one that can be read.

    Raises ModelError if the model file or all checkpoints cannot be read.
    """
    run = RunDirectory(path)
    run.read_config()  # raises ModelError if the path is no run
    # Check this before `lock` writes files. An exported model has a config, but no model file.
    if not run.model_file.is_file():
        raise ModelError(f"{run.path} has no model yet", hint="train it with `nmt train`")
    with run.lock():
        read_checkpoint(run.model_file, prefixes=("model",))
        newest = read_newest(run)
        if newest is None:
            raise ModelError(f"{run.path} has no checkpoint", hint="train it with `nmt train`")

        # 1. Collect the other checkpoints.
        files = sorted(run.checkpoints.glob("step-*.damaged"))
        files += [run.checkpoint_file(step) for step in run.checkpoint_steps() if step != newest.step]

        # 2. Delete the files.
        n_bytes = sum(file.stat().st_size for file in files)
        with os_errors_as(OutputError, f"delete the checkpoints of {path}", hint="check permissions"):
            for file in files:
                file.unlink(missing_ok=True)
    return Pruned(newest.step, files, n_bytes)
