"""A sweep whose trainings run in this process: what it chooses, resumes, shares and refuses."""

import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from conftest import NO_PROCESS, file_bytes
from small_run import config_of, write_small_corpus

from nmt.cli.run_log import kept_log
from nmt.config import load_config
from nmt.errors import ConfigError, DataError, DivergedError, InputError, ModelError, NmtError, OutputError
from nmt.run.directory import RunDirectory
from nmt.text import tokenizer
from nmt.train import session
from nmt.train import sweep as module
from nmt.train.halving import Budget, Candidate, Standing
from nmt.train.sweep import Sweep, best_figures

RATES = ("1e-5", "1e-2")
BUDGET = Budget(minutes=None, steps=3)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_corpus(tmp_path_factory.mktemp("corpus"))


def candidates(corpus: Path, values: Sequence[str] = RATES, **changes: Any) -> list[Candidate]:
    changes = {"train__metric": "loss", "train__report": False, **changes}
    return [Candidate({"train.lr": lr}, config_of(corpus, train__lr=float(lr), **changes)) for lr in values]


class Trainings:
    """Replaces the `nmt train` subprocess: trains in this process."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, str]] = []  # name of the run, and its train.max_steps=N
        self.before: Callable[[int], object] = int  # called before each training, with its index from 0
        self.after: Callable[[int], object] = int  # called after it
        self.diverging: set[float] = set()  # learning rates of trainings that diverge

    def __call__(self, command: Sequence[str], messages: BinaryIO) -> int:
        file, limit = Path(command[4]), command[5]
        number = len(self.commands)
        self.before(number)
        self.commands.append((file.parent.name, limit))
        try:
            config = load_config(file, [limit])
            with kept_log(RunDirectory(config.run).log_file) as open_log:
                prepared = session.prepare(config, device="cpu")
                prepared.on_start = open_log
                session.train(prepared, quiet=True)
                if config.train.lr in self.diverging:
                    raise DivergedError("the loss is nan")
        except NmtError as error:
            messages.write(f"nmt: error: {error}\n".encode())
            return error.exit_code
        self.after(number)
        return 0


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    found = Trainings()
    replace_trainings(monkeypatch, found)
    return found


def replace_trainings(patch: pytest.MonkeyPatch, found: Trainings) -> None:
    patch.setattr(Sweep, "_run_to_its_end", lambda _, command, messages: found(command, messages))


def kill(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Standing]:
    """The standings of a sweep that is not interrupted."""
    with pytest.MonkeyPatch.context() as patch:
        found = Trainings()
        replace_trainings(patch, found)
        directory = tmp_path_factory.mktemp("unbroken") / "sweep"
        _, standings = Sweep(directory, candidates(corpus), BUDGET, "cpu").run()
    assert found.commands == [(str(c), "train.max_steps=3") for c in (1, 2)] + [
        (str(standings[0].number), "train.max_steps=6")
    ]
    return standings


def figures_of(standings: Sequence[Standing]) -> list[Any]:
    return [(one.number, one.steps, one.figures) for one in standings]


def test_the_better_ones_train_on_and_the_best_wins(expected: list[Standing]) -> None:
    assert [standing.steps for standing in expected] == [6, 3]
    assert expected[0].settings["train.lr"] == "1e-2", "the lowest rate learns nothing in three steps"
    assert expected[-1].settings["train.lr"] == "1e-5"
    run = RunDirectory(expected[0].runs[0])
    first, last = (best_figures(run, steps, "loss") for steps in (3, 6))
    assert expected[0].figures == {
        steps: {key: found[key] for key in ("dev_bleu", "dev_nll")} for steps, found in ((3, first), (6, last))
    }
    assert last["dev_nll"] < first["dev_nll"]
    assert run.newest_step() == 6


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [0, 2])
def test_killed_around_any_training_it_resumes_to_the_same_results(
    corpus: Path, tmp_path: Path, trainings: Trainings, expected: list[Standing], moment: str, number: int
) -> None:
    """A kill after a training comes before its figures are saved."""

    def killed(n: int) -> None:
        if n == number:
            kill()

    setattr(trainings, moment, killed)
    with pytest.raises(KeyboardInterrupt):
        Sweep(tmp_path / "sweep", candidates(corpus), BUDGET, "cpu").run()
    trainings.before = trainings.after = int
    (tmp_path / "sweep" / "sweep").unlink()  # earlier versions did not write it
    _, standings = Sweep(tmp_path / "sweep", candidates(corpus), BUDGET, "cpu").run()
    assert figures_of(standings) == figures_of(expected)
    n_trainings = len(trainings.commands)
    assert n_trainings <= 4
    _, again = Sweep(tmp_path / "sweep", candidates(corpus), BUDGET, "cpu").run()
    assert figures_of(again) == figures_of(expected)
    assert len(trainings.commands) == n_trainings, "a finished sweep trains no more"


def test_killed_in_its_planning_it_plans_anew(
    corpus: Path, tmp_path: Path, trainings: Trainings, expected: list[Standing], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Sweep, "_rungs", kill)
        with pytest.raises(KeyboardInterrupt):
            Sweep(tmp_path / "sweep", candidates(corpus, tokenizer__vocab_size=320), BUDGET, "cpu").run()
    assert (tmp_path / "sweep" / "trials" / "1" / "tokenizer.model").exists()
    (tmp_path / "sweep" / f"plan.json.tmp.{NO_PROCESS}").write_text("{")
    _, standings = Sweep(tmp_path / "sweep", candidates(corpus), BUDGET, "cpu").run()
    assert not list((tmp_path / "sweep").glob("*.tmp.*"))
    assert figures_of(standings) == figures_of(expected), "the tokenizer is not that of the other plan"


def test_the_tokenizer_is_trained_once_and_seeds_count_together(
    corpus: Path, tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []

    def train_tokenizer(*args: Any) -> Any:
        trained.append(args)
        return tokenizer.train_tokenizer(*args)

    monkeypatch.setattr("nmt.train.preparation.train_tokenizer", train_tokenizer)
    budget = Budget(minutes=None, steps=2, n_seeds=2)
    rungs, standings = Sweep(tmp_path / "sweep", candidates(corpus), budget, "cpu").run()
    assert len(trained) == 1
    assert rungs == [2, 4]
    files = sorted((tmp_path / "sweep" / "trials").glob("*/tokenizer.model"))
    assert [file.parent.name for file in files] == ["1", "1-2", "2", "2-2"]
    assert len({file.read_bytes() for file in files}) == 1
    results = json.loads((tmp_path / "sweep" / "results.json").read_text())
    losses = [results[name]["2"]["dev_nll"] for name in ("1", "1-2")]
    assert losses[0] != losses[1]
    of_first = next(one for one in standings if one.number == 1)
    assert of_first.figures[2] is not None
    assert of_first.figures[2]["dev_nll"] == pytest.approx(sum(losses) / 2)
    assert [RunDirectory(run).read_config().seed for run in of_first.runs] == [1, 2]


def test_tokenizer_settings_can_be_varied(corpus: Path, tmp_path: Path, trainings: Trainings) -> None:
    sizes = ("320", "340")
    found = [
        Candidate({"tokenizer.vocab_size": size}, config_of(corpus, tokenizer__vocab_size=int(size))) for size in sizes
    ]
    Sweep(tmp_path / "sweep", found, Budget(minutes=None, steps=2), "cpu").run()
    models = [(tmp_path / "sweep" / "trials" / name / "tokenizer.model").read_bytes() for name in ("1", "2")]
    assert models[0] != models[1]


def test_one_that_diverges_is_left_out_and_if_all_do_it_is_an_error(
    corpus: Path, tmp_path: Path, trainings: Trainings
) -> None:
    trainings.diverging = {1e-2}
    _, standings = Sweep(tmp_path / "sweep", candidates(corpus, (*RATES, "3e-3")), BUDGET, "cpu").run()
    assert [(one.number, one.steps) for one in standings] == [(3, 6), (1, 3), (2, 3)]
    assert standings[-1].figures == {3: None}
    trainings.diverging = {1e-5}
    with pytest.raises(DivergedError, match="all trainings of rung 1 diverged"):
        Sweep(tmp_path / "all", candidates(corpus, RATES[:1]), BUDGET, "cpu").run()


def test_another_failure_ends_the_sweep_and_is_tried_again(
    corpus: Path, tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch, expected: list[Standing]
) -> None:
    prepare, n_plans = session.prepare, []

    def failing(*args: Any, **options: Any) -> Any:
        n_plans.append(1)
        if len(n_plans) == 4:  # the second training, after two calls from the plan
            raise error
        return prepare(*args, **options)

    for error, kind in ((OutputError("the disk is full"), NmtError), (DataError("no such file"), InputError)):
        n_plans.clear()
        with monkeypatch.context() as patch:
            patch.setattr(session, "prepare", failing)
            with pytest.raises(kind, match=rf"trials/2 failed: {error}"):
                Sweep(tmp_path / kind.__name__, candidates(corpus), BUDGET, "cpu").run()
        _, standings = Sweep(tmp_path / kind.__name__, candidates(corpus), BUDGET, "cpu").run()
        assert figures_of(standings) == figures_of(expected)


def test_another_sweep_or_another_directory_is_refused(corpus: Path, tmp_path: Path, trainings: Trainings) -> None:
    few = candidates(corpus, RATES[:1])
    Sweep(tmp_path / "sweep", few, BUDGET, "cpu").run()
    before = file_bytes(tmp_path / "sweep")
    for other, budget in ((candidates(corpus), BUDGET), (few, Budget(minutes=None, steps=4))):
        with pytest.raises(ConfigError, match="holds a sweep with another config, other values or another budget"):
            Sweep(tmp_path / "sweep", other, budget, "cpu").run()
    assert file_bytes(tmp_path / "sweep") == before
    (tmp_path / "mine" / "trials").mkdir(parents=True)
    (tmp_path / "mine" / "trials" / "notes.txt").write_text("dear")
    with pytest.raises(InputError, match="exists and is not a sweep"):
        Sweep(tmp_path / "mine", few, BUDGET, "cpu").run()
    assert file_bytes(tmp_path / "mine") == {"trials/notes.txt": b"dear"}
    for name, content in product(("results.json", "plan.json"), ("[", "[" * 100_000)):
        before_damage = (tmp_path / "sweep" / name).read_text()
        (tmp_path / "sweep" / name).write_text(content)
        with pytest.raises(ModelError, match=f"{name} is damaged"):
            Sweep(tmp_path / "sweep", few, BUDGET, "cpu").run()
        (tmp_path / "sweep" / name).write_text(before_damage)


@pytest.mark.parametrize(
    "files",
    [
        {"trials/mine/config.yaml": "run: mine"},
        {"lock": "", "trials/1/config.yaml": "", "trials/1/tokenizer.model": ""},
        {"sweep": "of the floor"},
        {"sweep": "made by nmt sweep\n", "trials/mine/config.yaml": ""},
        {"plan.json": '{"rungs": [1]}', f"kept.tmp.{NO_PROCESS}": "", "trials/1/config.yaml": ""},
    ],
    ids=lambda files: "+".join(files),
)
def test_files_that_are_named_like_those_of_a_sweep_are_refused_and_kept(
    corpus: Path, tmp_path: Path, files: dict[str, str]
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match="exists and is not a sweep"):
        Sweep(tmp_path, candidates(corpus), BUDGET, "cpu").run()
    assert file_bytes(tmp_path) == {name: content.encode() for name, content in files.items()}


def test_the_plan_fits_the_time(
    corpus: Path, tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_S", 0.0)
    with pytest.raises(ConfigError, match="are too short for 2 candidates"):
        Sweep(tmp_path / "sweep", candidates(corpus), Budget(minutes=1e-6, steps=None), "cpu").run()
    assert not (tmp_path / "sweep" / "plan.json").exists()
    trainings.before = kill
    with pytest.raises(KeyboardInterrupt):
        Sweep(tmp_path / "sweep", candidates(corpus), Budget(minutes=5, steps=None), "cpu").run()
    plan = json.loads((tmp_path / "sweep" / "plan.json").read_text())
    assert plan["rungs"][1] == 2 * plan["rungs"][0]
    assert plan["rungs"][0] > 10
