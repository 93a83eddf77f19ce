"""Successive halving over settings (Jamieson and Talwalkar 2016; Li et al. 2017, section 3): `nmt sweep`.

All candidates train for a few steps; the best 1/eta train on to eta times as many steps, and so on until one is left.

    DIR/sweep         marks the directory, so that a sweep killed while planning may delete DIR/trials and plan anew
    DIR/plan.json     configs, budget and the steps of each rung: written once, before the first training
    DIR/results.json  the best dev figures of each trial up to the end of each rung, rewritten after each training
    DIR/trials/N      the run of candidate N; N-S: the same candidate with the S-th seed
    DIR/lock

Only the plan depends on the speed of the machine. Rungs are counted in steps, and a resumed training equals one that
was never stopped, so repeating the command of a killed sweep leads to the same results.
"""

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from nmt.config import Config
from nmt.errors import (
    ConfigError,
    DivergedError,
    InputError,
    ModelError,
    NmtError,
    OutputError,
    StoppedError,
    os_errors_as,
)
from nmt.files import TEMP_MARK, atomic_write, locked, parse_json, read_capped, sweep_temps
from nmt.processes import Stopped, child_variables
from nmt.run.directory import RunDirectory
from nmt.train import session
from nmt.train.dry_run import measure
from nmt.train.halving import Budget, Candidate, Figures, Standing, first_rung, ranking
from nmt.train.progress import is_validation
from nmt.train.report import clock
from nmt.train.validation import validate

log = logging.getLogger("nmt")

MARK = b"made by nmt sweep\n"  # content of DIR/sweep
OTHER = "choose another with --output DIR"
MAX_BYTES = 1_000_000_000  # of plan.json and of results.json
START_S = 6.0  # duration of one `nmt train` before its first step


