"""The training loop: steps, validations, checkpoints, until the budget is spent.

Randomness is a function of (seed, step) and data order of (seed, epoch), so that a run resumed from a checkpoint
equals one that never stopped, bit for bit.
"""

import contextlib
import copy
import functools
import logging
import math
import time
from collections.abc import Iterator
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
from nmt.train.memory import within_memory
from nmt.train.preparation import Corpus
from nmt.train.progress import Progress, limits, out_of_patience
from nmt.train.replicas import Replicas
from nmt.train.report import Report
from nmt.train.schedule import learning_rate, own_tokens
from nmt.train.signals import Interrupted, StopRequest, stop_signals
from nmt.train.step import StepFigures, StepOptions, make_optimizer, train_step
from nmt.train.validation import Validation, advice, validate

log = logging.getLogger("nmt")

MAX_SKIPPED = 5  # consecutive steps without a finite gradient, after which training rolls back
MAX_ROLLBACKS = 3
ROLLBACK_LR = 0.5  # factor of the learning rate per rollback


def uses_bf16(settings: TrainSettings, device: torch.device) -> bool:
    """Whether matmuls run in bf16: as set, or as is faster on this machine."""
    return bf16_is_faster(device) if settings.precision == "auto" else settings.precision == "bf16"


def count_skipped(progress: Progress, figures: StepFigures, micro_batches: list[Batch]) -> None:
    """Warn of a step without an update, because its gradient was not finite.

    Raises:
        DivergedError: `MAX_SKIPPED` in a row.
    """
    progress.n_skipped += 1
    log.warning(
        "step %d skipped: its loss is %g, its gradient no number (lines %s, …)",
        progress.step,
        figures.loss,
        ", ".join(str(n) for batch in micro_batches for n in batch.lines[:10]),
    )
    if progress.n_skipped == MAX_SKIPPED:
        raise DivergedError(
            f"the gradient is no number, {MAX_SKIPPED} times running, at step {progress.step}",
            hint="lower train.lr or raise train.warmup; the last checkpoint is kept",
        )


@dataclass
class Session:
    """Everything that a training needs; nothing is written yet.

    Attributes:
        config: with all settings.
        corpus: dev, hashes and notes.
        tokenizers: of both sides.
        data: training batches.
        model: with initial weights, on its device.
        run: where everything is written.
        fresh: whether an existing run is moved aside.
    """

    config: Config
    corpus: Corpus
    tokenizers: Tokenizers
    data: TrainingData
    model: Seq2Seq
    run: RunDirectory
    fresh: bool


