"""The files that training writes and reads: checkpoints, the best model, metrics."""

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from nmt.config import Config, TrainSettings
from nmt.distributed import rank
from nmt.errors import ModelError, OutputError, os_errors_as
from nmt.model.base import Seq2Seq
from nmt.run.checkpoint import Checkpoint, load_weights, read_newest, save_checkpoint, weights_of
from nmt.run.directory import RunDirectory
from nmt.run.header import read_header
from nmt.text.tokenizer import Tokenizers
from nmt.train.optimizer import STATE, make_optimizers
from nmt.train.progress import (
    OR_ANEW,
    Progress,
    is_validation,
    parse_progress,
    ranking,
)
from nmt.train.validation import Validation

log = logging.getLogger("nmt")

FIRST_SNAPSHOT = 1 / 256  # fraction of the budget that is spent at the first snapshot


@dataclass
class TrainingState:
    """What a checkpoint saves and a resumed run restores."""

    model: Seq2Seq  # the weights that the optimizer updates
    averaged: Seq2Seq | None  # exponential moving average of these weights; None unless train.average=ema
    optimizers: list[torch.optim.Optimizer]
    progress: Progress

    def update_average(self, max_decay: float) -> None:
        """Update the moving average; its decay grows with the step, because early weights are poor."""
        if self.averaged is None:
            return
        step = self.progress.step
        decay = min(max_decay, (1 + step) / (10 + step))
        # Frozen weights do not change.
        weights = tuple(p for p in self.model.parameters() if p.requires_grad)
        averaged = tuple(p for p in self.averaged.parameters() if p.requires_grad)
        with torch.no_grad():
            torch._foreach_lerp_(averaged, weights, 1 - decay)