class Sweep:
    """A sweep and its directory.

    Args:
        path: the directory.
        candidates: `check_candidates` must have accepted them.
        budget: how long to train.
        device, n_threads: as for `nmt train`.
    """

    def __init__(
        self, path: Path, candidates: Sequence[Candidate], budget: Budget, device: str = "auto", n_threads: int = 0
    ) -> None:
        self.path, self.candidates, self.budget = path, candidates, budget
        self.device, self.n_threads = device, n_threads
        self.metric = candidates[0].config.train.metric
        self.sizes = budget.n_survivors(len(candidates))
        self.mark_file, self.plan_file, self.results_file = path / "sweep", path / "plan.json", path / "results.json"
        self.results: dict[str, dict[str, Figures | None]] = {}  # by trial name and steps; None: diverged

    def run(self) -> tuple[list[int], list[Standing]]:
        """Train, or resume a stopped sweep; return the steps of the rungs and the standings, the best first.

        Raises:
            InputError: the directory holds something else, or another sweep is running in it.
            ConfigError: it holds another sweep, or the time is too short.
            DivergedError: all trainings of a rung diverged.
            StoppedError: Ctrl-C or SIGTERM.
        """
        self._check_directory()
        with os_errors_as(OutputError, f"make the directory {self.path}", hint=OTHER):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / "lock", holder="sweep", setting="--output DIR"):
            plan = self._read_plan() or self._make_plan()
            sweep_temps(self.path)
            self.results = _read_json(self.results_file) or {}
            rungs: list[int] = plan["rungs"]
            reached = self._climb(rungs, plan["workers"])
        standings = [self._standing(c, rungs[: n + 1]) for c, n in reached.items()]
        standings.sort(key=lambda s: (s.steps, ranking(s.figures[s.steps], self.metric)), reverse=True)
        return rungs, standings

    def _climb(self, rungs: Sequence[int], n_workers: Sequence[int]) -> dict[int, int]:
        """Train all rungs; return the last rung of each candidate."""
        reached: dict[int, int] = {}
        alive = list(range(len(self.candidates)))
        for rung, steps in enumerate(rungs):
            for c in alive:
                for seed in range(self.budget.n_seeds):
                    name = self.trial_name(c, seed)
                    if str(steps) not in self.results.get(name, {}):
                        log.info(
                            "rung %d of %d, %s: %s", rung + 1, len(rungs), self.run_of(c, seed), self.candidates[c]
                        )
                        self._train(name, steps, n_workers[c])
                reached[c] = rung
            figures = {c: self._mean_figures(c, steps) for c in alive}
            if not any(figures.values()):
                raise DivergedError(f"all trainings of rung {rung + 1} diverged", hint="lower train.lr")
            alive.sort(key=lambda c: ranking(figures[c], self.metric), reverse=True)
            n_next = self.sizes[rung + 1] if rung + 1 < len(rungs) else 0
            alive = [c for c in alive[:n_next] if figures[c] is not None]
        return reached

    # --- directories and files ----------------------------------------------------------------------------

    def trial_name(self, candidate: int, seed: int) -> str:
        return f"{candidate + 1}" + (f"-{seed + 1}" if seed else "")

    def run_of(self, candidate: int, seed: int) -> Path:
        return self.path / "trials" / self.trial_name(candidate, seed)

    def _check_directory(self) -> None:
        """Raise InputError unless the directory holds nothing, a sweep, or what a killed planning has left."""
        if self._read_plan() is not None:
            return
        is_marked = self.mark_file.is_file() and self.mark_file.read_bytes() == MARK
        known = [self.mark_file] if is_marked else []
        files = [file for file in self.path.rglob("*") if not file.is_dir() and file not in known]
        has_trials = (self.path / "trials").exists()
        if (has_trials and not is_marked) or not all(_is_planned(file, self.path) for file in files):
            raise InputError(f"{self.path} exists and is not a sweep", hint=OTHER)

    def _asked(self) -> dict[str, Any]:
        """The configs and the budget that the plan is made from, as JSON-serializable values."""
        configs = [candidate.config.model_dump(mode="json", exclude_unset=True) for candidate in self.candidates]
        return {"configs": configs, "budget": asdict(self.budget)}

    def _read_plan(self) -> dict[str, Any] | None:
        plan = _read_json(self.plan_file)
        if plan is not None and not {"asked", "rungs", "workers"} <= plan.keys():
            raise InputError(f"{self.path} exists and is not a sweep", hint=OTHER)
        if plan is not None and plan["asked"] != self._asked():
            message = f"{self.path} holds a sweep with another config, other values or another budget"
            raise ConfigError(message, hint="repeat that command to resume it, or choose another --output DIR")
        return plan

    def _standing(self, candidate: int, rungs: Sequence[int]) -> Standing:
        return Standing(
            number=candidate + 1,
            settings=self.candidates[candidate].settings,
            steps=rungs[-1],
            figures={steps: self._mean_figures(candidate, steps) for steps in rungs},
            runs=[str(self.run_of(candidate, seed)) for seed in range(self.budget.n_seeds)],
        )

    def _mean_figures(self, candidate: int, steps: int) -> Figures | None:
        """The mean over seeds; None if a training diverged."""
        names = [self.trial_name(candidate, seed) for seed in range(self.budget.n_seeds)]
        found = [one for name in names if (one := self.results[name][str(steps)]) is not None]
        if len(found) < len(names):
            return None
        return {key: sum(one[key] for one in found) / len(found) for key in ("dev_bleu", "dev_nll")}

    # --- the plan -----------------------------------------------------------------------------------------

    def _make_plan(self) -> dict[str, Any]:
        """Prepare the runs of all trials, measure a step of each candidate, and fit the rungs to the time."""
        atomic_write(self.mark_file, MARK)
        shutil.rmtree(self.path / "trials", ignore_errors=True)  # left by a sweep that was killed while planning
        step_s, n_workers, fitted = [], [], []
        validation_s, precision = 0.0, ""
        tokenizers: dict[str, RunDirectory] = {}  # runs whose tokenizer others can copy, by `_tokenizer_key`
        for c, candidate in enumerate(self.candidates):
            log.info("preparing candidate %d of %d: %s", c + 1, len(self.candidates), candidate)
            prepared = session.prepare(self._begin(c, 0, candidate.config, tokenizers), device=self.device)
            cost = measure(prepared)
            step_s.append(cost.epoch_s / cost.n_steps)
            n_workers.append(cost.n_threads)
            if c == 0:  # timed once, so that all trainings of a sweep have the same precision
                precision = "bf16" if cost.bf16 else "fp32"
                start = time.monotonic()
                validate(prepared.model.eval(), prepared.tokenizers, prepared.corpus.dev, prepared.config, bf16=False)
                validation_s = time.monotonic() - start
            prepared.run.write_tokenizers(prepared.tokenizers, prepared.config.tokenizer.joint)
            fitted.append(prepared.config.train.model_copy(update={"precision": precision, "max_epochs": None}))
            for seed in range(self.budget.n_seeds):
                own = self._begin(c, seed, prepared.config, tokenizers)
                RunDirectory(own.run).write_config(own.model_copy(update={"train": fitted[-1]}))
        mean_step_s = sum(step_s) / len(step_s) + validation_s / min(train.validate_every for train in fitted)
        rungs = self._rungs(mean_step_s, validation_s + START_S, max(train.warmup for train in fitted))
        plan = {"asked": self._asked(), "rungs": rungs, "workers": n_workers, "step_s": step_s}
        atomic_write(self.plan_file, json.dumps(plan, indent=2, ensure_ascii=False) + "\n")
        return plan

    def _begin(self, candidate: int, seed: int, config: Config, tokenizers: dict[str, RunDirectory]) -> Config:
        """Create the run of a trial and return its config; if an earlier run has the same tokenizer, copy it."""
        run = RunDirectory(self.run_of(candidate, seed))
        train = config.train.model_copy(update={"max_steps": None, "max_minutes": None})
        changes = {"run": str(run.path), "seed": config.seed + seed, "train": train}
        config = config.model_copy(update=changes)
        run.create()
        source = tokenizers.setdefault(_tokenizer_key(config), run)
        for file in source.path.glob("tokenizer*.model"):
            if file.is_file() and source is not run:  # else `session.prepare` trains it
                atomic_write(run.path / file.name, file.read_bytes())
        return config

    def _rungs(self, step_s: float, once_s: float, warmup: int) -> list[int]:
        """The steps at the end of each rung.

        Args:
            step_s: mean time of a step, with its share of validations.
            once_s: fixed time of each training in each rung, in addition to its steps.
            warmup: the longest warm-up of the candidates, in steps.
        """
        first, seconds = first_rung(self.budget, self.sizes, step_s, once_s)
        rungs = [first * self.budget.eta**k for k in range(len(self.sizes))]
        sizes = ", ".join(f"{n} for {steps:,}" for n, steps in zip(self.sizes, rungs, strict=True))
        log.info("rungs of candidates and steps: %s; about %s in all", sizes, clock(seconds))
        if first < 2 * warmup:
            log.warning("the first rung has %d steps, warm-up %d: rates are hardly compared", first, warmup)
        return rungs

    # --- training -----------------------------------------------------------------------------------------

    def _train(self, name: str, steps: int, n_workers: int) -> None:
        """Train a trial to the end of a rung with `nmt train`, and save its figures."""
        run = RunDirectory(self.path / "trials" / name)
        command = [sys.executable, "-m", "nmt", "train", str(run.config_file), f"train.max_steps={steps}"]
        command += ["--replicas", str(n_workers), "--device", self.device, "--threads", str(self.n_threads)]
        with locked(run.path / "lock", wait=True):  # a training that a killed sweep has started may still be ending
            pass
        n_logged = run.log_file.stat().st_size if run.log_file.exists() else 0
        with tempfile.TemporaryFile() as messages:
            code = self._run_to_its_end(command, messages)
            messages.seek(0)
            said = messages.read().decode(errors="replace")
        figures = None
        if code == 0:
            figures = best_figures(run, steps, self.metric)
            log.info("dev BLEU %.2f, loss %.3f without smoothing", figures["dev_bleu"], figures["dev_nll"])
        elif _has_diverged(run, n_logged):
            log.warning("%s diverged; it is left out", run.path)
        else:
            errors = [line for line in said.splitlines() if line.startswith("nmt: error: ")]
            reason = errors[-1].removeprefix("nmt: error: ") if errors else f"exit code {code}"
            kind = InputError if code == InputError.exit_code else NmtError
            raise kind(f"training {run.path} failed: {reason}", hint="then the same command goes on from here")
        self.results.setdefault(name, {})[str(steps)] = figures
        atomic_write(self.results_file, json.dumps(self.results, indent=1) + "\n")

    def _run_to_its_end(self, command: Sequence[str], messages: BinaryIO) -> int:
        """Run a command that ends when this process dies; on Ctrl-C and SIGTERM let it save. Returns its exit code."""
        env = {**os.environ, **child_variables(), "NMT_END_WITH_PARENT": "1"}
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        # A session of its own: Ctrl-C in the terminal reaches only this process, which passes it on once.
        with subprocess.Popen(
            command, stdin=pipe, stdout=null, stderr=messages, env=env, start_new_session=True
        ) as process:
            try:
                return process.wait()
            except KeyboardInterrupt as stop:
                process.terminate()
                process.wait()
                number = stop.number if isinstance(stop, Stopped) else 2
                message = f"stopped, the training that ran is saved; the sweep is in {self.path}"
                raise StoppedError(message, number, hint="the same command goes on from here") from None


