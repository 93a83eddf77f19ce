"""The training loop: steps, validations and checkpoints, until the budget (steps, epochs or minutes) is spent.

Random numbers are a function of the seed, the step, the micro-batch and the replica. The order of the data is one of
the seed and the epoch. So a run that is resumed with as many ranks and replicas as before equals a run that was never
stopped, bit for bit. With a budget in minutes the two differ, because the learning rate depends on the clock.
"""

import contextlib
import copy
import functools
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice

import torch

from nmt.config import Config, TrainSettings
from nmt.distributed import barrier, broadcast, gather_numbers, n_ranks, parallel, rank, summed
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
from nmt.train.progress import Limit, Progress, limits
from nmt.train.replicas import Replicas
from nmt.train.report import Report
from nmt.train.schedule import learning_rate, prediction_rate
from nmt.train.signals import Interrupted, StopRequest, stop_signals
from nmt.train.step import StepFigures, StepOptions, train_step
from nmt.train.validation import validate, warn_of_tokenized, warnings_about

log = logging.getLogger("nmt")

MAX_SKIPPED = 5  # consecutive steps without a finite gradient, after which training rolls back
MAX_ROLLBACKS = 3
ROLLBACK_LR = 0.5  # factor of the learning rate per rollback


def uses_bf16(settings: TrainSettings, device: torch.device) -> bool:
    """Return whether matmuls run in bf16. If `train.precision` is `auto`: whether bf16 is faster on this device."""
    if settings.precision == "auto":
        return bf16_is_faster(device)
    return settings.precision == "bf16"


def count_skipped(progress: Progress, figures: StepFigures, micro_batches: list[Batch]) -> None:
    """Log and count a step skipped for its gradient. Raises DivergedError at the `MAX_SKIPPED`-th in a row."""
    progress.n_skipped += 1
    lines = ", ".join(", ".join(map(str, batch.lines[:10])) for batch in micro_batches)
    message = "step %d skipped: the loss is %g, the gradient is not finite (lines %s, …)"
    log.warning(message, progress.step, figures.loss, lines)
    if progress.n_skipped == MAX_SKIPPED:
        message = f"the gradient was not finite in {MAX_SKIPPED} steps in a row, the last one is step {progress.step}"
        raise DivergedError(message, hint="lower train.lr or raise train.warmup; the last checkpoint is kept")


def step_options(config: Config, progress: Progress, spent: float) -> StepOptions:
    """Return the options of the next step, given the fraction of the budget that is spent."""
    settings = config.train
    lr = learning_rate(settings, config.model.d_model, progress.step + 1, spent)
    return StepOptions(
        settings,
        lr=lr * ROLLBACK_LR**progress.n_rollbacks,
        seed=seed_of(config.seed, progress.step),
        bf16=progress.bf16,
        prediction_rate=prediction_rate(settings, spent),
    )


@dataclass
class Session:
    """A prepared training: everything that the loop needs, made from a finished config."""

    config: Config
    corpus: TrainingText  # the dev pairs, and hashes of the corpus files
    tokenizers: Tokenizers
    data: TrainingData
    model: Seq2Seq  # with initial weights, on its device
    run: RunDirectory
    fresh: bool  # whether to start over; an existing run directory is renamed first
    on_start: Callable[[], None] = lambda: None  # called once the run is locked, before anything is written
    on_validation: Callable[[], None] = lambda: None  # called after every validation, and at the end


