"""`nmt sweep`: the real command, killed and resumed."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import FiveCorpus, one_clear_error, out_lines, run_nmt, started_nmt
from reliability.conftest import SOAK

from nmt.cli.sweep import split_values
from nmt.config import load_config

RATES = "train.lr=1e-2,1e-5"
ARGUMENTS = [RATES, "--steps", 3, "--json", "--threads", 1]
N_KILLS = int(os.environ.get("NMT_SWEEP_KILLS", "40"))
SMALL = ["model.d_model=16", "train.validate_every=2", "train.report=false"]


def sweep(corpus: FiveCorpus, directory: Path) -> list[object]:
    return ["sweep", corpus.config, *SMALL, *ARGUMENTS, "-o", directory]


def result(done: subprocess.CompletedProcess[bytes]) -> list[Any]:
    standings = json.loads(out_lines(done)[0])["standings"]
    return [(one["number"], one["steps"], one["figures"]) for one in standings]


def expected_of(corpus: FiveCorpus) -> list[Any]:
    """Return the result of an uninterrupted sweep."""
    found = result(run_nmt(*sweep(corpus, corpus.home / "unbroken")))
    assert [(number, steps) for number, steps, _ in found] == [(1, 6), (2, 3)]
    return found


def orphans(directory: Path) -> list[str]:
    """Return the training processes of a sweep that are still running."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if f"{directory}/trials/" in line]


def stop(corpus: FiveCorpus, directory: Path, number: int) -> tuple[int, str]:
    """Send a signal to a sweep after its first checkpoint; return its exit code and stderr."""
    with started_nmt(*sweep(corpus, directory), cwd=corpus.home, stdout=subprocess.DEVNULL) as process:
        while not list(directory.glob("trials/*/checkpoints/step-*.safetensors")):
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, number)
        assert process.stderr is not None
        said = process.stderr.read().decode()
        return process.wait(), said


def test_a_sweep_killed_in_a_training_resumes_to_the_same_table(five_corpus: FiveCorpus, tmp_path: Path) -> None:
    expected, directory = expected_of(five_corpus), tmp_path / "sweep"
    assert stop(five_corpus, directory, signal.SIGKILL)[0] == -signal.SIGKILL
    assert result(run_nmt(*sweep(five_corpus, directory))) == expected
    assert orphans(directory) == []
    winner = load_config(directory / "winner.yaml")
    assert winner.train.lr == 1e-2
    assert winner.run == str(five_corpus.run)


@pytest.mark.skipif(not SOAK, reason="starts several trainings")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_training_too(five_corpus: FiveCorpus, tmp_path: Path, number: int, code: int) -> None:
    found, said = stop(five_corpus, tmp_path / "sweep", number)
    assert found == code, said
    assert "hint: the same command goes on from here" in said
    assert "Traceback" not in said
    assert orphans(tmp_path / "sweep") == []


@pytest.mark.skipif(not SOAK, reason="dozens of sweeps take an hour")
def test_a_sweep_killed_at_random_moments_resumes_to_the_same_table(five_corpus: FiveCorpus, tmp_path: Path) -> None:
    start = time.monotonic()
    expected = expected_of(five_corpus)
    seconds, draw, n_kills, n_sweeps = time.monotonic() - start, random.Random(1), 0, 0
    while n_kills < N_KILLS:
        directory, done = tmp_path / f"sweep{n_sweeps}", False
        while not done and n_kills < N_KILLS:
            with started_nmt(*sweep(five_corpus, directory), cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
                try:
                    done = process.wait(draw.uniform(0, seconds)) == 0
                except subprocess.TimeoutExpired:
                    process.kill()
                    n_kills += 1
        assert result(run_nmt(*sweep(five_corpus, directory))) == expected
        n_sweeps += 1


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["train.lr=1e-3,2e-3"], "needs --minutes or --steps"),
        (["train.lr=1e-3,2e-3", "--steps", 3, "--minutes", 3], "needs --minutes or --steps"),
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
