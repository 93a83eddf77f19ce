"""A sweep: what it chooses, resumes, shares and refuses."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import NO_PROCESS, file_bytes
from small_run import config_of, run_training, write_small_corpus

from nmt.config import Config
from nmt.errors import ConfigError, DivergedError, InputError, ModelError
from nmt.run.directory import RunDirectory
from nmt.train.halving import Budget, Candidate, Standing
from nmt.train.sweep import Sweep, best_figures

RATES = ("1e-5", "1e-2")
BUDGET = Budget(minutes=None, steps=3)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_corpus(tmp_path_factory.mktemp("corpus"))


class Trainings:
    """Trains as `nmt train` does, and can be killed."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int | None]] = []  # name of the run, and its train.max_steps
        self.before: Callable[[int], object] = int  # called before each training, with its index from 0
        self.after: Callable[[int], object] = int  # called after it
        self.diverging = 0.0  # learning rate of trainings that diverge

    def __call__(self, config: Config) -> None:
        number = len(self.done)
        self.before(number)
        self.done.append((Path(config.run).name, config.train.max_steps))
        run_training(config)
        if config.train.lr == self.diverging:
            raise DivergedError("the loss is nan")
        self.after(number)


def candidates(corpus: Path, *rates: str) -> list[Candidate]:
    found = []
    for rate in rates or RATES:
        config = config_of(corpus, train__lr=float(rate), train__metric="loss")
        found.append(Candidate({"train.lr": rate}, config))
    return found


def run_sweep(path: Path, chosen: list[Candidate], trainings: Trainings, budget: Budget = BUDGET) -> list[Standing]:
    return Sweep(path, chosen, budget, trainings, "cpu").run()


def figures_of(standings: Sequence[Standing]) -> list[Any]:
    return [(standing.number, standing.steps, standing.figures) for standing in standings]


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Standing]:
    """The standings of a sweep that was never stopped."""
    trainings = Trainings()
    standings = run_sweep(tmp_path_factory.mktemp("unbroken") / "sweep", candidates(corpus), trainings)
    assert trainings.done == [("1", 3), ("2", 3), ("2", 6)]
    return standings


def test_the_better_ones_train_on_and_the_best_wins(expected: list[Standing]) -> None:
    best, other = expected
    assert (best.settings["train.lr"], best.steps) == ("1e-2", 6)
    assert (other.settings["train.lr"], other.steps) == ("1e-5", 3), "the lowest rate learns nothing in three steps"


def test_the_figures_of_a_rung_are_the_best_until_its_end(expected: list[Standing]) -> None:
    run = RunDirectory(expected[0].run)
    first = best_figures(run, 3, "loss")
    second = best_figures(run, 6, "loss")
    assert expected[0].figures == {3: first, 6: second}
    assert second["dev_nll"] < first["dev_nll"]
    assert run.newest_step() == 6


def test_a_trial_without_figures_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"metrics\.jsonl has no validation"):
        best_figures(RunDirectory(tmp_path), 3, "bleu")


@pytest.mark.parametrize(("moment", "number"), [("after", 0), ("before", 2)])
def test_killed_it_resumes(corpus: Path, tmp_path: Path, expected: list[Standing], moment: str, number: int) -> None:
    """A kill after a training comes before its figures are saved."""

    def kill(training: int) -> None:
        if training == number:
            raise KeyboardInterrupt

    trainings, sweep = Trainings(), tmp_path / "sweep"
    setattr(trainings, moment, kill)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep, candidates(corpus), trainings)
    setattr(trainings, moment, int)
    (sweep / f"sweep.json.tmp.{NO_PROCESS}").write_text("{")  # of the killed process
    resumed = run_sweep(sweep, candidates(corpus), trainings)
    assert figures_of(resumed) == figures_of(expected)
    assert not list(sweep.glob("*.tmp.*"))
    # At most one training was done twice; a finished sweep trains no more.
    n_trainings = len(trainings.done)
    assert n_trainings <= 4
    again = run_sweep(sweep, candidates(corpus), trainings)
    assert figures_of(again) == figures_of(expected)
    assert len(trainings.done) == n_trainings


def test_one_that_diverges_is_left_out(corpus: Path, tmp_path: Path) -> None:
    trainings = Trainings()
    trainings.diverging = 1e-2
    three = candidates(corpus, "1e-5", "1e-2", "3e-3")
    standings = run_sweep(tmp_path / "sweep", three, trainings)
    assert [standing.number for standing in standings] == [3, 1, 2]
    assert [standing.steps for standing in standings] == [6, 3, 3]
    assert standings[-1].figures == {3: None}


def test_if_all_diverge_it_is_an_error(corpus: Path, tmp_path: Path) -> None:
    trainings = Trainings()
    trainings.diverging = 1e-5
    with pytest.raises(DivergedError, match="all trainings of rung 1 diverged"):
        run_sweep(tmp_path / "sweep", candidates(corpus, "1e-5"), trainings)


def test_another_sweep_is_refused(corpus: Path, tmp_path: Path) -> None:
    trainings, sweep = Trainings(), tmp_path / "sweep"
    run_sweep(sweep, candidates(corpus, "1e-5"), trainings)
    before = file_bytes(sweep)
    # Other values, and another budget.
    message = "holds a sweep with another config, other values or another budget"
    with pytest.raises(ConfigError, match=message):
        run_sweep(sweep, candidates(corpus), trainings)
    with pytest.raises(ConfigError, match=message):
        run_sweep(sweep, candidates(corpus, "1e-5"), trainings, Budget(minutes=None, steps=4))
    assert file_bytes(sweep) == before


@pytest.mark.parametrize("name", ["trials/notes.txt", f"kept.tmp.{NO_PROCESS}", "plan.json"])
def test_a_directory_with_other_files_is_refused(corpus: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("dear")
    with pytest.raises(InputError, match="exists and is not a sweep"):
        run_sweep(tmp_path, candidates(corpus), Trainings())
    assert file_bytes(tmp_path) == {name: b"dear"}


BAD_RUNGS: list[Any] = [3, ["x"], [0]]
# By candidate and step.
BAD_RESULTS: list[Any] = [
    [],
    {"1": 1},
    {"1": {"3": 1}},
    {"1": {"3": {"dev_bleu": 1}}},
    {"1": {"3": {"dev_bleu": [], "dev_nll": 1}}},
]


def test_a_damaged_file_is_refused(corpus: Path, tmp_path: Path) -> None:
    few, trainings = candidates(corpus, "1e-5"), Trainings()
    run_sweep(tmp_path, few, trainings)
    file = tmp_path / "sweep.json"
    content = json.loads(file.read_text())
    damaged = [json.dumps({**content, "rungs": rungs}) for rungs in BAD_RUNGS]
    damaged += [json.dumps({**content, "results": results}) for results in BAD_RESULTS]
    for text in ("[", "[" * 100_000, "{}", *damaged):
        file.write_text(text)
        with pytest.raises(ModelError, match=r"sweep\.json is damaged"):
            run_sweep(tmp_path, few, trainings)


def test_the_rungs_fit_the_time(corpus: Path, tmp_path: Path) -> None:
    trainings = Trainings()
    trainings.before = lambda _: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run_sweep(tmp_path, candidates(corpus), trainings, Budget(minutes=5, steps=None))
    content = (tmp_path / "sweep.json").read_text()
    first, second = json.loads(content)["rungs"]
    assert second == 2 * first > 20
