"""The training loop: steps, validations and checkpoints, until the budget (steps, epochs or minutes) is spent.

A resumed run gives the same results, bit for bit, as a run without a stop. It needs the same number of ranks and
replicas. With a budget in minutes, results differ, because the learning rate depends on the clock.
"""

import contextlib
import copy
import functools
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice

import torch

from nmt.config import Config, TrainSettings
from nmt.distributed import gather_numbers, n_ranks, parallel
from nmt.errors import DivergedError, ModelError, StoppedError
from nmt.model.base import Seq2Seq
from nmt.model.kernels import bf16_is_faster
from nmt.run.directory import RunDirectory
from nmt.seeds import seed_of
from nmt.text.batches import Batch, TrainingData
from nmt.text.tokenizer import Tokenizers
from nmt.train.checkpointer import Checkpointer, TrainingState
from nmt.train.memory import split_on_out_of_memory
from nmt.train.optimizer import make_optimizers
from nmt.train.preparation import TrainingText
from nmt.train.progress import Progress, used_limits
from nmt.train.replicas import Replicas
from nmt.train.report import Report
from nmt.train.schedule import learning_rate
from nmt.train.signals import Interrupted, StopRequest, stop_signals
from nmt.train.step import StepFigures, StepOptions, train_step
from nmt.train.validation import validate, warnings_about

log = logging.getLogger("nmt")

MAX_SKIPPED = 5  # training ends after this many consecutive steps without a finite gradient


def uses_bf16(settings: TrainSettings, device: torch.device) -> bool:
    """Return whether matmuls run in bf16. With `train.precision=auto`, they do if this is faster on the device."""
    if settings.precision == "auto":
        return bf16_is_faster(device)
    return settings.precision == "bf16"


def count_skipped(progress: Progress, figures: StepFigures, micro_batches: list[Batch]) -> None:
    """Log and count a step that was skipped because its gradient is not finite.

    Raises DivergedError after `MAX_SKIPPED` skipped steps in a row.
    """
    progress.n_skipped += 1
    lines = ", ".join(map(str, micro_batches[0].lines[:10]))
    message = "step %d skipped: the loss is %g, the gradient is not finite (lines %s, …)"
    log.warning(message, progress.step, figures.loss, lines)
    if progress.n_skipped == MAX_SKIPPED:
        message = f"the gradient was not finite in {MAX_SKIPPED} steps in a row, the last one is step {progress.step}"
        raise DivergedError(message, hint="lower train.lr or raise train.warmup; the last checkpoint is kept")


@dataclass
class Session:
    """Everything that the training loop needs. All settings of the config are chosen."""

    config: Config
    corpus: TrainingText  # contains the dev pairs and the hashes of the corpus files
    tokenizers: Tokenizers
    data: TrainingData
    model: Seq2Seq  # model with initial weights, on the device of the training
    run: RunDirectory
    fresh: bool  # whether to start over; an old run directory is renamed first
    changes: list[str]  # changed settings of a run that is resumed, as messages
    on_start: Callable[[], None] = lambda: None  # called when the run is locked, before any file is written
    on_validation: Callable[[], None] = lambda: None  # called after every validation, and at the end


