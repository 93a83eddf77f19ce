"""Writing and restoring the files of a training: checkpoints, the best model and metrics."""

import contextlib
import logging
import time
from collections.abc import Mapping
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
from nmt.train.progress import OR_ANEW, Figures, Progress, is_validation, parse_progress, ranking

log = logging.getLogger("nmt")


@dataclass
class TrainingState:
    """The state that a checkpoint saves and a resumed run restores."""

    model: Seq2Seq  # the optimizers update the weights of this model
    averaged: Seq2Seq | None  # moving average of the weights; None if train.average=none
    optimizers: list[torch.optim.Optimizer]
    progress: Progress

    def update_average(self, max_decay: float) -> None:
        """Update the moving average of the weights, if there is one.

        The decay grows with the step up to `max_decay`. So the poor weights of early steps are soon forgotten.
        """
        if self.averaged is None:
            return
        step = self.progress.step
        decay = min(max_decay, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_([*self.averaged.parameters()], [*self.model.parameters()], 1 - decay)


@dataclass(eq=False)
class Checkpointer:
    """An object that saves and restores a `TrainingState`. Only rank 0 writes files."""

    config: Config  # all settings, including those that training has chosen
    tokenizers: Tokenizers
    run: RunDirectory  # the caller must hold the lock of the run
    state: TrainingState  # shared with the trainer, which updates it
    best_model: Checkpoint | None = None  # the best model, until it is written to the model file
    metrics_fail: bool = False  # whether the last line of metrics could not be written

    def append_metrics(self, kind: Literal["step", "validation"], figures: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl. If writing fails, warn and lose the line."""
        if rank() > 0:
            return
        if kind == "validation" and self.run.newest_step() is None:
            return  # without a checkpoint, a validation in metrics.jsonl would mislead `holds_training`
        try:
            self.run.append_metrics({"kind": kind, "time": round(time.time(), 3), **figures})
            self.metrics_fail = False
        except OutputError as error:
            if not self.metrics_fail:
                log.warning("%s; training goes on", error)
            self.metrics_fail = True

    def keep_if_best(self, model: Seq2Seq, figures: Figures) -> bool:
        """Return whether these figures of a model are the best so far. If so, copy the model for the next save."""
        progress, metric = self.state.progress, self.config.train.metric
        # `best_figures` is None before the first validation. `ranking` puts None below all figures.
        if ranking(figures, metric) <= ranking(progress.best_figures, metric):
            return False
        progress.best_figures = figures
        if rank() == 0:
            weights = {name: x.to("cpu", copy=True) for name, x in weights_of(model).items()}
            tensors = with_prefix("model", weights)
            self.best_model = Checkpoint(self.config, tensors, self.tokenizers, asdict(progress))
        return True

    def save(self) -> None:
        """Write the model file and a checkpoint. If writing fails, warn; the next validation tries again."""
        try:
            self.write()
        except OutputError as error:
            log.warning("%s; training goes on, the next validation tries again", error)

    def write(self) -> None:
        """Write a new best model to the model file, then write a checkpoint and delete old checkpoints.

        In this order, a checkpoint never refers to a best model that is missing. The first save of a run writes the
        checkpoint first. So a model file without checkpoints means that they were deleted.

        Raises OutputError if writing fails.
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
        """Write a checkpoint, then delete all checkpoints except the newest `train.keep`."""
        # 1. Collect the weights and the average weights.
        state = self.state
        tensors = with_prefix("model", weights_of(state.model))
        if state.averaged is not None:
            tensors |= with_prefix("average", weights_of(state.averaged))

        # 2. Collect the moments of each weight.
        names = names_of(state.model)
        for parameter, moments in chain(*(optimizer.state.items() for optimizer in state.optimizers)):
            tensors |= with_prefix(f"optimizer.{names[parameter]}", moments)

        # 3. Write the file, and delete older checkpoints.
        checkpoint = Checkpoint(self.config, tensors, self.tokenizers, asdict(state.progress))
        save_checkpoint(self.run.checkpoint_file(state.progress.step), checkpoint)
        self.run.prune_checkpoints(self.config.train.keep)

    def resume(self) -> bool:
        """Restore the newest undamaged checkpoint. Return False if the run has no checkpoint.

        Raises ModelError if all checkpoints are damaged, or if the checkpoint does not fit the model or the optimizers.
        """
        newest = read_newest(self.run)
        if newest is None:
            if rank() == 0:
                self.run.cut_metrics(0)  # left by a run that was killed before its first checkpoint
            return False

        # 1. Restore weights, average weights, progress and moments.
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

        # 2. Adjust the progress to the model file and to settings that may have changed.
        self._restore_best()
        self._continue_epoch(checkpoint.config.train)
        if self.config.train.precision != "auto":
            state.progress.bf16 = self.config.train.precision == "bf16"

        # 3. Rename damaged checkpoints, and remove metrics of later steps.
        if rank() == 0:
            for step, damage in newest.damaged.items():
                aside = self.run.set_aside(step)
                log.warning("%s; kept as %s, going on from step %d", damage, aside.name, newest.step)
            self._cut_files(state.progress)
        return True

    def _cut_files(self, progress: Progress) -> None:
        """Remove metrics of later steps. Append the metrics of the last validation if they are missing.

        They are missing if training was killed after it wrote the checkpoint and before it wrote the line.
        """
        validated_steps = [line["step"] for line in self.run.cut_metrics(progress.step) if is_validation(line)]
        if progress.is_validated() and progress.step not in validated_steps:
            self.append_metrics("validation", progress.history[-1])

    def _restore_moments(self, moments: dict[str, Tensor]) -> None:
        """Make new optimizers and restore their moments. Raises KeyError if a moment is missing."""
        state = self.state
        state.optimizers = make_optimizers(state.model, self.config.train)
        if not state.progress.n_tokens:  # there are no moments before the first update
            return
        names = names_of(state.model)
        for optimizer in state.optimizers:
            keys = STATE[type(optimizer)]
            for parameter in chain(*(group["params"] for group in optimizer.param_groups)):
                name = names[parameter]
                optimizer.state[parameter] = {key: moments[f"{name}.{key}"].to(parameter) for key in keys}

    def _restore_best(self) -> None:
        """Forget the best model if the model file lacks it. The next validation then writes a model file.

        The file may be older than the checkpoint, for example if the run was copied while training went on.
        """
        progress, file = self.state.progress, self.run.model_file
        step = -1
        with contextlib.suppress(ModelError):  # raised if the file is missing or damaged
            _, saved = read_header(file)
            step = parse_progress(saved, file).step
        if progress.best_figures is None or step >= progress.best_figures["step"]:
            return
        log.warning("%s lacks the best model: the next validation writes it again", file)
        progress.best_figures = None
        progress.finished_at = -1
        # Forget a validation of this step, so that it is repeated and saves the best model.
        if progress.is_validated():
            progress.history.pop()

    def _continue_epoch(self, before: TrainSettings) -> None:
        """Begin the epoch again if batch sizes have changed since the checkpoint."""
        progress, now = self.state.progress, self.config.train
        if (before.batch_tokens == now.batch_tokens and before.accumulate == now.accumulate) or not progress.batch:
            return
        progress.batch = 0
        log.warning("train.batch_tokens or train.accumulate has changed: epoch %d begins again", progress.epoch + 1)


def with_prefix(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with `part.` before each name."""
    return {f"{part}.{name}": x for name, x in tensors.items()}


def names_of(model: Seq2Seq) -> dict[Tensor, str]:
    """Return the name of each weight of a model."""
    return {parameter: name for name, parameter in model.named_parameters()}