class Trainer:
    """One run from its first step, or its last checkpoint, to the end of its budget.

    With several ranks, each has a trainer, all in the same state; the first one writes the files.

    Args:
        session: the caller holds the lock of its run.
        quiet: no progress on stderr.
    """

    def __init__(self, session: Session, *, quiet: bool = False) -> None:
        self.config, self.data, self.quiet = session.config, session.data, quiet
        self.dev, self.tokenizers = session.corpus.dev, session.tokenizers
        model, settings = session.model, session.config.train
        self.state = TrainingState(
            model=model,
            averaged=copy.deepcopy(model).eval() if settings.average == "ema" else None,
            optimizer=make_optimizer(model, settings),
            progress=Progress(bf16=uses_bf16(settings, model.device)),
        )
        self.checkpointer = Checkpointer(self.config, self.tokenizers, session.run, self.state)
        self.stop = StopRequest()

    @property
    def progress(self) -> Progress:
        """Where training stands; `resume` replaces it."""
        return self.state.progress

    def train(self, n_threads: int = 1) -> Progress:
        """Train to the end of the budget.

        Args:
            n_threads: replicas that share each step; 1 with several ranks.
        Raises:
            StoppedError: Ctrl-C or SIGTERM; everything is saved.
            DivergedError: figures are NaN or infinite, also after rollbacks.
            OutputError: the last save failed.
        """
        self._agree(n_ranks() * n_threads)
        report = Report(self.spent(), quiet=self.quiet)
        replicas = Replicas(parallel(self.state.model), n_threads)
        started = time.monotonic() - self.progress.elapsed_s
        with stop_signals() as self.stop, contextlib.closing(report), contextlib.closing(replicas):
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
            self.checkpointer.save_at_end()
        if stopped_by:
            raise StoppedError(
                f"stopped at step {self.progress.step}, all saved",
                stopped_by,
                hint="the same command goes on from here",
            )
        return self.progress

    def _agree(self, n_workers: int) -> None:
        """Take the first rank's precision, and note how many threads or ranks share a step."""
        progress = self.progress
        progress.bf16 = bool(broadcast(progress.bf16))
        if progress.step and progress.n_ranks != n_workers:
            log.info("begun with %d workers, now there are %d: dropout is drawn anew", progress.n_ranks, n_workers)
        progress.n_ranks = n_workers

    def run_steps(self, replicas: Replicas, report: Report, started: float) -> int:
        """Do steps to the end of the budget, or to a signal.

        Args:
            replicas: of the model.
            report: shows each step.
            started: when training began, in monotonic time.
        Returns:
            the signal's number; 0 at the end of the budget.
        Raises:
            DivergedError: consecutive gradients, or the figures on dev, are NaN or infinite.
            Interrupted: a signal during a validation.
        """
        progress, settings = self.progress, self.config.train
        self.validate_if_due(report)  # if a signal interrupted this validation
        for micro_batches in self.micro_batches():
            seen = gather_numbers(time.monotonic() - started, self.stop.number)  # so that all ranks end together
            progress.elapsed_s, stopped_by = seen[0][0], int(max(number for _, number in seen))
            if self.over() or stopped_by:
                return stopped_by
            options = self.step_options()
            replicas.train()  # validation sets eval mode
            step = functools.partial(train_step, replicas, self.state.optimizer, options=options)
            figures, progress.max_positions = within_memory(step, micro_batches, progress.max_positions)
            loss, nll = summed(figures.loss, figures.nll)  # over ranks
            figures = replace(figures, loss=loss, nll=nll)
            progress.step += 1
            progress.batch += len(micro_batches)
            if not math.isfinite(figures.grad_norm):
                count_skipped(progress, figures, micro_batches)
                continue
            progress.n_skipped = 0
            progress.n_tokens += figures.n_tokens
            self.state.update_average(settings.ema_decay)
            report.step(progress.step, progress.epoch, options.lr, figures, self.spent())
            self.checkpointer.append_metrics({"step": progress.step, "lr": options.lr, **asdict(figures)})
            self.validate_if_due(report)
            self.checkpointer.save_if_due()
        raise AssertionError("epochs have no end")

    def micro_batches(self) -> Iterator[list[Batch]]:
        """The micro-batches of each step from where training stands, epoch after epoch, without end."""
        progress = self.progress
        while True:
            batches = self.data.batches(progress.epoch, progress.batch)
            while of_step := list(islice(batches, self.config.train.accumulate)):
                yield of_step
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def step_options(self) -> StepOptions:
        """Learning rate, seed and so on of the next step."""
        settings, progress, spent = self.config.train, self.progress, self.spent()
        lr = learning_rate(settings, self.config.model.d_model, progress.step + 1, spent)
        return StepOptions(
            settings,
            lr=lr * ROLLBACK_LR**progress.n_rollbacks,
            seed=seed_of(self.config.seed, progress.step),
            bf16=progress.bf16,
            own_tokens=own_tokens(settings, spent),
        )

    # --- validation ---------------------------------------------------------------------------------------

    def validate_if_due(self, report: Report) -> None:
        """Validate every `validate_every` steps."""
        progress = self.progress
        if progress.step and progress.step % self.config.train.validate_every == 0 and not progress.is_validated():
            self.validate_and_save(report)

    def validate_and_save(self, report: Report) -> None:
        """Validate, keep the model if it is the best, write a checkpoint, and warn if figures look wrong."""
        progress = self.progress
        model = (self.state.averaged or self.state.model).eval()  # train() follows before the next step
        validation = self.validate(model)
        figures = {"step": progress.step, "epoch": progress.epoch, **validation.figures()}
        progress.history.append(figures)
        had_best = progress.best is not None  # if not, this is the first, or the model file is missing
        is_best = self.checkpointer.keep_if_best(model, validation)
        if not is_best:
            progress.n_worse += 1
        elif had_best:
            progress.n_worse = 0
        self.checkpointer.save()
        self.checkpointer.append_metrics(figures)
        report.validation(progress.step, validation, best=is_best)
        for message in advice(progress.history, validation, len(self.tokenizers.target)):
            log.warning("%s", message)

    def validate(self, model: Seq2Seq) -> Validation:
        """Measure a model on dev.

        Raises:
            DivergedError: its loss or its logits are NaN or infinite.
            Interrupted: a signal came.
        """
        hint = "lower train.lr; the last checkpoint is kept"
        with self.stop.interruptible():
            try:
                validation = validate(model, self.tokenizers, self.dev, self.config, bf16=self.progress.bf16)
            except ModelError as error:  # from search
                raise DivergedError(f"on dev {error}", hint=hint) from error
        if not math.isfinite(validation.loss):
            raise DivergedError(f"the dev loss is {validation.loss}", hint=hint)
        return validation

    # --- the end, and what goes wrong ---------------------------------------------------------------------

    def finish(self, report: Report, started: float) -> None:
        """When the budget is spent: validate, and average checkpoints."""
        progress = self.progress
        if not progress.is_validated():
            self.validate_and_save(report)
        if self.config.train.average in ("best", "last"):
            self.average_checkpoints()
        progress.elapsed_s = time.monotonic() - started
        progress.finished_at = progress.step

    def average_checkpoints(self) -> None:
        """Average the best or last checkpoints; the result is kept if it is better on dev."""
        barrier()  # until the first rank has written them
        averaged = self.checkpointer.averaged_model()
        if averaged is None:
            return
        model, n_averaged = averaged
        validation = self.validate(model)
        is_best = self.checkpointer.keep_if_best(model, validation)
        self.checkpointer.append_metrics({"step": self.progress.step, "n_averaged": n_averaged, **validation.figures()})
        log.info(
            "average of %d checkpoints: dev BLEU %.2f, loss %.3f%s",
            n_averaged,
            validation.bleu.value,
            validation.loss,
            " (kept)" if is_best else " (no better than the best one)",
        )

    def roll_back(self, error: DivergedError) -> None:
        """Go back to the last checkpoint and go on with half the learning rate.

        Raises:
            DivergedError: there is no checkpoint, or this was the last of `MAX_ROLLBACKS`.
        """
        n_rollbacks, max_positions = self.progress.n_rollbacks, self.progress.max_positions
        has_checkpoint = broadcast(self.checkpointer.run.newest_step() is not None)  # all ranks have failed by now
        if not has_checkpoint or n_rollbacks == MAX_ROLLBACKS:
            raise error
        if rank() == 0:
            self.resume()
        barrier()  # the first rank renames damaged checkpoints, then the others read
        if rank() > 0:
            self.resume()
        self.state.progress = replace(
            self.progress, n_rollbacks=n_rollbacks + 1, n_skipped=0, max_positions=max_positions
        )
        lr_factor = ROLLBACK_LR**self.progress.n_rollbacks
        log.warning("%s: back to step %d with %g of the rate", error, self.progress.step, lr_factor)

    # --- resume and budget --------------------------------------------------------------------------------

    def resume(self) -> bool:
        """Restore the newest checkpoint; False if there is none.

        Raises:
            ModelError: it does not belong to this model, or all are damaged.
        """
        return self.checkpointer.resume(self.data)

    def spent(self) -> float:
        """Share of the budget already spent, 0-1, by the limit that is nearest."""
        found = limits(self.config.train, self.progress, self.data.n_batches)
        return min(max((limit.share for limit in found), default=0.0), 1.0)

    def over(self) -> bool:
        """Whether a limit is reached."""
        return self.spent() >= 1 or out_of_patience(self.config.train, self.progress)

    def finished(self) -> bool:
        """Whether a limit is reached and `finish` was done at this step."""
        return self.over() and self.progress.finished_at == self.progress.step
