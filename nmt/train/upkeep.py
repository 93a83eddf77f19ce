"""Maintenance of a run between trainings: `nmt average` and `nmt prune`. The run can still be resumed."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from nmt.errors import InputError, ModelError, OutputError, os_errors_as
from nmt.run.checkpoint import Checkpoint, average, read_checkpoint, save_checkpoint
from nmt.run.directory import RunDirectory
from nmt.train.checkpointer import chosen_steps, readable_checkpoints
from nmt.train.progress import Progress

log = logging.getLogger("nmt")


def average_run(
    path: Path, kind: Literal["best", "last"] | None = None, n: int | None = None, output: Path | None = None
) -> tuple[Path, list[int]]:
    """Write the mean of the weights of a run's checkpoints as a model file.

    The result is the same as at the end of a training with train.average=KIND and train.n_average=N: the mean of the
    weights that the optimizer updates, not of their moving averages. The run's model and checkpoints do not change.

    Args:
        path: directory of the run.
        kind: whether to average the best or the last of the validated checkpoints that still exist; None for the run's
            train.average, or for last if that is neither.
        n: number of checkpoints to average; None for the run's train.n_average.
        output: the file to write; None for average.safetensors in the run.
    Returns:
        the file, and the steps of the averaged checkpoints.
    Raises:
        InputError: the run is in use, fewer than two checkpoints can be read, or `output` is the run's model.
        ModelError: `path` is not a run, or has no checkpoint to resume from.
    """
    run = RunDirectory(path)
    settings = run.read_config().train
    file = output or run.average_file
    if os.path.realpath(file) == os.path.realpath(run.model_file):
        message = f"{file} is the best model of the run, which training compares later ones with"
        raise InputError(message, hint="write the average to another file, or train with train.average")
    kind = kind or ("best" if settings.average == "best" else "last")
    n = n or settings.n_average
    with run.lock():  # a training at the same time would delete checkpoints
        newest, progress = newest_checkpoint(run)
        kept = set(run.checkpoint_steps())
        history = [line for line in progress.history if line["step"] in kept]
        steps = chosen_steps(history, kind, n, settings.metric)
        checkpoints = readable_checkpoints(run, steps)
        if len(checkpoints) < 2:
            message = f"{path} has {len(checkpoints)} checkpoints of validations to average"
            raise InputError(message, hint="train.keep says how many a training keeps")
        if len(checkpoints) < n:
            log.warning("%s keeps %d checkpoints that can be averaged, not %d (train.keep)", path, len(checkpoints), n)
        weights = average([one.part("model") for one in checkpoints.values()])
        about: dict[str, Any] = {"step": progress.step, "n_tokens": progress.n_tokens, "elapsed_s": progress.elapsed_s}
        about["averaged_steps"] = list(checkpoints)
        tensors = {f"model.{name}": x for name, x in weights.items()}
        save_checkpoint(file, Checkpoint(newest.config, tensors, newest.tokenizers, about))
    return file, list(checkpoints)


def newest_checkpoint(run: RunDirectory) -> tuple[Checkpoint, Progress]:
    """The newest checkpoint from which the run can be resumed, and its progress.

    Raises:
        ModelError: there is no such checkpoint.
    """
    failures = []
    for step in reversed(run.checkpoint_steps()):
        try:
            found = read_checkpoint(run.checkpoint_file(step))
            return found, TypeAdapter(Progress).validate_python(found.progress)
        except ModelError as error:
            failures.append(str(error))
        except ValidationError:
            failures.append(f"{run.checkpoint_file(step)} does not say where training stands")
    reason = "; ".join(failures) or f"{run.path} has no checkpoint"
    raise ModelError(reason, hint="train it with `nmt train`")


@dataclass(frozen=True)
class Pruned:
    """What pruning a run deletes, or would delete."""

    kept: list[int]  # steps of checkpoints
    files: list[Path]  # oldest first
    n_bytes: int


def prune(path: Path, n_keep: int = 1, *, dry_run: bool = False) -> Pruned:
    """Delete all checkpoints except the newest ones; the model file stays.

    If the training is unfinished and will average checkpoints, the checkpoints that it needs are kept, too. Before
    anything is deleted, the model file and the checkpoints, newest first, are read until one is not damaged: it is
    always kept.

    Args:
        path: directory of the run.
        n_keep: number of checkpoints to keep.
        dry_run: delete nothing.
    Raises:
        InputError: the run is in use.
        ModelError: `path` is not a run, or its model or all of its checkpoints are missing or damaged.
        OutputError: a file cannot be deleted.
    """
    run = RunDirectory(path)
    run.read_config()
    with run.lock():
        found = _prunable(run, n_keep)
        with os_errors_as(OutputError, f"delete the checkpoints of {path}", hint="check permissions"):
            for file in () if dry_run else found.files:
                file.unlink(missing_ok=True)
    return found


def _prunable(run: RunDirectory, n_keep: int) -> Pruned:
    if not run.model_file.is_file():
        raise ModelError(f"{run.path} has no model yet: nothing is deleted", hint="train it with `nmt train`")
    read_checkpoint(run.model_file, prefixes=("model",))
    _, progress = newest_checkpoint(run)
    settings = run.read_config().train
    readable = [step for step in run.checkpoint_steps() if step <= progress.step]  # newer ones are damaged
    kept = set(readable[-n_keep:])
    if settings.average in ("best", "last") and progress.finished_at != progress.step:
        needed = chosen_steps(progress.history, settings.average, settings.n_average, settings.metric)
        kept |= set(needed) & set(readable)
    steps = [step for step in run.checkpoint_steps() if step not in kept]
    files = [*sorted(run.checkpoints.glob("step-*.damaged")), *map(run.checkpoint_file, steps)]
    return Pruned(sorted(kept), files, sum(file.stat().st_size for file in files))
