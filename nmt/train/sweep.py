"""Successive halving over settings (Jamieson and Talwalkar 2016; Li et al. 2017, section 3): `nmt sweep`.

In the first rung, all candidates train for a few steps. In the next rung, the better half of the candidates continues
to twice as many steps, and so on, until one candidate is left.

    DIR/sweep.json  configs and budget, the steps of each rung, and the best dev figures of each training in each rung
    DIR/trials/N    the run of candidate N
    DIR/lock        held during the sweep

Only the numbers of steps of the rungs depend on the speed of the machine, and these numbers are saved before the first
training. A resumed training gives the same model as a training that was never stopped. So if a sweep is killed and the
command is repeated, the results equal the results of a sweep that was not killed.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, PositiveInt

from nmt.config import Config
from nmt.errors import ConfigError, DivergedError, InputError, ModelError, OutputError, os_errors_as
from nmt.files import TEMP_MARK, atomic_write, locked, read_capped, sweep_temps
from nmt.run.directory import RunDirectory
from nmt.train import session
from nmt.train.dry_run import measure
from nmt.train.halving import Budget, Candidate, Figures, Standing, first_rung
from nmt.train.loop import Session
from nmt.train.progress import is_validation, ranking
from nmt.train.report import clock
from nmt.train.validation import validate

log = logging.getLogger("nmt")

OTHER = "choose another with --output DIR"
MAX_BYTES = 1_000_000_000  # maximum size of sweep.json
LOSS = "dev_nll"  # losses are compared without label smoothing, because a sweep may vary label smoothing


class SweepState(BaseModel):
    """The content of sweep.json."""

    asked: dict[str, Any]  # configs of the candidates and budget with which the sweep was begun
    rungs: list[PositiveInt]  # number of steps at the end of each rung
    # Best figures of each trial in each rung, by the number of the trial and the number of steps at the end of the
    # rung. The figures are None if the training diverged.
    results: dict[str, dict[str, Figures | None]]


class Cost(NamedTuple):
    """The cost of a candidate on this machine, and settings from which the rungs are computed."""

    prepare_s: float  # seconds of preparing a training
    step_s: float  # seconds per step
    validate_every: int
    warmup: int


def seconds_of_validation(prepared: Session) -> float:
    start = time.monotonic()
    validate(prepared.model.eval(), prepared.tokenizers, prepared.corpus.dev, prepared.config, bf16=False)
    return time.monotonic() - start


class Sweep:
    """A sweep in the directory `path`. `train(config)` must start or resume a run, and train to the end."""

    def __init__(
        self,
        path: Path,
        candidates: Sequence[Candidate],
        budget: Budget,
        train: Callable[[Config], None],
        device: str = "auto",
    ) -> None:
        self.path, self.candidates, self.budget = path, candidates, budget
        self.train, self.device = train, device
        # All candidates have the same metric: a sweep cannot vary it.
        self.metric = candidates[0].config.train.metric
        self.sizes = budget.n_survivors(len(candidates))
        self.file = path / "sweep.json"
        configs = [candidate.config.model_dump(mode="json", exclude_unset=True) for candidate in candidates]
        asked = {"configs": configs, "budget": asdict(budget)}
        self.state = SweepState(asked=asked, rungs=[], results={})

    def run(self) -> list[Standing]:
        """Run the sweep, or resume a stopped sweep. Return the standings of all candidates, the best first.

        Raises InputError if the directory holds files but no sweep. Raises ConfigError if the directory holds another
        sweep, or if the time is too short. Raises DivergedError if all trainings of a rung diverge.
        """
        with os_errors_as(OutputError, f"make the directory {self.path}", hint=OTHER):
            self.path.mkdir(parents=True, exist_ok=True)
            # If a process was killed while it wrote sweep.json, the name of a temporary file is sweep.json, followed by
            # `TEMP_MARK` and a number.
            names = {file.name.partition(TEMP_MARK)[0] for file in self.path.iterdir()}
        if self.file.name not in names and not names <= {"lock"}:
            raise InputError(f"{self.path} exists and is not a sweep", hint=OTHER)
        # The lock ensures that only one process works on a sweep.
        with locked(self.path / "lock", holder="sweep", setting="--output DIR"):
            sweep_temps(self.path)
            if self.file.exists():
                self._read()
            else:
                self._plan()
                self._write()
            reached = self._climb()
        standings = [self._standing(c, rung) for c, rung in reached.items()]
        # A candidate that reached a later rung is better. Of two candidates with the same rung, the figures decide.
        return sorted(standings, key=self._order, reverse=True)

    def _standing(self, candidate: int, rung: int) -> Standing:
        """Return the standing of a candidate that has reached the rung with index `rung`."""
        rungs = self.state.rungs[: rung + 1]
        figures = {steps: self._figures(candidate, steps) for steps in rungs}
        run = self._run(candidate)
        return Standing(candidate + 1, self.candidates[candidate].settings, rungs[-1], figures, str(run.path))

    def _order(self, standing: Standing) -> tuple[int, tuple[float, ...]]:
        latest = standing.figures[standing.steps]
        return standing.steps, ranking(latest, self.metric, LOSS)

    def _climb(self) -> dict[int, int]:
        """Train all rungs. Return the index of the last rung that each candidate has reached."""
        reached: dict[int, int] = {}
        alive = list(range(len(self.candidates)))
        rungs = self.state.rungs
        for rung, steps in enumerate(rungs):
            # 1. Train the candidates of this rung. In a resumed sweep, some candidates already have results.
            for c in alive:
                run = self._run(c)
                if str(steps) not in self.state.results.get(run.path.name, {}):
                    log.info("rung %d of %d, %s: %s", rung + 1, len(rungs), run.path, self.candidates[c])
                    self._train(c, steps)
                reached[c] = rung

            # 2. Choose the better half for the next rung. Diverged candidates are left out.
            figures = {c: self._figures(c, steps) for c in alive}
            converged = [c for c in alive if figures[c] is not None]
            if not converged:
                raise DivergedError(f"all trainings of rung {rung + 1} diverged", hint="lower train.lr")
            converged.sort(key=lambda c: ranking(figures[c], self.metric, LOSS), reverse=True)
            alive = converged[: self.sizes[rung] // 2]
        return reached

    def _train(self, candidate: int, steps: int) -> None:
        """Train a candidate to the end of a rung, which is at `steps` steps, and save its figures."""
        run = self._run(candidate)
        figures = None  # stays None if the training diverges
        try:
            self.train(self._config(candidate, steps))
            figures = best_figures(run, steps, self.metric)
            log.info("dev BLEU %.2f, loss %.3f without smoothing", figures["dev_bleu"], figures["dev_nll"])
        except DivergedError as error:
            log.warning("%s diverged and is left out: %s", run.path, error)
        results_of_run = self.state.results.setdefault(run.path.name, {})
        results_of_run[str(steps)] = figures
        self._write()

    def _plan(self) -> None:
        """Check all candidates, measure the time of their steps, and choose the steps of the rungs. Writes no file."""
        # 1. Measure the times of all candidates, and of one validation.
        n_candidates = len(self.candidates)
        costs = []
        validation_s = 0.0
        for c, candidate in enumerate(self.candidates):
            log.info("preparing candidate %d of %d: %s", c + 1, n_candidates, candidate)
            start = time.monotonic()
            prepared = session.prepare(self._config(c, steps=1), device=self.device)
            prepare_s = time.monotonic() - start
            cost = measure(prepared)
            settings = prepared.config.train
            costs.append(Cost(prepare_s, cost.epoch_s / cost.n_steps, settings.validate_every, settings.warmup))
            if c == 0:
                validation_s = seconds_of_validation(prepared)

        # 2. Choose the steps at the end of each rung: twice as many as at the end of the rung before.
        total_step_s = sum(cost.step_s for cost in costs)
        share_s = validation_s / min(cost.validate_every for cost in costs)
        once_s = validation_s + min(cost.prepare_s for cost in costs)
        first, seconds = first_rung(self.budget, self.sizes, total_step_s / n_candidates + share_s, once_s)
        self.state.rungs = [first << rung for rung in range(len(self.sizes))]
        sizes = [f"{n} for {steps:,}" for n, steps in zip(self.sizes, self.state.rungs, strict=True)]
        log.info("rungs of candidates and steps: %s; about %s in all", ", ".join(sizes), clock(seconds))
        warmup = max(cost.warmup for cost in costs)
        if first < 2 * warmup:
            log.warning("the first rung has %d steps, warm-up %d: rates are hardly compared", first, warmup)

    def _run(self, candidate: int) -> RunDirectory:
        number = candidate + 1
        return RunDirectory(self.path / "trials" / str(number))

    def _config(self, candidate: int, steps: int) -> Config:
        """Return the config with which a candidate trains to the end of a rung, which is at `steps` steps."""
        config = self.candidates[candidate].config
        limits = {"max_steps": steps, "max_epochs": None, "max_minutes": None}
        train = config.train.model_copy(update=limits)
        return config.model_copy(update={"run": str(self._run(candidate).path), "train": train})

    def _write(self) -> None:
        atomic_write(self.file, self.state.model_dump_json(indent=1) + "\n")

    def _read(self) -> None:
        # 1. Read and check the file.
        with os_errors_as(ModelError, f"read {self.file}", hint=OTHER):
            content = read_capped(self.file, MAX_BYTES)
        try:
            state = SweepState.model_validate_json(content)
            for results_of_run in state.results.values():
                for figures in results_of_run.values():
                    ranking(figures, "bleu", LOSS)  # raises KeyError if dev_bleu or dev_nll is missing
        except (ValueError, KeyError) as error:
            raise ModelError(f"{self.file} is damaged", hint=OTHER) from error

        # 2. Check that the file belongs to this sweep.
        has_all_rungs = len(state.rungs) == len(self.sizes)
        if state.asked != self.state.asked or not has_all_rungs:
            message = f"{self.path} holds a sweep with another config, other values or another budget"
            raise ConfigError(message, hint="repeat that command to resume it, or choose another --output DIR")
        self.state = state

    def _figures(self, candidate: int, steps: int) -> Figures | None:
        results_of_run = self.state.results[self._run(candidate).path.name]
        return results_of_run[str(steps)]


def best_figures(run: RunDirectory, steps: int, metric: str) -> Figures:
    """Return the figures of the best validation in the first `steps` steps of a run."""
    validations = filter(is_validation, run.read_metrics())
    lines = [line for line in validations if line["step"] <= steps]
    if not lines:
        hint = f"was the disk full? remove {run.path} and repeat the command"
        raise ModelError(f"{run.metrics_file} has no validation", hint=hint)
    best = max(lines, key=lambda line: ranking(line, metric, LOSS))
    return {key: best[key] for key in ("dev_bleu", "dev_nll")}