def _read_json(file: Path) -> dict[str, Any] | None:
    """The JSON object in a file of the sweep; None if there is no file."""
    if not file.exists():
        return None
    found: Any = None
    with contextlib.suppress(ValueError), os_errors_as(ModelError, f"read {file}", hint=OTHER):
        found = parse_json(read_capped(file, MAX_BYTES))
    if not isinstance(found, dict):
        raise ModelError(f"{file} is damaged", hint=OTHER)
    return found


def _is_planned(file: Path, sweep: Path) -> bool:
    """Whether planning writes this file; its temporary files count, too."""
    name = file.name.partition(TEMP_MARK)[0]
    if file.parent == sweep:
        return name in ("lock", "plan.json") or file.name.startswith(f"sweep{TEMP_MARK}")
    names = ("config.yaml", "tokenizer.model", "tokenizer.src.model", "tokenizer.tgt.model")
    return file.parent.parent == sweep / "trials" and file.parent.name[0].isdecimal() and name in names


def _has_diverged(run: RunDirectory, n_before: int) -> bool:
    """Whether the last line of a run's log, after its first `n_before` bytes, reports that training diverged."""
    if not run.log_file.is_file():
        return False
    last = run.log_file.read_bytes()[n_before:].decode(errors="replace").rstrip("\n").rpartition("\n")[2]
    return f" ERROR {DivergedError.__name__}: " in last


def _tokenizer_key(config: Config) -> str:
    """A string of all settings that a trained tokenizer depends on."""
    settings = config.tokenizer.model_dump(exclude={"sampling_alpha"})
    held_out_by = None if config.data.dev else config.seed
    return json.dumps([settings, config.data.model_dump(), held_out_by, config.train.init_from])


def best_figures(run: RunDirectory, steps: int, metric: str) -> Figures:
    """The figures of the best validation, or average of checkpoints, of a run up to a step.

    Raises:
        ModelError: there is no validation up to this step.
    """
    lines = [line for line in run.read_metrics() if is_validation(line) and line["step"] <= steps]
    if not lines:
        raise ModelError(f"{run.metrics_file} has no validation up to step {steps}", hint=f"delete {run.path}")
    found = [{key: line[key] for key in ("step", "dev_bleu", "dev_nll")} for line in lines]
    return max(found, key=lambda figures: ranking(figures, metric))
