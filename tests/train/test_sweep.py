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


def candidates(corpus: Path, values: Sequence[str] = RATES, **changes: Any) -> list[Candidate]:
    changes = {"train__metric": "loss", **changes}
    return [Candidate({"train.lr": lr}, config_of(corpus, train__lr=float(lr), **changes)) for lr in values]


class Trainings:
    """Trains as `nmt train` does, and can be killed."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int | None]] = []  # name of the run, and its train.max_steps
        self.before: Callable[[int], object] = int  # called before each training, with its index from 0
        self.after: Callable[[int], object] = int  # called after it
        self.diverging: set[float] = set()  # learning rates of trainings that diverge

    def __call__(self, config: Config) -> None:
        number = len(self.done)
        self.before(number)
        self.done.append((Path(config.run).name, config.train.max_steps))
        run_training(config)
        if config.train.lr in self.diverging:
            raise DivergedError("the loss is nan")
        self.after(number)


def kill(*_: object) -> None:
    raise KeyboardInterrupt


def figures_of(standings: Sequence[Standing]) -> list[Any]:
    return [(one.number, one.steps, one.figures) for one in standings]


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Standing]:
    found = Trainings()
    standings = Sweep(tmp_path_factory.mktemp("unbroken") / "sweep", candidates(corpus), BUDGET, found, "cpu").run()
    assert found.done == [("1", 3), ("2", 3), (str(standings[0].number), 6)]
    return standings


def test_the_better_ones_train_on_and_the_best_wins(expected: list[Standing]) -> None:
    assert [standing.steps for standing in expected] == [6, 3]
    assert expected[0].settings["train.lr"] == "1e-2", "the lowest rate learns nothing in three steps"
    assert expected[-1].settings["train.lr"] == "1e-5"
    run = RunDirectory(expected[0].run)
    first, last = (best_figures(run, steps, "loss") for steps in (3, 6))
    assert expected[0].figures == {3: first, 6: last}
    assert last["dev_nll"] < first["dev_nll"]
    assert run.newest_step() == 6


def test_a_trial_without_figures_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"metrics\.jsonl has no validation"):
        best_figures(RunDirectory(tmp_path), 3, "bleu")


@pytest.mark.parametrize(("moment", "number"), [("after", 0), ("before", 2)])
def test_killed_it_resumes(corpus: Path, tmp_path: Path, expected: list[Standing], moment: str, number: int) -> None:
    """A kill after a training comes before its figures are saved."""
    trainings = Trainings()
    sweep = tmp_path / "sweep"
    setattr(trainings, moment, lambda n: kill() if n == number else None)
    with pytest.raises(KeyboardInterrupt):
        Sweep(sweep, candidates(corpus), BUDGET, trainings, "cpu").run()
    trainings.before = trainings.after = int
    (sweep / f"sweep.json.tmp.{NO_PROCESS}").write_text("{")
    assert figures_of(Sweep(sweep, candidates(corpus), BUDGET, trainings, "cpu").run()) == figures_of(expected)
    assert not list(sweep.glob("*.tmp.*"))
    n_trainings = len(trainings.done)
    assert n_trainings <= 4
    assert figures_of(Sweep(sweep, candidates(corpus), BUDGET, trainings, "cpu").run()) == figures_of(expected)
    assert len(trainings.done) == n_trainings, "a finished sweep trains no more"


def test_one_that_diverges_is_left_out_and_if_all_do_it_is_an_error(corpus: Path, tmp_path: Path) -> None:
    trainings = Trainings()
    trainings.diverging = {1e-2}
    standings = Sweep(tmp_path / "sweep", candidates(corpus, (*RATES, "3e-3")), BUDGET, trainings, "cpu").run()
    assert [(one.number, one.steps) for one in standings] == [(3, 6), (1, 3), (2, 3)]
    assert standings[-1].figures == {3: None}
    trainings.diverging = {1e-5}
    with pytest.raises(DivergedError, match="all trainings of rung 1 diverged"):
        Sweep(tmp_path / "all", candidates(corpus, RATES[:1]), BUDGET, trainings, "cpu").run()


def test_another_sweep_another_directory_and_a_damaged_file_are_refused(corpus: Path, tmp_path: Path) -> None:
    few, trainings = candidates(corpus, RATES[:1]), Trainings()
    sweep = tmp_path / "sweep"
    Sweep(sweep, few, BUDGET, trainings, "cpu").run()
    before = file_bytes(sweep)
    for other, budget in ((candidates(corpus), BUDGET), (few, Budget(minutes=None, steps=4))):
        with pytest.raises(ConfigError, match="holds a sweep with another config, other values or another budget"):
            Sweep(sweep, other, budget, trainings, "cpu").run()
    assert file_bytes(sweep) == before
    for name in ("trials/notes.txt", f"kept.tmp.{NO_PROCESS}", "plan.json"):
        file = tmp_path / name.replace("/", "-") / name
        file.parent.mkdir(parents=True)
        file.write_text("dear")
        with pytest.raises(InputError, match="exists and is not a sweep"):
            Sweep(tmp_path / name.replace("/", "-"), few, BUDGET, trainings, "cpu").run()
        assert file_bytes(tmp_path / name.replace("/", "-")) == {name: b"dear"}
    good = json.loads((sweep / "sweep.json").read_text())
    wrong: list[dict[str, Any]] = [{"rungs": 3}, {"rungs": ["x"]}, {"rungs": [0]}, {"results": []}]
    damaged: list[Any] = [1, {"3": 1}, {"3": {"dev_bleu": 1}}, {"3": {"dev_bleu": [], "dev_nll": 1}}]
    wrong += [{"results": {"1": figures}} for figures in damaged]
    for content in ("[", "[" * 100_000, "{}", *(json.dumps(good | one) for one in wrong)):
        (sweep / "sweep.json").write_text(content)
        with pytest.raises(ModelError, match=r"sweep\.json is damaged"):
            Sweep(sweep, few, BUDGET, trainings, "cpu").run()


def test_the_rungs_fit_the_time(corpus: Path, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, candidates(corpus), Budget(minutes=5, steps=None), kill, "cpu")
    with pytest.raises(KeyboardInterrupt):
        sweep.run()
    assert json.loads((tmp_path / "sweep.json").read_text())["rungs"] == sweep.state.rungs
    assert sweep.state.rungs[1] == 2 * sweep.state.rungs[0] > 20
