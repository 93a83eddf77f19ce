"""`nmt sweep`: the real command, killed and resumed."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import FiveCorpus, one_clear_error, out_lines, run_nmt, started_nmt
from reliability.conftest import soak

from nmt.cli.sweep import split_values
from nmt.config import load_config

ARGUMENTS = ["train.lr=1e-2,1e-5", "--steps", 3, "--json", "--threads", 1]
SMALL = ["model.d_model=16", "train.validate_every=2", "train.report=false"]


def sweep(corpus: FiveCorpus, directory: Path) -> list[object]:
    return ["sweep", corpus.config, *SMALL, *ARGUMENTS, "-o", directory]


def result(done: subprocess.CompletedProcess[bytes]) -> list[tuple[int, int, dict[str, object]]]:
    standings = json.loads(out_lines(done)[0])["standings"]
    return [(one["number"], one["steps"], one["figures"]) for one in standings]


def orphans(directory: Path) -> list[int]:
    """Processes that train below a directory."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if f"{directory}/trials/" in line]


def test_a_sweep_killed_at_random_moments_resumes_to_the_same_table(five_corpus: FiveCorpus, tmp_path: Path) -> None:
    start = time.monotonic()
    expected = result(run_nmt(*sweep(five_corpus, tmp_path / "unbroken"), timeout=600))
    seconds = time.monotonic() - start
    assert [(number, steps) for number, steps, _ in expected] == [(1, 6), (2, 3)]
    draw, n_kills, n_sweeps = random.Random(1), 0, 0
    while n_kills < soak(1, 40):
        directory, done = tmp_path / f"sweep{n_sweeps}", False
        while not done and n_kills < soak(1, 40):
            with started_nmt(*sweep(five_corpus, directory), cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
                moment = start_of_training(directory, process) if n_kills == 0 else draw.uniform(0, seconds)
                try:
                    done = process.wait(moment) == 0
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    n_kills += 1
        resumed = run_nmt(*sweep(five_corpus, directory), timeout=600)
        assert result(resumed) == expected
        assert orphans(directory) == []
        n_sweeps += 1
    winner = load_config(tmp_path / "sweep0" / "winner.yaml")
    assert winner.train.lr == 1e-2
    assert winner.run == str(five_corpus.run)
    assert (tmp_path / "sweep0" / "chart.svg").read_text().startswith("<svg")


def start_of_training(directory: Path, process: subprocess.Popen[bytes]) -> float:
    """Wait until a training has written a checkpoint; returns 0, the time to wait from there."""
    while not list(directory.glob("trials/*/checkpoints/step-*.safetensors")):
        assert process.poll() is None
        time.sleep(0.01)
    return 0.0


def test_a_signal_ends_the_training_too_and_all_is_saved(five_corpus: FiveCorpus, tmp_path: Path) -> None:
    directory = tmp_path / "sweep"
    arguments = [*sweep(five_corpus, directory)[:-2], "--seeds", 2, "-o", directory]
    with started_nmt(*arguments, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        start_of_training(directory, process)
        os.kill(process.pid, signal.SIGTERM)
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert process.wait() == 143, said
    assert "the same command goes on from here" in said
    assert "Traceback" not in said
    assert orphans(directory) == []
    assert (directory / "plan.json").exists()


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
