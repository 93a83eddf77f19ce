"""Successive halving over settings (Jamieson and Talwalkar 2016; Li et al. 2017, section 3): `nmt sweep`.

All candidates train for a few steps; the better half trains on to twice as many steps, and so on until one is left.

    DIR/sweep.json  what was asked, the steps of each rung, and the best dev figures of each training in each rung
    DIR/trials/N    the run of candidate N
    DIR/lock

Only the steps of the rungs depend on the speed of the machine. They are saved before the first training, and a resumed
training equals one that was never stopped, so repeating the command of a killed sweep leads to the same results.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, PositiveInt

from nmt.config import Config
from nmt.errors import ConfigError, DivergedError, InputError, ModelError, OutputError, os_errors_as
from nmt.files import TEMP_MARK, atomic_write, locked, read_capped, sweep_temps
from nmt.run.directory import RunDirectory
from nmt.train import session
from nmt.train.dry_run import measure
from nmt.train.halving import Budget, Candidate, Figures, Standing, first_rung
from nmt.train.progress import is_validation, ranking
from nmt.train.report import clock
from nmt.train.validation import validate

log = logging.getLogger("nmt")

OTHER = "choose another with --output DIR"
MAX_BYTES = 1_000_000_000  # of sweep.json
LOSS = "dev_nll"  # candidates are compared without label smoothing, which may be varied


class State(BaseModel):
    """The content of sweep.json."""

    asked: dict[str, Any]  # the configs and the budget that the sweep is begun with
    rungs: list[PositiveInt]  # the number of steps at the end of each rung
    results: dict[str, dict[str, Figures | None]]  # by trial name and steps; None: diverged


class Sweep:
    """A sweep and its directory; `train` starts or resumes the training of a config, to its end."""

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
        self.metric = candidates[0].config.train.metric
        self.sizes = budget.n_survivors(len(candidates))
        self.file = path / "sweep.json"
        configs = [candidate.config.model_dump(mode="json", exclude_unset=True) for candidate in candidates]
        self.state = State(asked={"configs": configs, "budget": asdict(budget)}, rungs=[], results={})

    def run(self) -> list[Standing]:
        """Train, or resume a stopped sweep; return the standings, the best first.

        Raises InputError if the directory holds something else, ConfigError if another sweep, or the time is too short.
        """
        with os_errors_as(OutputError, f"make the directory {self.path}", hint=OTHER):
            self.path.mkdir(parents=True, exist_ok=True)
            names = {file.name.partition(TEMP_MARK)[0] for file in self.path.iterdir()}
        if self.file.name not in names and not names <= {"lock"}:
            raise InputError(f"{self.path} exists and is not a sweep", hint=OTHER)
        with locked(self.path / "lock", holder="sweep", setting="--output DIR"):
            sweep_temps(self.path)
            if self.file.exists():
                self._read()
            else:
                self._plan()
                self._write()
            reached = self._climb()
        standings = [
            Standing(
                number=c + 1,
                settings=self.candidates[c].settings,
                steps=self.state.rungs[rung],
                figures={steps: self._figures(c, steps) for steps in self.state.rungs[: rung + 1]},
                run=str(self._run(c).path),
            )
            for c, rung in reached.items()
        ]
        return sorted(standings, key=lambda s: (s.steps, ranking(s.figures[s.steps], self.metric, LOSS)), reverse=True)

    def _climb(self) -> dict[int, int]:
        """Train all rungs; return the last rung of each candidate."""
        reached: dict[int, int] = {}
        alive = list(range(len(self.candidates)))
        for rung, steps in enumerate(self.state.rungs):
            for c in alive:
                run = self._run(c)
                if str(steps) not in self.state.results.get(run.path.name, {}):
                    log.info("rung %d of %d, %s: %s", rung + 1, len(self.state.rungs), run.path, self.candidates[c])
                    self._train(c, steps)
                reached[c] = rung
            figures = {c: self._figures(c, steps) for c in alive}
            if not any(figures.values()):
                raise DivergedError(f"all trainings of rung {rung + 1} diverged", hint="lower train.lr")
            alive.sort(key=lambda c: ranking(figures[c], self.metric, LOSS), reverse=True)
            n_next = self.sizes[rung + 1] if rung + 1 < len(self.state.rungs) else 0
            alive = [c for c in alive[:n_next] if figures[c] is not None]
        return reached

    def _train(self, candidate: int, steps: int) -> None:
        """Train a trial to the end of a rung, and save its figures."""
        run, figures = self._run(candidate), None
        try:
            self.train(self._config(candidate, steps))
            figures = best_figures(run, steps, self.metric)
            log.info("dev BLEU %.2f, loss %.3f without smoothing", figures["dev_bleu"], figures["dev_nll"])
        except DivergedError as error:
            log.warning("%s diverged and is left out: %s", run.path, error)
        self.state.results.setdefault(run.path.name, {})[str(steps)] = figures
        self._write()

    def _plan(self) -> None:
        """Check all candidates, measure a step of each, and fit the rungs to the time. Writes nothing."""
        step_s, prepare_s, every, warmup = [], [], [], []
        validation_s = 0.0
        for c, candidate in enumerate(self.candidates):
            log.info("preparing candidate %d of %d: %s", c + 1, len(self.candidates), candidate)
            start = time.monotonic()
            prepared = session.prepare(self._config(c, steps=1), device=self.device)
            prepare_s.append(time.monotonic() - start)
            every.append(prepared.config.train.validate_every)
            warmup.append(prepared.config.train.warmup)
            cost = measure(prepared)
            step_s.append(cost.epoch_s / cost.n_steps)
            if c == 0:
                start = time.monotonic()
                validate(prepared.model.eval(), prepared.tokenizers, prepared.corpus.dev, prepared.config, bf16=False)
                validation_s = time.monotonic() - start
        mean_step_s = sum(step_s) / len(step_s) + validation_s / min(every)
        first, seconds = first_rung(self.budget, self.sizes, mean_step_s, validation_s + min(prepare_s))
        self.state.rungs = [first * 2**k for k in range(len(self.sizes))]
        sizes = ", ".join(f"{n} for {steps:,}" for n, steps in zip(self.sizes, self.state.rungs, strict=True))
        log.info("rungs of candidates and steps: %s; about %s in all", sizes, clock(seconds))
        if first < 2 * max(warmup):
            log.warning("the first rung has %d steps, warm-up %d: rates are hardly compared", first, max(warmup))

    def _run(self, candidate: int) -> RunDirectory:
        return RunDirectory(self.path / "trials" / str(candidate + 1))

    def _config(self, candidate: int, steps: int) -> Config:
        """The config of a trial that trains to the end of a rung."""
        config = self.candidates[candidate].config
        train = {"max_steps": steps, "max_epochs": None, "max_minutes": None}
        changes = {"run": str(self._run(candidate).path), "train": config.train.model_copy(update=train)}
        return config.model_copy(update=changes)

    def _write(self) -> None:
        atomic_write(self.file, self.state.model_dump_json(indent=1) + "\n")

    def _read(self) -> None:
        with os_errors_as(ModelError, f"read {self.file}", hint=OTHER):
            content = read_capped(self.file, MAX_BYTES)
        try:
            state = State.model_validate_json(content)
            for figures in (one for of_trial in state.results.values() for one in of_trial.values()):
                ranking(figures, "bleu", LOSS)  # looks up both figures
        except (ValueError, KeyError) as error:
            raise ModelError(f"{self.file} is damaged", hint=OTHER) from error
        if state.asked != self.state.asked or len(state.rungs) != len(self.sizes):
            message = f"{self.path} holds a sweep with another config, other values or another budget"
            raise ConfigError(message, hint="repeat that command to resume it, or choose another --output DIR")
        self.state = state

    def _figures(self, candidate: int, steps: int) -> Figures | None:
        return self.state.results[self._run(candidate).path.name][str(steps)]


def best_figures(run: RunDirectory, steps: int, metric: str) -> Figures:
    """The figures of the best validation of a run up to a step."""
    lines = [line for line in run.read_metrics() if is_validation(line) and line["step"] <= steps]
    if not lines:
        hint = f"was the disk full? remove {run.path} and repeat the command"
        raise ModelError(f"{run.metrics_file} has no validation", hint=hint)
    best = max(lines, key=lambda line: ranking(line, metric, LOSS))
    return {key: best[key] for key in ("dev_bleu", "dev_nll")}
