"""The training loop: steps, validations, checkpoints, and going on where a run stopped.

Randomness is a function of (seed, step) and data order of (seed, epoch), so a checkpoint needs nothing but
weights, moments and counts for a resumed run to equal one that never stopped.
"""

import contextlib
import copy
import functools
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from nmt.config import Config, TrainSettings
from nmt.distributed import gather, gather_numbers, n_ranks, parallel, rank, summed
from nmt.errors import DivergedError, ModelError, OutputError, StoppedError
from nmt.model.base import Seq2Seq
from nmt.run.checkpoint import (
    Checkpoint,
    average,
    load_weights,
    read_checkpoint,
    read_newest,
    save_checkpoint,
    weights_of,
)
from nmt.run.directory import RunDirectory
from nmt.seeds import seed_of
from nmt.text.batches import Batch, TrainingData
from nmt.text.lines import Pair
from nmt.text.tokenizer import Tokenizers
from nmt.train.progress import Progress, lacks, limits, out_of_patience
from nmt.train.replicas import Replicas
from nmt.train.report import Report
from nmt.train.schedule import learning_rate, own_words
from nmt.train.signals import Interrupted, StopRequest, stop_signals
from nmt.train.step import make_optimizer, train_step, use_bf16, within_memory
from nmt.train.validation import Validation, advice, ranking, validate

log = logging.getLogger("nmt")

MAX_SKIPPED = 5  # steps running whose gradient is not finite: then the weights are where no step leads out
MAX_ROLLBACKS = 3
ROLLBACK_RATE = 0.5
SAVE_AGAIN_S = 60.0  # after a save that failed
PAUSES_S = (1, 2, 4)  # before each further attempt of the last one


