"""Maintenance of a run between trainings: `nmt average` and `nmt prune`. The run can still be resumed."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nmt.errors import InputError, ModelError, OutputError, os_errors_as
from nmt.run.checkpoint import Checkpoint, read_checkpoint, read_newest, save_checkpoint
from nmt.run.directory import RunDirectory
from nmt.train.checkpointer import chosen_steps, mean_weights, steps_to_average
from nmt.train.progress import Progress, parse_progress

log = logging.getLogger("nmt")


def average_run(
    path: Path, kind: Literal["best", "last"] | None = None, n: int | None = None, output: Path | None = None
) -> tuple[Path, list[int]]:
    """Write the mean of the weights of a run's checkpoints as a model file.

    The result is the same as at the end of a training with train.average=KIND and train.n_average=N: the mean of the
    weights that the optimizer updates, not of their moving averages. The run's model and checkpoints do not change.

    `kind` and `n` are those of the config if they are None, `output` is average.safetensors in the run. Returns the
    file, and the steps of the averaged checkpoints.
    """
    run = RunDirectory(path)
    settings = run.read_config().train
    file = output or run.average_file
    if os.path.realpath(file) == os.path.realpath(run.model_file):
        message = f"{file} is the best model of the run, which training compares later ones with"
        raise InputError(message, hint="write the average to another file, or train with train.average")
    kind = kind or ("best" if settings.average == "best" else "last")
    n = n or settings.n_average
    check_trained(run)
    with run.lock():  # a training at the same time would delete checkpoints
        newest, progress = newest_checkpoint(run)
        kept = set(run.checkpoint_steps())
        history = [line for line in progress.history if line["step"] in kept]
        weights, steps = mean_weights(run, chosen_steps(history, kind, n, settings.metric))
        if not weights:
            message = f"{path} has {len(steps)} checkpoints of validations to average"
            raise InputError(message, hint="train.keep says how many a training keeps")
        if len(steps) < n:
            log.warning("%s keeps %d checkpoints that can be averaged, not %d (train.keep)", path, len(steps), n)
        about = {key: newest.progress[key] for key in ("step", "n_tokens", "elapsed_s")} | {"averaged_steps": steps}
        tensors = {f"model.{name}": x for name, x in weights.items()}
        save_checkpoint(file, Checkpoint(newest.config, tensors, newest.tokenizers, about))
    return file, steps


def newest_checkpoint(run: RunDirectory) -> tuple[Checkpoint, Progress]:
    """The checkpoint from which the run would be resumed, and its progress. Raises ModelError if there is none."""
    newest = read_newest(run)
    if newest is None:
        raise ModelError(f"{run.path} has no checkpoint", hint="train it with `nmt train`")
    return newest.checkpoint, parse_progress(newest.checkpoint.progress, run.checkpoint_file(newest.step))


@dataclass(frozen=True)
class Pruned:
    """What pruning a run deletes, or would delete."""

    kept: list[int]  # steps of checkpoints
    files: list[Path]  # checkpoints, oldest first, then snapshots
    n_bytes: int


def check_trained(run: RunDirectory) -> None:
    """Raise ModelError, before a lock is written, unless the directory is a run with a model; an export is not."""
    if not run.model_file.is_file():
        raise ModelError(f"{run.path} has no model yet", hint="train it with `nmt train`")


def prune(path: Path, *, dry_run: bool = False) -> Pruned:
    """Delete all checkpoints except the newest one that can be read; the model file, which is read first, stays.

    If the training is unfinished, its snapshots and the checkpoints that it will average are kept, too.
    """
    run = RunDirectory(path)
    settings = run.read_config().train
    check_trained(run)
    with run.lock():
        read_checkpoint(run.model_file, prefixes=("model",))
        _, progress = newest_checkpoint(run)
        is_finished = progress.finished_at == progress.step
        needed = [] if is_finished else steps_to_average(progress, settings)
        kept = sorted({progress.step, *needed} & {*run.checkpoint_steps()})
        steps = [step for step in run.checkpoint_steps() if step not in kept]
        files = [*sorted(run.checkpoints.glob("step-*.damaged")), *map(run.checkpoint_file, steps)]
        files += map(run.snapshot_file, run.snapshot_steps() if is_finished else [])
        n_bytes = sum(file.stat().st_size for file in files)
        with os_errors_as(OutputError, f"delete the checkpoints of {path}", hint="check permissions"):
            for file in () if dry_run else files:
                file.unlink(missing_ok=True)
    return Pruned(kept, files, n_bytes)
