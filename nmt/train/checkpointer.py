"""The files that training writes and reads: checkpoints, the best model, metrics."""

import contextlib
import logging
import time
from dataclasses import asdict, dataclass
from itertools import chain
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
    has_comparable_bleu,
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
        if self.averaged is not None:
            decay = min(max_decay, (1 + self.progress.step) / (10 + self.progress.step))
            both = zip(self.averaged.parameters(), self.model.parameters(), strict=True)
            averaged, weights = zip(*((a, p) for a, p in both if p.requires_grad), strict=True)
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
        if rank() > 0 or ("dev_loss" in figures and self.run.newest_step() is None):
            return  # `holds_training` takes a validation in metrics.jsonl as proof of a checkpoint
        try:
            self.run.append_metrics({"kind": kind, "time": round(time.time(), 3), **figures})
            self.metrics_fail = False
        except OutputError as error:
            if not self.metrics_fail:
                log.warning("%s; training goes on", error)
            self.metrics_fail = True

    def keep_if_best(self, model: Seq2Seq, validation: Validation) -> bool:
        """Copy the model for the next save if it is better than the best one so far; return whether it is."""
        progress, metric = self.state.progress, self.config.train.metric
        figures = {"step": progress.step, **validation.figures()}
        if progress.best_figures and not has_comparable_bleu(figures, progress.best_figures):
            metric = "loss"  # which is comparable
        if progress.best_figures and ranking(figures, metric) <= ranking(progress.best_figures, metric):
            return False
        progress.best = ranking(figures, self.config.train.metric)[0]
        progress.best_step = progress.step
        progress.best_figures = figures
        if rank() == 0:
            tensors = {f"model.{name}": x.to("cpu", copy=True) for name, x in weights_of(model).items()}
            self.best_model = Checkpoint(self.config, tensors, self.tokenizers, asdict(progress))
        return True

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
            if self.best_model is not None:
                save_checkpoint(self.run.model_file, self.best_model)
                self.best_model = None
            if not is_first:
                self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """Write a checkpoint, then delete checkpoints that are no longer needed."""
        state = self.state
        tensors = {f"model.{name}": x for name, x in weights_of(state.model).items()}
        if state.averaged is not None:
            tensors |= {f"average.{name}": x for name, x in weights_of(state.averaged).items()}
        names: dict[Tensor, str] = {parameter: name for name, parameter in state.model.named_parameters()}
        for optimizer in state.optimizers:
            for parameter, moments in optimizer.state.items():
                tensors |= {f"optimizer.{names[parameter]}.{moment}": x for moment, x in moments.items()}
        checkpoint = Checkpoint(self.config, tensors, self.tokenizers, asdict(state.progress))
        save_checkpoint(self.run.checkpoint_file(state.progress.step), checkpoint)
        newest = self.run.checkpoint_steps()[-self.config.train.keep :]
        self.run.prune_checkpoints(newest)

    def snapshot_if_due(self, spent: float) -> None:
        """Write a snapshot at the first step that has spent one of train.snapshots fractions of the budget.

        The last fraction is 1, the first `FIRST_SNAPSHOT`; those in between are spaced by their logarithm. After a
        change of the budget, the number that is due may fall; then there is one more snapshot. A rollback or resume
        restores `n_snapshots`, so the same steps are written again.
        """
        state, n = self.state, self.config.train.snapshots
        n_due = sum(FIRST_SNAPSHOT ** (i / max(n - 1, 1)) <= spent for i in range(n))
        if n_due == state.progress.n_snapshots:
            return
        state.progress.n_snapshots = n_due
        if rank() == 0 and n_due:
            weights = weights_of(state.averaged or state.model)
            tensors = {f"model.{name}": x.bfloat16() for name, x in weights.items()}
            about = {key: value for key, value in asdict(state.progress).items() if key in ("step", "n_tokens")}
            try:
                snapshot = Checkpoint(self.config, tensors, self.tokenizers, about)
                save_checkpoint(self.run.snapshot_file(state.progress.step), snapshot)
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
        state, checkpoint = self.state, newest.checkpoint
        file = self.run.checkpoint_file(newest.step)
        load_weights(state.model, checkpoint.part("model"))
        if state.averaged is not None:
            load_weights(state.averaged, checkpoint.part("average") or checkpoint.part("model"))
        state.progress = progress = parse_progress(checkpoint.progress, file)
        try:
            self._restore_moments(checkpoint.part("optimizer"))
        except KeyError as error:
            raise ModelError(f"{file} lacks {error.args[0]}", hint=OR_ANEW) from error
        self.best_model = None  # after a rollback, it may be from a later step
        self._restore_best()
        self._continue_epoch(checkpoint.config.train)
        if self.config.train.precision != "auto":
            progress.bf16 = self.config.train.precision == "bf16"
        if rank() == 0:
            for step, damage in newest.damaged.items():
                aside = self.run.set_aside(step)
                log.warning("%s; kept as %s, going on from step %d", damage, aside.name, newest.step)
            metrics = self.run.cut_metrics(progress.step)
            self.run.cut_snapshots(progress.step)
            validated = any(line["step"] == progress.step for line in metrics if is_validation(line))
            if progress.is_validated() and not validated:
                # The run was killed after it wrote this checkpoint and before it wrote the line.
                self.append_metrics("validation", progress.history[-1])
        return True

    def _restore_moments(self, moments: dict[str, Tensor]) -> None:
        """Restore the state of the optimizers that a checkpoint was trained with. One of step 0 has no state."""
        state, settings = self.state, self.config.train
        state.optimizers = make_optimizers(state.model, settings)
        had_muon = any(name.endswith(".momentum") for name in moments)
        if moments and had_muon != (len(state.optimizers) > 1):  # if all matrices are frozen, AdamW is alone with muon
            kind = "muon" if had_muon else "adamw"
            log.warning("%s goes on with the optimizer it was begun with, %s", self.run.path, kind)
            state.optimizers = make_optimizers(state.model, settings.model_copy(update={"optimizer": kind}))
        if not state.progress.n_tokens:
            return
        names = {parameter: name for name, parameter in state.model.named_parameters()}
        for optimizer in state.optimizers:
            for parameter in chain.from_iterable(group["params"] for group in optimizer.param_groups):
                optimizer.state[parameter] = {
                    key: moments[f"{names[parameter]}.{key}"].to(parameter) for key in STATE[type(optimizer)]
                }

    def _restore_best(self) -> None:
        """Forget the best model if the model file does not hold it, as in a run that was copied during its training."""
        progress, file, step = self.state.progress, self.run.model_file, -1
        with contextlib.suppress(ModelError):  # the file is missing or damaged
            step = parse_progress(read_header(file)[1], file).step
        if progress.best is not None and step < progress.best_step:
            log.warning("%s lacks the best model: the next validation writes it again", file)
            progress.best, progress.best_step, progress.best_figures, progress.finished_at = None, 0, None, -1
            if progress.is_validated():  # repeat this validation, which writes the file
                progress.history.pop()

    def _continue_epoch(self, before: TrainSettings) -> None:
        """If batch sizes have changed within an epoch, convert the number of batches done to the new size."""
        progress, now = self.state.progress, self.config.train
        if progress.batch and (before.batch_tokens, before.accumulate) != (now.batch_tokens, now.accumulate):
            n_batches = progress.batch * before.batch_tokens / now.batch_tokens
            progress.batch = round(n_batches / now.accumulate) * now.accumulate
            changed = f"train.batch_tokens or train.accumulate has changed within epoch {progress.epoch + 1}"
            log.warning("%s: some of its pairs are seen twice, some not at all", changed)