class Trainer:
    """One training run, from step 0 to the end of its budget. To go on from a checkpoint, call `checkpointer.resume`.

    With several ranks, each has its own trainer in the same state; rank 0 writes the files. The caller has locked the
    run directory.
    """

    def __init__(self, session: Session, *, quiet: bool = False) -> None:
        self.on_validation = session.on_validation
        self.config, self.data, self.quiet = session.config, session.data, quiet
        self.dev, self.tokenizers = session.corpus.dev, session.tokenizers
        model, settings = session.model, session.config.train
        averaged = copy.deepcopy(model).eval() if settings.average == "ema" else None
        progress = Progress(bf16=uses_bf16(settings, model.device))
        self.state = TrainingState(model, averaged, make_optimizers(model, settings), progress)
        self.checkpointer = Checkpointer(self.config, self.tokenizers, session.run, self.state)
        self.stop = StopRequest()

    @property
    def progress(self) -> Progress:
        """Counts and the history of validations; `Checkpointer.resume` replaces this object."""
        return self.state.progress

    def train(self, n_replicas: int = 1) -> Progress:
        """Train to the end of the budget.

        Args:
            n_replicas: number of processes that share each step on a CPU; 1 if there are several ranks.
        Raises:
            StoppedError: Ctrl-C or SIGTERM was received; everything is saved.
            DivergedError: gradients or the dev loss are still NaN or infinite after `MAX_ROLLBACKS` rollbacks.
            OutputError: the final checkpoint cannot be written.
        """
        self._synchronize(n_ranks() * n_replicas)
        report = Report(self.spent(), quiet=self.quiet)
        if not self.quiet:
            warn_of_tokenized(self.dev)
        replicas = Replicas(parallel(self.state.model), n_replicas)
        started = time.monotonic() - self.progress.elapsed_s
        with stop_signals() as self.stop, contextlib.closing(report), contextlib.closing(replicas):
            # Until nothing diverges: a rollback goes back to the last checkpoint.
            while True:
                try:
                    stopped_by = self.run_steps(replicas, report, started)
                    if not stopped_by:
                        self.finish(report, started)
                    break
                except DivergedError as error:
                    self.roll_back(error)
                except Interrupted:
                    stopped_by = self.stop.number
                    break
            self.checkpointer.write()
            self.on_validation()
        if stopped_by:
            message = f"stopped at step {self.progress.step}, all saved"
            raise StoppedError(message, stopped_by, hint="the same command goes on from here")
        return self.progress

    def _synchronize(self, n_replicas: int) -> None:
        """Use the first rank's precision on all ranks, and store how many ranks or replicas share a step."""
        progress = self.progress
        progress.bf16 = bool(broadcast(progress.bf16))
        if progress.step and progress.n_ranks != n_replicas:
            log.info("replicas: %d instead of %d, so dropout is drawn anew", n_replicas, progress.n_ranks)
        progress.n_ranks = n_replicas

    def run_steps(self, replicas: Replicas, report: Report, started: float) -> int:
        """Run steps until the budget is spent or a signal is received; return the signal's number, else 0.

        `started` is `time.monotonic()` at the start, minus the seconds that earlier processes have trained.
        Raises DivergedError if the gradients of several steps in a row, or the dev loss, are NaN or infinite, and
        Interrupted if a signal is received during a validation.
        """
        progress, settings = self.progress, self.config.train
        self.validate_if_due(report)  # a resumed run repeats the validation during which it was stopped
        for micro_batches in self.micro_batches():
            # 1. All ranks use the clock of rank 0, and stop if any rank has received a signal.
            times_and_signals = gather_numbers(time.monotonic() - started, self.stop.number)
            progress.elapsed_s = times_and_signals[0][0]
            stopped_by = int(max(signal for _, signal in times_and_signals))
            if self.over() or stopped_by:
                return stopped_by

            # 2. Forward, backward and update, with smaller micro-batches if memory runs out.
            options = step_options(self.config, progress, self.spent())
            replicas.model.train()  # validation sets eval mode
            step = functools.partial(train_step, replicas, self.state.optimizers, options=options)
            figures, progress.max_positions = split_on_out_of_memory(step, micro_batches, progress.max_positions)
            loss, nll = summed(figures.loss, figures.nll)  # over ranks
            figures = replace(figures, loss=loss, nll=nll)

            # 3. A step without a finite gradient has changed no weight.
            progress.step += 1
            progress.batch += len(micro_batches)
            if not math.isfinite(figures.grad_norm):
                count_skipped(progress, figures, micro_batches)
                continue
            progress.n_skipped = 0
            progress.n_tokens += figures.n_tokens

            # 4. What follows from the new weights.
            self.state.update_average(settings.ema_decay)
            spent = self.spent()
            self.checkpointer.snapshot_if_due(spent)
            report.step(progress.step, progress.epoch, options.lr, figures, spent)
            elapsed_s = time.monotonic() - started  # at the end of the step: speeds are counted from end to end
            line = {"step": progress.step, "elapsed_s": elapsed_s, "lr": options.lr, **asdict(figures)}
            self.checkpointer.append_metrics("step", line)
            self.validate_if_due(report)
        raise AssertionError("epochs have no end")

    def micro_batches(self) -> Iterator[list[Batch]]:
        """Yield the micro-batches of each step, starting at the current epoch and batch, without end."""
        progress = self.progress
        while True:
            batches = self.data.batches(progress.epoch, progress.batch)
            while micro_batches := list(islice(batches, self.config.train.accumulate)):
                yield micro_batches
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def validate_if_due(self, report: Report) -> None:
        """Validate every `validate_every` steps. If the step is skipped, validate after the next that is not.

        So a rollback goes back to a checkpoint from before the steps that were skipped.
        """
        progress, every = self.progress, self.config.train.validate_every
        validated_step = progress.history[-1]["step"] if progress.history else 0
        is_due = progress.step // every > validated_step // every
        if is_due and progress.n_skipped == 0:
            self.validate_and_save(report)

    def validate_and_save(self, report: Report) -> None:
        """Validate, keep the model if it is the best, write a checkpoint, and log warnings about the figures.

        Raises DivergedError or Interrupted, see `run_steps`.
        """
        # 1. Figures.
        progress = self.progress
        model = (self.state.averaged or self.state.model).eval()  # `run_steps` calls replicas.train() again
        with self.stop.interruptible():
            try:
                validation = validate(model, self.tokenizers, self.dev, self.config, bf16=progress.bf16)
            except ModelError as error:
                raise DivergedError(f"on dev {error}", hint="lower train.lr; the last checkpoint is kept") from error
        figures = {"step": progress.step, "epoch": progress.epoch, **validation.figures()}
        progress.history.append(figures)

        # 2. Files.
        is_best = self.checkpointer.keep_if_best(model, validation)
        progress.n_worse = 0 if is_best else progress.n_worse + 1
        self.checkpointer.save()

        # 3. What the user sees.
        warnings = warnings_about(progress.history, validation, len(self.tokenizers.target))
        shown = {"elapsed_s": progress.elapsed_s, "samples": validation.samples, "warnings": warnings}
        self.checkpointer.append_metrics("validation", {**figures, **shown})
        report.validation(progress.step, validation, best=is_best)
        for message in warnings:
            log.warning("%s", message)
        self.on_validation()

    def finish(self, report: Report, started: float) -> None:
        """Validate once more, unless the last step was validated."""
        progress = self.progress
        self.checkpointer.snapshot_if_due(1.0)
        if not progress.is_validated():
            self.validate_and_save(report)
        progress.elapsed_s = time.monotonic() - started
        progress.finished_at = progress.step

    def roll_back(self, error: DivergedError) -> None:
        """Restore the last checkpoint and halve the learning rate. Raises `error` after `MAX_ROLLBACKS` rollbacks."""
        before = self.progress  # `resume` replaces it
        # `broadcast` also waits for all ranks, so no rank changes files or weights while another still trains.
        has_checkpoint = broadcast(self.checkpointer.run.newest_step() is not None)
        if not has_checkpoint or before.n_rollbacks == MAX_ROLLBACKS:
            raise error
        if rank() == 0:
            self.checkpointer.resume()
        barrier()  # the first rank resumes first, because `resume` renames checkpoints that cannot be read
        if rank() > 0:
            self.checkpointer.resume()
        progress = self.progress
        progress.n_rollbacks, progress.n_skipped = before.n_rollbacks + 1, 0
        progress.max_positions, progress.n_ranks = before.max_positions, before.n_ranks
        log.warning("%s: back to step %d with %g of the rate", error, progress.step, ROLLBACK_LR**progress.n_rollbacks)

    def spent(self) -> float:
        """Return the fraction of the budget that is spent, 0-1: the largest of those of steps, epochs and minutes."""
        shares = [limit.share for limit in self.limits() if limit.name != "patience"]
        return min(max(shares, default=0.0), 1.0)

    def over(self) -> bool:
        """Return whether the budget is spent, or the last `patience` validations brought no better model."""
        return any(limit.share >= 1 for limit in self.limits())

    def limits(self) -> list[Limit]:
        """Return the limits on the length of training that are set."""
        return limits(self.config.train, self.progress, self.data.n_batches)

    def finished(self) -> bool:
        """Return whether training is over and `finish` has been called at this step."""
        return self.over() and self.progress.finished_at == self.progress.step