class Trainer:
    """A training run, from step 0 to the end of its budget. `checkpointer.resume` goes on from a checkpoint.

    Each rank has its own trainer with the same state. The caller must hold the lock of the run directory.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.config = session, session.config
        model, settings = session.model, session.config.train
        averaged = copy.deepcopy(model).eval() if settings.average == "ema" else None
        progress = Progress(bf16=uses_bf16(settings, model.device))
        self.state = TrainingState(model, averaged, make_optimizers(model, settings), progress)
        self.checkpointer = Checkpointer(self.config, session.tokenizers, session.run, self.state)
        self.stop = StopRequest()
        self.started = 0.0  # the value of `time.monotonic` at the start, as if training had never been stopped

    @property
    def progress(self) -> Progress:
        """The current progress. `Checkpointer.resume` replaces this object."""
        return self.state.progress

    def train(self, n_replicas: int = 1) -> Progress:
        """Train to the end of the budget.

        Args:
            n_replicas: number of processes that share each step on a CPU. Must be 1 if there are several ranks.
        Raises:
            StoppedError: Ctrl-C or SIGTERM was received, and everything is saved.
            DivergedError: the dev loss, or the gradients of `MAX_SKIPPED` steps in a row, are not finite.
            OutputError: the final checkpoint cannot be written.
        """
        progress = self.progress
        progress.n_ranks = n_ranks() * n_replicas
        report = Report(self.spent())
        replicas = Replicas(parallel(self.state.model), n_replicas)
        self.started = time.monotonic() - progress.elapsed_s
        with stop_signals() as self.stop, contextlib.closing(replicas):
            try:
                stopped_by = self.run_steps(replicas, report)
                if not stopped_by:
                    self.finish(report)
            except Interrupted:
                stopped_by = self.stop.number
            self.checkpointer.write()
            self.session.on_validation()
        if stopped_by:
            raise StoppedError(
                f"stopped at step {progress.step}, all saved", stopped_by, hint="the same command goes on from here"
            )
        return progress

    def run_steps(self, replicas: Replicas, report: Report) -> int:
        """Run steps until the budget is spent or a signal is received.

        Returns:
            The number of the signal, or 0.
        Raises:
            DivergedError: see `train`.
            Interrupted: a signal is received during a validation.
        """
        progress, settings = self.progress, self.config.train
        self.validate_if_due(report)
        for micro_batches in self.micro_batches():
            # 1. Check the budget on the clock of rank 0. If any rank gets a signal, all ranks stop.
            times_and_signals = gather_numbers(self.elapsed_s(), self.stop.number)
            progress.elapsed_s = times_and_signals[0][0]
            stopped_by = int(max(signal for _, signal in times_and_signals))
            if self.over() or stopped_by:
                return stopped_by

            # 2. Update the weights. If memory runs out, repeat the step with smaller micro-batches.
            lr = learning_rate(settings, self.config.model.d_model, progress.step + 1, self.spent())
            options = StepOptions(settings, lr, seed_of(self.config.seed, progress.step), progress.bf16)
            replicas.model.train()  # a validation has set eval mode
            step = functools.partial(train_step, replicas, self.state.optimizers, options=options)
            figures, progress.max_positions = split_on_out_of_memory(step, micro_batches, progress.max_positions)

            # 3. Count the step. If the gradient is not finite, the weights have not changed.
            progress.step += 1
            progress.batch += len(micro_batches)
            progress.elapsed_s = self.elapsed_s()
            if not math.isfinite(figures.grad_norm):
                count_skipped(progress, figures, micro_batches)
                continue
            progress.n_skipped = 0
            progress.n_tokens += figures.n_tokens

            # 4. Update the moving average, write figures, and validate if a validation is due.
            self.state.update_average(settings.ema_decay)
            report.step(progress.step, progress.epoch, lr, figures, self.spent())
            line = {"step": progress.step, "elapsed_s": progress.elapsed_s, "lr": lr}
            self.checkpointer.append_metrics("step", line | asdict(figures))
            self.validate_if_due(report)
        raise AssertionError("epochs have no end")

    def micro_batches(self) -> Iterator[list[Batch]]:
        """Yield the micro-batches of each step without end, from the current epoch and batch on."""
        progress = self.progress
        while True:
            batches = self.session.data.batches(progress.epoch, progress.batch)
            while micro_batches := list(islice(batches, self.config.train.accumulate)):
                yield micro_batches
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def validate_if_due(self, report: Report) -> None:
        """Validate every `validate_every` steps, but not directly after a skipped step.

        A validation writes a checkpoint. A training that diverges must resume from a checkpoint before the skipped
        steps.
        """
        progress, every = self.progress, self.config.train.validate_every
        validated_step = progress.history[-1]["step"] if progress.history else 0
        if progress.step // every > validated_step // every and not progress.n_skipped:
            self.validate_and_save(report)

    def validate_and_save(self, report: Report) -> None:
        """Validate, keep the model if it is the best so far, write a checkpoint, and log warnings.

        Raises DivergedError if the dev loss is not finite, and Interrupted if a signal is received.
        """
        # 1. Compute the figures.
        progress, tokenizers = self.progress, self.session.tokenizers
        model = (self.state.averaged or self.state.model).eval()  # `run_steps` sets train mode again
        with self.stop.interruptible():
            try:
                validation = validate(model, tokenizers, self.session.corpus.dev, self.config, bf16=progress.bf16)
            except ModelError as error:
                raise DivergedError(f"on dev {error}", hint="lower train.lr; the last checkpoint is kept") from error
        figures = {"step": progress.step, "epoch": progress.epoch, **validation.figures()}
        progress.history.append(figures)
        progress.elapsed_s = self.elapsed_s()

        # 2. Write the files.
        is_best = self.checkpointer.keep_if_best(model, figures)
        progress.n_worse = 0 if is_best else progress.n_worse + 1
        self.checkpointer.save()

        # 3. Report to the user.
        warnings = warnings_about(progress.history, validation, len(tokenizers.target))
        shown = {"elapsed_s": progress.elapsed_s, "samples": validation.samples, "warnings": warnings}
        self.checkpointer.append_metrics("validation", figures | shown)
        report.validation(progress.step, validation, best=is_best)
        for message in warnings:
            log.warning("%s", message)
        self.session.on_validation()

    def finish(self, report: Report) -> None:
        """Validate if necessary, and mark the training as finished."""
        progress = self.progress
        if not progress.is_validated():
            self.validate_and_save(report)
        progress.finished_at = progress.step

    def spent(self) -> float:
        """Return the spent fraction of the budget, 0-1. The largest fraction of steps, epochs or minutes counts."""
        shares = [share for name, share in self.used_limits().items() if name != "patience"]
        return min(max(shares, default=0.0), 1.0)

    def over(self) -> bool:
        """Return whether the budget or the patience (`train.patience`) is used up."""
        return any(share >= 1 for share in self.used_limits().values())

    def elapsed_s(self) -> float:
        """Return the seconds of training so far, including those before the run was resumed."""
        return time.monotonic() - self.started

    def used_limits(self) -> dict[str, float]:
        return used_limits(self.config.train, self.progress, self.session.data.n_batches)

    def finished(self) -> bool:
        """Return whether training is over and `finish` was called at this step."""
        return self.over() and self.progress.finished_at == self.progress.step
