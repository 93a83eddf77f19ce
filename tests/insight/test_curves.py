"""Curves of runs."""

from pathlib import Path
from typing import Any

import pytest

from nmt.insight import curves as module
from nmt.insight.curves import read_figures
from nmt.run.directory import RunDirectory


def step(n: int, **figures: Any) -> dict[str, Any]:
    usual = {"loss": 2.0, "lr": 0.1, "grad_norm": 1.0, "n_tokens": 10, "elapsed_s": float(n)}
    return {"kind": "step", "step": n, **usual, **figures}


VALIDATION = {"kind": "validation", "step": 2, "elapsed_s": 5.0}  # its time is no time of training
THREE_STEPS = [step(1, loss=4.0, n_tokens=30), step(2, loss=0.0), VALIDATION, step(3, elapsed_s=7.0)]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "empty")
    run.create()
    return run


def test_a_run_without_steps_has_empty_curves(run: RunDirectory) -> None:
    curves, validations = read_figures(run)
    assert all(curve == [] for curve in curves.values())
    assert validations == []


def test_a_point_is_a_step_if_there_are_few(run: RunDirectory) -> None:
    run.append_metrics(*THREE_STEPS)
    curves, _ = read_figures(run)
    assert curves["step"] == [1, 2, 3]
    assert curves["loss"] == [4.0, 0.0, 2.0]
    assert curves["tokens_per_s"] == [30, 10, 5]


def test_curves_are_means_weighted_by_tokens(monkeypatch: pytest.MonkeyPatch, run: RunDirectory) -> None:
    monkeypatch.setattr(module, "MAX_POINTS", 2)
    run.append_metrics(*THREE_STEPS)
    curves, _ = read_figures(run)
    # The first point covers two steps.
    assert curves["step"] == [2, 3]
    assert curves["loss"] == [3.0, 2.0]
    assert curves["tokens_per_s"] == [20, 5]


@pytest.mark.parametrize("n_steps", [8, 9, 1001])
def test_few_points_stand_for_all_steps(monkeypatch: pytest.MonkeyPatch, run: RunDirectory, n_steps: int) -> None:
    monkeypatch.setattr(module, "MAX_POINTS", 8)
    for n in range(1, n_steps + 1):
        run.append_metrics(step(n, loss=float(n)))
    curves, _ = read_figures(run)
    lasts = curves["step"]
    assert 4 < len(lasts) <= 8
    assert lasts[-1] == n_steps
    firsts = [1, *(last + 1 for last in lasts[:-1])]
    # The loss of step n is n.
    means = []
    sizes = set()
    for first, last in zip(firsts, lasts, strict=True):
        means.append((first + last) / 2)
        if last < n_steps:
            sizes.add(last - first)
    assert curves["loss"] == means
    assert len(sizes) == 1, "all points but the last are of equally many steps"


def test_damaged_lines_and_those_of_validations_are_no_steps(run: RunDirectory) -> None:
    validation = {"kind": "validation", "step": 3, "dev_loss": 1.0, "dev_bleu": 2.0}
    # Only the first line has all figures of a step.
    incomplete = {"kind": "step", "step": 2, "grad_norm": 1.0}
    damaged = step(3, loss="x")
    run.append_metrics(step(1), incomplete, damaged, validation)
    curves, validations = read_figures(run)
    assert curves["step"] == [1]
    assert validations == [validation]