class Trainer:
    """One run from its first step, or its last checkpoint, to the end of its budget.

    Args:
        config: fully resolved.
        data: training batches.
        dev: pairs for validation.
        tokenizers: of both sides.
        model: with its first weights, on its device.
        run: where everything is written; the caller holds its lock.
        quiet: no progress on stderr.

    Of several ranks each has a trainer of its own, all in the same state; the first one writes the files.
    """

    def __init__(
        self,
        config: Config,
        data: TrainingData,
        dev: list[Pair],
        tokenizers: Tokenizers,
        model: Seq2Seq,
        run: RunDirectory,
        *,
        quiet: bool = False,
    ) -> None:
        self.config = config
        self.data = data
        self.dev = dev
        self.tokenizers = tokenizers
        self.model = model
        self.run = run
        self.quiet = quiet
        self.device = model.device
        self.optimizer = make_optimizer(model, config.train)
        self.averaged = copy.deepcopy(model).eval() if config.train.average == "ema" else None
        self.progress = Progress(bf16=use_bf16(config.train, self.device))
        self.stop = StopRequest()
        self.better: Checkpoint | None = None  # than the model file, which it has yet to become
        self.save_at = math.inf  # on the monotonic clock: when to try again what failed
        self.unwritten: list[dict[str, Any]] = []  # figures that wait for room on the disk

    # --- the loop -----------------------------------------------------------------------------------------

    def train(self, n_workers: int = 1) -> Progress:
        """Train to the end of the budget.

        Args:
            n_workers: threads that share each step; where there are several ranks, one.
        Raises:
            StoppedError: Ctrl-C or SIGTERM; everything is saved.
            DivergedError: the figures are no longer numbers, from wherever training goes on.
            OutputError: what stands at the end cannot be saved.
        """
        progress = self.progress
        progress.bf16 = bool(gather_numbers(progress.bf16)[0][0])  # all ranks as the first one found
        n = n_ranks() * n_workers
        if progress.step and progress.n_ranks != n:
            log.info("begun with %d workers, now there are %d: dropout is drawn anew", progress.n_ranks, n)
        progress.n_ranks = n
        report = Report(self.spent(), quiet=self.quiet)
        replicas = Replicas(parallel(self.model), n_workers)
        started = time.monotonic() - progress.elapsed_s
        with stop_signals() as self.stop, contextlib.closing(report), contextlib.closing(replicas):
            while True:
                try:
                    stopped_by = self.run_steps(replicas, report, started) or self.finish(report, started)
                    break
                except DivergedError as error:
                    self.roll_back(error)
                except Interrupted:
                    stopped_by = self.stop.number
                    break
            self.save_at_end()
        if stopped_by:
            raise StoppedError(
                f"stopped at step {self.progress.step}, all saved",
                stopped_by,
                hint="the same command goes on from here",
            )
        return self.progress

    def finish(self, report: Report, started: float) -> int:
        """What ends a training whose budget is spent: the last validation, and the average; 0 for no signal."""
        progress = self.progress
        if not self.validated():
            self.validate_and_save(report)
        if self.config.train.average in ("best", "last"):
            self.average_checkpoints()
        progress.elapsed_s = time.monotonic() - started
        progress.finished_at = progress.step
        return 0

    def run_steps(self, replicas: Replicas, report: Report, started: float) -> int:
        """Steps to the end of the budget, or to a signal.

        Args:
            replicas: of the model.
            report: told of every step.
            started: when training began, on the monotonic clock.
        Returns:
            the signal's number, 0 at the end of the budget.
        Raises:
            DivergedError: several steps running, or the figures on dev, are without a number.
            Interrupted: a signal came during a validation.
        """
        progress, settings = self.progress, self.config.train
        self.validate_if_due(report)  # a signal may have broken it off
        for micro_batches in self.micro_batches():
            seen = gather_numbers(time.monotonic() - started, self.stop.number)  # all ranks end together
            progress.elapsed_s, stopped_by = seen[0][0], int(max(number for _, number in seen))
            if self.over() or stopped_by:
                return stopped_by
            spent = self.spent()
            lr = learning_rate(settings, self.config.model.d_model, progress.step + 1, spent)
            lr *= ROLLBACK_RATE**progress.n_rollbacks
            replicas.train()  # a validation has made the model translate
            step = functools.partial(
                train_step,
                replicas,
                self.optimizer,
                settings=settings,
                lr=lr,
                seed=seed_of(self.config.seed, progress.step),
                bf16=progress.bf16,
                own_words=own_words(settings, spent),
            )
            figures, progress.max_positions = within_memory(step, micro_batches, progress.max_positions)
            loss, nll = summed(figures.loss, figures.nll)
            figures = replace(figures, loss=loss, nll=nll)
            progress.step += 1
            progress.batch += len(micro_batches)
            if math.isfinite(figures.grad_norm):
                progress.n_skipped = 0
                progress.n_tokens += figures.n_tokens
                self.update_average()
                report.step(progress.step, progress.epoch, lr, figures, self.spent())
                self.note({"step": progress.step, "lr": lr, **asdict(figures)})
            else:
                progress.n_skipped += 1
                lines = ", ".join(str(n) for batch in micro_batches for n in batch.lines[:10])
                log.warning(
                    "step %d skipped: its loss is %g, its gradient no number (lines %s, …)",
                    progress.step,
                    figures.loss,
                    lines,
                )
                if progress.n_skipped == MAX_SKIPPED:
                    raise DivergedError(
                        f"the gradient is no number, {MAX_SKIPPED} times running, at step {progress.step}",
                        hint="lower train.lr or raise train.warmup; the last checkpoint is kept",
                    )
                continue  # from there nobody wants to go on
            self.validate_if_due(report)
            if time.monotonic() >= self.save_at:
                self.save()
        raise AssertionError("epochs have no end")

    def roll_back(self, error: DivergedError) -> None:
        """Go back to the last checkpoint, to go on from there with half the rate.

        Raises:
            DivergedError: there is none, or this has been done often enough.
        """
        done = self.progress
        # no rank reads before all have given up, and all see what the first one sees
        if not gather_numbers(self.run.read_last() is not None)[0][0] or done.n_rollbacks == MAX_ROLLBACKS:
            raise error
        if rank() == 0:
            self.resume()
        gather(b"")  # the others read when the first one has put aside what is damaged
        if rank() > 0:
            self.resume()
        self.progress = replace(
            self.progress, n_rollbacks=done.n_rollbacks + 1, n_skipped=0, max_positions=done.max_positions
        )
        log.warning(
            "%s: back to step %d with %g of the rate",
            error,
            self.progress.step,
            ROLLBACK_RATE**self.progress.n_rollbacks,
        )

    def validated(self) -> bool:
        """Whether the weights as they are have been validated."""
        history = self.progress.history
        return bool(history) and history[-1]["step"] == self.progress.step

    def finished(self) -> bool:
        """Whether there is nothing left to do: the budget is spent, and what ends a training has been done."""
        return self.over() and self.progress.finished_at == self.progress.step

    def micro_batches(self) -> Iterator[list[Batch]]:
        """The micro-batches of each step from where training stands, epoch after epoch, without end."""
        progress = self.progress
        while True:
            batches = self.data.batches(progress.epoch, progress.batch)
            while group := list(islice(batches, self.config.train.accumulate)):
                yield group
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def spent(self) -> float:
        """Share of the budget already spent, 0-1: of the limit that is nearest."""
        found = limits(self.config.train, self.progress, self.data.n_batches)
        return min(max((one.share for one in found), default=0.0), 1.0)

    def over(self) -> bool:
        """Whether a limit is reached."""
        return self.spent() >= 1 or out_of_patience(self.config.train, self.progress)

    def update_average(self) -> None:
        """Move the average towards the weights; quickly at first, when they are still far from anywhere."""
        if self.averaged is not None:
            decay = min(self.config.train.ema_decay, (1 + self.progress.step) / (10 + self.progress.step))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.averaged.parameters()), list(self.model.parameters()), 1 - decay)

    # --- validation and files -----------------------------------------------------------------------------

    def judged(self) -> Seq2Seq:
        """The model that is validated and kept: the average where there is one."""
        return (self.averaged or self.model).eval()

    def validate_if_due(self, report: Report) -> None:
        step = self.progress.step
        if step and step % self.config.train.validate_every == 0 and not self.validated():
            self.validate_and_save(report)

    def validate_and_save(self, report: Report) -> None:
        """Measure on dev, keep the model if it is the best, write a checkpoint, and say what the figures say."""
        progress = self.progress
        found = self.measure(self.judged())
        figures = {"step": progress.step, "epoch": progress.epoch, **found.figures()}
        progress.history.append(figures)
        was_kept = progress.best is not None  # else it is the first, or its file was missing: patience goes on
        best = self.keep_if_best(self.judged(), found)
        if not best:
            progress.n_worse += 1
        elif was_kept:
            progress.n_worse = 0
        self.note(figures)
        self.save()
        report.validation(progress.step, found, best=best)
        for words in advice(progress.history, found, len(self.tokenizers.target)):
            log.warning("%s", words)

    def measure(self, model: Seq2Seq) -> Validation:
        """Measure on dev.

        Raises:
            DivergedError: what comes out is no number.
            Interrupted: a signal came.
        """
        advice = "lower train.lr; the last checkpoint is kept"
        with self.stop.breaking_off():
            try:
                found = validate(model, self.tokenizers, self.dev, self.config, bf16=self.progress.bf16)
            except ModelError as error:  # decoding met it first
                raise DivergedError(f"on dev {error}", hint=advice) from error
        if not math.isfinite(found.loss):
            raise DivergedError(f"the dev loss is {found.loss}", hint=advice)
        return found

    def keep_if_best(self, model: Seq2Seq, found: Validation) -> bool:
        """Keep the model for the next save if it is better than the one in the model file."""
        progress, metric = self.progress, self.config.train.metric
        figures = {"step": progress.step, **found.figures()}
        if progress.best_figures and ranking(figures, metric) <= ranking(progress.best_figures, metric):
            return False
        progress.best, progress.best_step = ranking(figures, metric)[0], progress.step
        progress.best_figures = figures
        if rank() == 0:
            tensors = {f"model.{name}": x.to("cpu", copy=True) for name, x in weights_of(model).items()}
            self.better = Checkpoint(self.config, tensors, self.tokenizers, asdict(progress))
        return True

    def note(self, figures: dict[str, Any]) -> None:
        """Add a line to the metrics file; what the disk does not take waits for the next line."""
        if rank() > 0:
            return
        self.unwritten.append(figures)
        try:
            self.run.append_metrics(*self.unwritten)
            self.unwritten = []
        except OutputError as error:
            if len(self.unwritten) == 1:
                log.warning("%s; training goes on", error)

    def save(self) -> None:
        """Write what `write` does; where that fails, say so and try again later."""
        try:
            self.write()
        except OutputError as error:
            log.warning("%s; training goes on, the next attempt is in %g s", error, SAVE_AGAIN_S)
            self.save_at = time.monotonic() + SAVE_AGAIN_S

    def save_at_end(self) -> None:
        """Write what `write` does; where that fails, try again at once, for there is no later.

        Raises:
            OutputError: it cannot be written.
        """
        for pause in PAUSES_S:
            try:
                return self.write()
            except OutputError as error:
                log.warning("%s; the next attempt is in %d s", error, pause)
            time.sleep(pause)
        return self.write()

    def write(self) -> None:
        """Write the model file if there is a better one, then a checkpoint, and drop those no longer needed.

        In this order a checkpoint never tells of a best model that is not there. The first checkpoint comes before
        the model file, though: a model file without any checkpoint then means that checkpoints were deleted, not
        that a first save was cut short, from which `resume` recovers.

        Raises:
            OutputError: the disk is full, or fails.
        """
        if rank() > 0:
            return
        try:
            is_first = self.run.read_last() is None
            if is_first:
                self.write_checkpoint()
            if self.better is not None:
                save_checkpoint(self.run.model_file, self.better)
                self.better = None
            if not is_first:
                self.write_checkpoint()
        except OSError as error:
            raise OutputError(
                f"cannot write into {self.run.path}: {error.strerror or error}", hint="check the disk"
            ) from error
        self.save_at = math.inf

    def write_checkpoint(self) -> None:
        """Write a checkpoint from which training goes on, then drop those no longer needed."""
        progress = self.progress
        tensors = {f"model.{name}": x for name, x in weights_of(self.model).items()}
        if self.averaged is not None:
            tensors |= {f"average.{name}": x for name, x in weights_of(self.averaged).items()}
        for name, parameter in self.model.named_parameters():
            for moment, x in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{name}.{moment}"] = x
        checkpoint = Checkpoint(self.config, tensors, self.tokenizers, asdict(progress))
        save_checkpoint(self.run.checkpoint_file(progress.step), checkpoint)
        self.run.write_last(progress.step)
        self.run.prune_checkpoints(
            [*self.run.checkpoint_steps()[-self.config.train.keep :], *self.steps_to_average()]
        )

    def resume(self) -> bool:
        """Take up the newest checkpoint; False where there is none.

        Raises:
            ModelError: it does not belong to this model, or all are damaged.
        """
        newest = read_newest(self.run)
        if newest is None:
            if rank() == 0:
                self.run.cut_metrics(0)  # of a run killed before its first checkpoint
            return False
        checkpoint = newest.checkpoint
        load_weights(self.model, checkpoint.part("model"))
        if self.averaged is not None:
            load_weights(self.averaged, checkpoint.part("average") or checkpoint.part("model"))
        file = self.run.checkpoint_file(newest.step)
        try:
            self.progress = TypeAdapter(Progress).validate_python(checkpoint.progress)
        except ValidationError as wrong:
            raise ModelError(
                f"{file} does not say where training stands", hint="begin anew with --fresh (the old run is kept)"
            ) from wrong
        moments = checkpoint.part("optimizer")
        self.optimizer.state.clear()  # a checkpoint of step 0 has none to replace them
        for name, parameter in self.model.named_parameters() if self.progress.n_tokens else ():
            state: dict[str, Tensor] = {}
            for moment in ("step", "exp_avg", "exp_avg_sq"):
                if (key := f"{name}.{moment}") not in moments:
                    raise ModelError(f"{file} lacks {key}", hint="begin anew with --fresh")
                state[moment] = moments[key].to(parameter.device)
            self.optimizer.state[parameter] = state
        self.better = None  # of steps that are taken back
        self.unwritten = [line for line in self.unwritten if line["step"] <= self.progress.step]
        self.keep_share_of_epoch(checkpoint.config.train)
        self.compare_with_kept(checkpoint.config.train.metric)
        if self.config.train.precision != "auto":
            self.progress.bf16 = self.config.train.precision == "bf16"
        if rank() == 0:
            for step, error in newest.damaged.items():
                aside = self.run.set_aside(step)
                log.warning("%s; kept as %s, going on from step %d", error, aside.name, newest.step)
            self.run.cut_metrics(self.progress.step)
        return True

    def keep_share_of_epoch(self, before: TrainSettings) -> None:
        """Convert the number of batches done in this epoch to batches of the present size.

        Args:
            before: the settings by which they were cut and ordered.
        """
        progress, now = self.progress, self.config.train
        same = (before.batch_tokens, before.accumulate) == (now.batch_tokens, now.accumulate)
        if same or not progress.batch:
            return
        done = progress.batch / self.data.count_batches(progress.epoch, before.batch_tokens)
        if done >= 1:
            progress.epoch, progress.batch = progress.epoch + 1, 0
            return
        n_steps = done * self.data.count_batches(progress.epoch, now.batch_tokens) / now.accumulate
        progress.batch = round(n_steps) * now.accumulate
        log.warning(
            "train.batch_tokens or train.accumulate has changed within epoch %d: it goes on at %.0f %% with other "
            "batches, so some of its pairs are seen twice, some not at all",
            progress.epoch + 1,
            100 * done,
        )

    def compare_with_kept(self, metric_before: str) -> None:
        """Compare the next models with the one in the model file, by the current metric.

        Args:
            metric_before: the metric by which that model was chosen.
        """
        progress, metric = self.progress, self.config.train.metric
        if progress.best is not None and not self.run.model_file.exists():
            log.warning("%s is missing: the next validation writes it again", self.run.model_file)
            progress.best, progress.best_step, progress.best_figures, progress.finished_at = None, 0, None, -1
            if self.validated():  # do it again, so that the file is written now
                progress.history.pop()
        if progress.best is not None and progress.best_figures is None:  # a checkpoint of an older version
            lines = [*self.run.read_metrics(), *progress.history]  # the metrics also have averages of checkpoints
            of_step = [line for line in lines if not lacks(line) and line["step"] == progress.best_step]
            of_step.sort(key=lambda line: ranking(line, metric_before)[0] == progress.best)
            progress.best_figures = of_step[-1] if of_step else None
        if metric != metric_before and progress.best_figures and progress.history:
            progress.best = ranking(progress.best_figures, metric)[0]
            rankings = [ranking(line, metric) for line in progress.history]
            progress.n_worse = len(rankings) - 1 - rankings.index(max(rankings))

    def steps_to_average(self) -> list[int]:
        """The checkpoints that the average at the end is made of, oldest first."""
        settings, history = self.config.train, self.progress.history
        if settings.average not in ("best", "last"):
            return []
        if settings.average == "best":
            history = sorted(history, key=lambda line: ranking(line, settings.metric), reverse=True)
            history = history[: settings.n_average]
        return sorted(line["step"] for line in history)[-settings.n_average :]

    def average_checkpoints(self) -> None:
        """Average the best or last checkpoints; the result is kept if dev likes it better than the best one."""
        gather(b"")  # not before the first rank has written the last of them
        files = [self.run.checkpoint_file(step) for step in self.steps_to_average()]
        parts = []
        for file in files:
            try:
                parts.append(read_checkpoint(file, prefixes=("model",)).part("model"))
            except ModelError as error:  # a save that failed, or damage
                log.warning("%s; the average does without it", error)
        if len(parts) < 2:
            return
        model = copy.deepcopy(self.model).eval()
        load_weights(model, average([dict(part) for part in parts]))
        found = self.measure(model)
        best = self.keep_if_best(model, found)
        self.note({"step": self.progress.step, "n_averaged": len(parts), **found.figures()})
        log.info(
            "average of %d checkpoints: dev BLEU %.2f, loss %.3f%s",
            len(parts),
            found.bleu.value,
            found.loss,
            " (kept)" if best else " (no better than the best one)",
        )
