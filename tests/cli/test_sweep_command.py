"""`nmt sweep`: its table and files; with NMT_SOAK=1 the real command, killed and resumed."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import SOAK, FiveCorpus, err_lines, one_clear_error, out_lines, run_nmt, started_nmt, wait_until

from nmt.cli.sweep import split_values
from nmt.config import load_config
from nmt.train.halving import Standing
from nmt.train.sweep import Sweep

ARGUMENTS = ["train.lr=1e-2,1e-5", "--steps", 3]
SMALL = ["model.d_model=16", "train.validate_every=2", "train.report=false"]


def test_a_table_and_the_winner_s_config(five_corpus: FiveCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    good, better = {"dev_bleu": 10.0, "dev_nll": 2.0}, {"dev_bleu": 20.0, "dev_nll": 1.5}
    standings = [
        Standing(2, {"train.lr": "1e-5"}, 6, {3: good, 6: better}, "runs/b"),
        Standing(1, {"train.lr": "1e-2"}, 3, {3: None}, "runs/a"),
    ]
    monkeypatch.setattr(Sweep, "run", lambda _: standings)
    directory = five_corpus.home / os.fsdecode(b"a\nrun: b\xff")  # goes into a comment of the config
    directory.mkdir()
    done = run_nmt("sweep", five_corpus.config, *ARGUMENTS, "-o", directory)
    table = [line.split() for line in out_lines(done)]
    assert table[1] == ["1", "1e-5", "6", "20.00", "1.500", "runs/b"]
    assert table[2][:4] == ["2", "1e-2", "3", "diverged"]
    (line,) = err_lines(done)
    assert line.endswith(r"a\nrun: b\udcff/winner.yaml")
    winner = load_config(directory / "winner.yaml")
    assert (winner.train.lr, winner.run) == (1e-5, str(five_corpus.run))


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["train.lr=1e-3,2e-3"], "needs --minutes or --steps"),
        (["train.lr=1e-3,2e-3", "--steps", 3, "--minutes", 3], "needs --minutes or --steps"),
        (["train.lr=1e-3,2e-3", "--minutes", "inf"], "is not in the range 0<x<10000000"),
        (["train.lr", "--steps", 3], "'train.lr' is not KEY=VALUE,VALUE"),
        (["seed=1,2", "--steps", 3], "seed is no setting to choose"),
        (["train.max_steps=1,2", "--steps", 3], "train.max_steps cannot be varied"),
        (["train.lr=1e-3,-1", "--steps", 3], "'train.lr'"),
        (["train.lrr=1,2", "--steps", 3], "unknown key 'train.lrr'"),
        ([f"train.warmup={','.join(map(str, range(1, 1102)))}", "--steps", 3], "1,101 candidates are too many"),
    ],
)
def test_wrong_arguments_are_refused(five_corpus: FiveCorpus, arguments: list[object], fragment: str) -> None:
    one_clear_error(run_nmt("sweep", five_corpus.config, *arguments, cwd=five_corpus.home), 2, fragment)
    assert not (five_corpus.home / "runs").exists()


def test_values_are_separated_by_commas_outside_of_brackets() -> None:
    assert split_values("1e-3,2e-3") == ["1e-3", "2e-3"]
    assert split_values("[a,b],c") == ["[a,b]", "c"]
    assert split_values("a,a,b") == ["a", "b"]
    assert split_values("") == [""]


def sweep(corpus: FiveCorpus, directory: Path) -> list[object]:
    return ["sweep", corpus.config, *SMALL, *ARGUMENTS, "--threads", 1, "-o", directory]


def result(corpus: FiveCorpus, directory: Path) -> tuple[list[str], Any]:
    """The winner's settings, and the figures of each trial by its steps."""
    (winner,) = [line.split()[1:3] for line in out_lines(run_nmt(*sweep(corpus, directory))) if line.startswith("1 ")]
    return winner, json.loads((directory / "sweep.json").read_text())["results"]


@pytest.mark.skipif(not SOAK, reason="starts several trainings: NMT_SOAK=1")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_a_stopped_sweep_resumes_the_same(five_corpus: FiveCorpus, tmp_path: Path, number: int, code: int) -> None:
    expected, directory = result(five_corpus, tmp_path / "unbroken"), tmp_path / "sweep"
    assert {name: [*figures] for name, figures in expected[1].items()} == {"1": ["3", "6"], "2": ["3"]}
    with started_nmt(*sweep(five_corpus, directory), cwd=five_corpus.home, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: list(directory.glob("trials/*/checkpoints/step-*.safetensors")), running=process)
        os.kill(process.pid, number)
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert process.wait() == code, said
    assert "Traceback" not in said
    assert number == signal.SIGKILL or "hint: the same command goes on from here" in said
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    assert number == signal.SIGKILL or f"{directory}/trials/" not in listed
    assert result(five_corpus, directory) == expected
