"""Curves of runs."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from nmt.insight import curves as module
from nmt.insight.curves import read_figures
from nmt.run.directory import RunDirectory


def step(n: int, **figures: Any) -> dict[str, Any]:
    figures = {"loss": 2.0, "nll": 1.0, "lr": 0.1, "grad_norm": 1.0, "n_tokens": 10, "elapsed_s": float(n), **figures}
    return {"kind": "step", "step": n, "n_real": 18, "n_positions": 20, **figures}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "empty")
    run.create()
    return run


def test_curves_are_means_weighted_by_tokens(monkeypatch: pytest.MonkeyPatch, run: RunDirectory) -> None:
    assert set(map(tuple, read_figures(run)[0].values())) == {()}
    lines = [step(1, loss=4.0, n_tokens=30), step(2, loss=0.0), step(3, elapsed_s=4.0)]
    run.append_metrics(*lines)
    found, _ = read_figures(run)
    assert (found["step"], found["loss"], found["tokens_per_s"]) == ([1, 2, 3], [4.0, 0.0, 2.0], [30, 10, 5])
    assert found["non_padding"] == [0.9] * 3
    monkeypatch.setattr(module, "MAX_POINTS", 2)
    found, _ = read_figures(run)
    assert (found["step"], found["loss"], found["tokens_per_s"]) == ([2, 3], [3.0, 2.0], [20, 5])


@pytest.mark.parametrize("n_steps", [8, 9, 1001])
def test_few_points_stand_for_all_steps(monkeypatch: pytest.MonkeyPatch, run: RunDirectory, n_steps: int) -> None:
    monkeypatch.setattr(module, "MAX_POINTS", 8)
    run.append_metrics(*(step(n, loss=float(n)) for n in range(1, n_steps + 1)))
    found, _ = read_figures(run)
    assert 4 < len(found["step"]) <= 8
    ends: list[Any] = [0, *found["step"]]
    assert ends[-1] == n_steps
    assert found["loss"] == [(first + last + 1) / 2 for first, last in itertools.pairwise(ends)], "means of all steps"
    assert len({last - first for first, last in itertools.pairwise(ends[:-1])}) == 1, "of equally many steps"


def test_damaged_lines_and_those_of_validations_are_no_steps(run: RunDirectory) -> None:
    validation = {"kind": "validation", "step": 3, "dev_loss": 1.0, "dev_bleu": 2.0}
    run.append_metrics(step(1), {"kind": "step", "step": 2, "grad_norm": 1.0}, step(3, loss="x"), validation)
    assert [found["step"] for found in read_figures(run)[1]] == [3]
    assert read_figures(run)[0]["step"] == [1]