@dataclass(eq=False)
class Checkpointer:
    """Saves and restores a `TrainingState`. Each rank has its own checkpointer; rank 0 writes the files."""

    config: Config  # fully resolved
    tokenizers: Tokenizers
    run: RunDirectory  # the caller holds its lock
    state: TrainingState  # shared with the trainer; a save writes its current values
    best_model: Checkpoint | None = None  # a new best model that is not in the model file yet
    metrics_fail: bool = False  # whether the last line of metrics could not be written

    def append_metrics(self, kind: Literal["step", "validation"], figures: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl. If that fails, for example because the disk is full, the line is lost."""
        if rank() > 0:
            return
        if kind == "validation" and self.run.newest_step() is None:
            return  # `holds_training` takes a validation in metrics.jsonl as proof of a checkpoint
        line = {"kind": kind, "time": round(time.time(), 3), **figures}
        try:
            self.run.append_metrics(line)
            self.metrics_fail = False
        except OutputError as error:
            if not self.metrics_fail:
                log.warning("%s; training goes on", error)
            self.metrics_fail = True

    def keep_if_best(self, model: Seq2Seq, validation: Validation) -> bool:
        """Copy the model for the next save if it is better than the best one so far; return whether it is."""
        progress, metric = self.state.progress, self.config.train.metric
        figures = {"step": progress.step, **validation.figures()}
        # None, before the first validation, is worse than any model.
        rank_of_model = ranking(figures, metric)
        if rank_of_model <= ranking(progress.best_figures, metric):
            return False
        progress.best = rank_of_model[0]
        progress.best_step = progress.step
        progress.best_figures = figures
        if rank() == 0:
            weights = {name: x.to("cpu", copy=True) for name, x in weights_of(model).items()}
            self.best_model = self._checkpoint(named("model", weights))
        return True

    def _checkpoint(self, tensors: dict[str, Tensor]) -> Checkpoint:
        """Return a checkpoint with these tensors and the current progress."""
        return Checkpoint(self.config, tensors, self.tokenizers, asdict(self.state.progress))

    def save(self) -> None:
        """Write the model file and a checkpoint; if that fails, warn, and let the next validation try again."""
        try:
            self.write()
        except OutputError as error:
            log.warning("%s; training goes on, the next validation tries again", error)

    def write(self) -> None:
        """Write the model file if there is a new best model, then a checkpoint, and delete old checkpoints.

        This order ensures that a checkpoint never refers to a best model that is not in the model file. Only the first
        save writes the checkpoint first. If it is interrupted, `resume` recovers, and a model file without checkpoints
        always means that checkpoints were deleted. Raises OutputError if a write fails, for example on a full disk.
        """
        if rank() > 0:
            return
        with os_errors_as(OutputError, f"write into {self.run.path}", hint="check the disk"):
            is_first = self.run.newest_step() is None
            if is_first:
                self.write_checkpoint()
            # The model file, if there is a better model.
            if self.best_model is not None:
                save_checkpoint(self.run.model_file, self.best_model)
                self.best_model = None
            if not is_first:
                self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """Write a checkpoint, then delete checkpoints that are no longer needed."""
        # 1. Weights and their average.
        state = self.state
        tensors = named("model", weights_of(state.model))
        if state.averaged is not None:
            tensors |= named("average", weights_of(state.averaged))

        # 2. The optimizers' moments of each weight.
        names = names_of(state.model)
        for optimizer in state.optimizers:
            for parameter, moments in optimizer.state.items():
                tensors |= named(f"optimizer.{names[parameter]}", moments)

        # 3. The files.
        file = self.run.checkpoint_file(state.progress.step)
        save_checkpoint(file, self._checkpoint(tensors))
        # Only the newest are kept.
        newest = self.run.checkpoint_steps()[-self.config.train.keep :]
        self.run.prune_checkpoints(newest)

    def snapshot_if_due(self, spent: float) -> None:
        """Write a snapshot at the first step that has spent one of train.snapshots fractions of the budget.

        The last fraction is 1, the first `FIRST_SNAPSHOT`; those in between are spaced by their logarithm. After a
        change of the budget, the number that is due may fall; then there is one more snapshot. A rollback or resume
        restores `n_snapshots`, so the same steps are written again.
        """
        # 1. How many are due?
        n_due = 0
        n_snapshots = self.config.train.snapshots
        for i in range(n_snapshots):
            exponent = i / max(n_snapshots - 1, 1)
            n_due += FIRST_SNAPSHOT**exponent <= spent
        progress = self.state.progress
        if n_due == progress.n_snapshots:
            return
        progress.n_snapshots = n_due
        if rank() > 0 or not n_due:
            return

        # 2. Write one.
        model = self.state.averaged or self.state.model
        weights = {name: x.bfloat16() for name, x in weights_of(model).items()}
        about = {"step": progress.step, "n_tokens": progress.n_tokens}
        snapshot = Checkpoint(self.config, named("model", weights), self.tokenizers, about)
        try:
            save_checkpoint(self.run.snapshot_file(progress.step), snapshot)
        except OutputError as error:
            log.warning("%s; training goes on without this snapshot", error)

    def resume(self) -> bool:
        """Restore the newest whole checkpoint; return whether there is any. Raises ModelError if it does not fit."""
        newest = read_newest(self.run)
        if newest is None:
            if rank() == 0:
                self.run.cut_metrics(0)  # remove lines of a run killed before its first checkpoint
                self.run.cut_snapshots(0)
            return False

        # 1. Weights, their average, progress and moments.
        state, checkpoint = self.state, newest.checkpoint
        file = self.run.checkpoint_file(newest.step)
        weights = checkpoint.part("model")
        load_weights(state.model, weights)
        if state.averaged is not None:
            load_weights(state.averaged, checkpoint.part("average") or weights)
        state.progress = parse_progress(checkpoint.progress, file)
        try:
            self._restore_moments(checkpoint.part("optimizer"))
        except KeyError as error:
            raise ModelError(f"{file} lacks {error.args[0]}", hint=OR_ANEW) from error

        # 2. What the files or the config may contradict.
        self.best_model = None  # after a rollback, it may be from a later step
        self._restore_best()
        self._continue_epoch(checkpoint.config.train)
        if self.config.train.precision != "auto":
            state.progress.bf16 = self.config.train.precision == "bf16"

        # 3. The files of the run.
        if rank() == 0:
            for step, damage in newest.damaged.items():
                aside = self.run.set_aside(step)
                log.warning("%s; kept as %s, going on from step %d", damage, aside.name, newest.step)
            self._cut_files(state.progress)
        return True

    def _cut_files(self, progress: Progress) -> None:
        """Drop what later steps wrote, and write the line of a validation that was killed before it could."""
        self.run.cut_snapshots(progress.step)
        metrics = self.run.cut_metrics(progress.step)
        validated_steps = [line["step"] for line in metrics if is_validation(line)]
        if progress.is_validated() and progress.step not in validated_steps:
            self.append_metrics("validation", progress.history[-1])

    def _restore_moments(self, moments: dict[str, Tensor]) -> None:
        """Restore the state of the optimizers. After no step they have none. Raises KeyError if a moment is missing."""
        state = self.state
        state.optimizers = make_optimizers(state.model, self.config.train)
        if not state.progress.n_tokens:
            return
        names = names_of(state.model)
        for optimizer in state.optimizers:
            keys = STATE[type(optimizer)]
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    name = names[parameter]
                    optimizer.state[parameter] = {key: moments[f"{name}.{key}"].to(parameter) for key in keys}

    def _restore_best(self) -> None:
        """Forget the best model if the model file does not hold it, as in a run that was copied during its training."""
        progress, file = self.state.progress, self.run.model_file
        step = -1
        with contextlib.suppress(ModelError):  # the file is missing or damaged
            _, saved = read_header(file)
            step = parse_progress(saved, file).step
        if progress.best is None or step >= progress.best_step:
            return
        log.warning("%s lacks the best model: the next validation writes it again", file)
        progress.best = progress.best_figures = None
        progress.best_step = 0
        progress.finished_at = -1
        if progress.is_validated():  # repeat this validation, which writes the file
            progress.history.pop()

    def _continue_epoch(self, before: TrainSettings) -> None:
        """If batch sizes have changed within an epoch, convert the number of batches done to the new size."""
        progress, now = self.state.progress, self.config.train
        is_same = before.batch_tokens == now.batch_tokens and before.accumulate == now.accumulate
        if is_same or not progress.batch:
            return
        # About as many pairs, in whole steps.
        n_batches = progress.batch * before.batch_tokens / now.batch_tokens
        n_steps = round(n_batches / now.accumulate)
        progress.batch = n_steps * now.accumulate
        changed = f"train.batch_tokens or train.accumulate has changed within epoch {progress.epoch + 1}"
        log.warning("%s: some of its pairs are seen twice, some not at all", changed)


def named(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors by their names in a checkpoint; see `nmt.run.checkpoint`."""
    return {f"{part}.{name}": x for name, x in tensors.items()}


def names_of(model: Seq2Seq) -> dict[Tensor, str]:
    """Return the name of each weight."""
    return {parameter: name for name, parameter in model.named_parameters()}
