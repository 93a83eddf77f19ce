"""`nmt sweep`: its table and files; with NMT_SOAK=1 the real command, killed and resumed."""

import json
import os
import signal
import subprocess
from typing import Any

import pytest
from conftest import SOAK, FiveCorpus, err_lines, out_lines, refused, run_in, run_nmt, started_nmt, wait_until

from nmt.cli.sweep import split_values
from nmt.config import load_config
from nmt.train.halving import Standing
from nmt.train.sweep import Sweep

FIGURES = {"dev_bleu": 20.0, "dev_nll": 1.5}
STANDINGS = [
    Standing(2, {"train.lr": "1e-5"}, 6, {6: FIGURES}, "runs/b"),
    Standing(1, {"train.lr": "1e-2"}, 3, {3: None}, "runs/a"),
]


def test_a_table_and_the_winner_s_config(five_corpus: FiveCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sweep, "run", lambda _: STANDINGS)
    directory = five_corpus.home / os.fsdecode(b"a\nrun: b\xff")  # goes into a comment of the config
    directory.mkdir()
    done = run_nmt("sweep", five_corpus.config, "train.lr=1e-2,1e-5", "--steps", 3, "-o", directory)
    _, first, second = out_lines(done)
    assert first.split() == ["1", "1e-5", "6", "20.00", "1.500", "runs/b"]
    assert second.split() == ["2", "1e-2", "3", "diverged", "runs/a"]
    (line,) = err_lines(done)
    assert line.endswith(r"a\nrun: b\udcff/winner.yaml")
    # The comment has not become a setting.
    winner = load_config(directory / "winner.yaml")
    assert winner.train.lr == 1e-5
    assert winner.run == str(five_corpus.run)


MANY = ",".join(map(str, range(1, 1102)))
UNSUITABLE = {  # arguments -> part of the error message
    "train.lr=1e-3,2e-3": "needs --minutes or --steps",
    "train.lr=1e-3,2e-3 --steps 3 --minutes 3": "needs --minutes or --steps",
    "train.lr=1e-3,2e-3 --minutes inf": "is not in the range 0<x<10000000",
    "train.lr --steps 3": "'train.lr' is not KEY=VALUE,VALUE",
    "seed=1,2 --steps 3": "seed is no setting to choose",
    "train.max_steps=1,2 --steps 3": "train.max_steps cannot be varied",
    "train.lr=1e-3,-1 --steps 3": "'train.lr'",
    "train.lrr=1,2 --steps 3": "unknown key 'train.lrr'",
    f"train.warmup={MANY} --steps 3": "1,101 candidates are too many",
}


@pytest.mark.parametrize("arguments", UNSUITABLE, ids=UNSUITABLE.get)
def test_wrong_arguments_are_refused(five_corpus: FiveCorpus, arguments: str) -> None:
    refused(five_corpus.home, f"sweep five.yaml {arguments}", UNSUITABLE[arguments])
    assert not (five_corpus.home / "runs").exists()


def test_values_are_separated_by_commas_outside_of_brackets() -> None:
    assert split_values("1e-3,2e-3") == ["1e-3", "2e-3"]
    assert split_values("[a,b],c") == ["[a,b]", "c"]
    assert split_values("a,a,b") == ["a", "b"]
    assert split_values("") == [""]


SWEEP = (
    "sweep five.yaml model.d_model=16 train.validate_every=2 train.report=false train.lr=1e-2,1e-5 --steps 3 "
    "--threads 1 -o"
)


def result(corpus: FiveCorpus, directory: str) -> tuple[list[str], Any]:
    """Run or resume a sweep; return the winner, and the figures of each trial by its steps."""
    done = run_in(corpus.home, f"{SWEEP} {directory}")
    _, first, *_ = out_lines(done)
    _, *winner, _, _, _ = first.split()
    file = corpus.home / directory / "sweep.json"
    return winner, json.loads(file.read_text())["results"]


CODES: dict[int, int] = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}


@pytest.mark.skipif(not SOAK, reason="starts several trainings: NMT_SOAK=1")
@pytest.mark.parametrize("number", CODES)
def test_a_stopped_sweep_resumes_the_same(five_corpus: FiveCorpus, number: int) -> None:
    winner, figures = result(five_corpus, "unbroken")
    assert list(figures["1"]) == ["3", "6"]
    assert list(figures["2"]) == ["3"]
    directory = five_corpus.home / "stopped"
    with started_nmt(*SWEEP.split(), "stopped", cwd=five_corpus.home, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: list(directory.glob("trials/*/checkpoints/step-*.safetensors")), running=process)
        os.kill(process.pid, number)
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert process.wait() == CODES[number], said
    assert "Traceback" not in said
    # A process that is killed can say nothing, and its children end a little later.
    if number != signal.SIGKILL:
        assert "hint: the same command goes on from here" in said
        listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
        assert f"{directory}/trials/" not in listed
    assert result(five_corpus, "stopped") == (winner, figures)
