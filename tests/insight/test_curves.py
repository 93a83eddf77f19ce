"""Curves of runs: points and text."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from conftest import FiveRun

from nmt.errors import InputError
from nmt.insight import curves as module
from nmt.insight.curves import TEXT_WIDTH, Chart, Series, as_text, charts_of, read_figures
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
def test_long_curves_have_few_points_that_stand_for_all_steps(
    monkeypatch: pytest.MonkeyPatch, run: RunDirectory, n_steps: int
) -> None:
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


def test_charts_hold_the_figures_of_the_run(five_run: FiveRun) -> None:
    charts = {chart.metric: chart for chart in charts_of([five_run.run, five_run.run])}
    lines = RunDirectory(five_run.run).read_metrics()
    bleu = [(line["step"], line["dev_bleu"]) for line in lines if "dev_bleu" in line]
    assert [one.points for one in charts["dev_bleu"].series] == [bleu, bleu]
    assert [x for x, _ in charts["loss"].series[0].points] == list(range(1, 201))


def test_an_unknown_metric_and_a_run_without_figures_are_refused(five_run: FiveRun, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no metric 'bleu'"):
        charts_of([five_run.run], ["bleu"])
    run = five_run.copy_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text('{"step": 1, "dev_bleu": NaN}\n[\n"step"\n')
    with pytest.raises(InputError, match="no figures yet"):
        charts_of([run])


def chart(*series: Series, metric: str = "dev_bleu") -> Chart:
    return Chart(metric, "Dev BLEU", "0 to 100", list(series))


def test_a_text_chart_fits_the_terminal_and_rises_where_the_curve_rises() -> None:
    rising, falling = Series("runs/a", [(0.0, 0.0), (100.0, 10.0)]), Series("runs/b", [(50.0, 10.0), (100.0, 0.0)])
    lines = as_text(chart(rising, falling))
    assert max(map(len, lines)) == TEXT_WIDTH
    rows = [line.partition("│")[2] or line.partition("┤")[2] for line in lines[2:14]]
    assert [row.index("*") for row in reversed(rows)] == sorted(row.index("*") for row in rows)
    assert not any("o" in row[:30] for row in rows), "the second curve begins in the middle"
    assert lines[-2].endswith("* runs/a: last 10, lowest 0, highest 10")


@pytest.mark.parametrize("points", [[(7.0, 3.0)], [(1.0, 0.0), (2.0, 0.0)], [(0.0, 1e-9), (1.0, -5e7)]])
def test_few_equal_and_extreme_points_are_drawn(points: list[tuple[float, float]]) -> None:
    assert any("*" in line for line in as_text(chart(Series("a", points)))[1:-1])


def test_far_out_values_of_the_gradient_do_not_flatten_the_rest() -> None:
    points = [(0.0, 1e6), *((float(i), 1.0) for i in range(1, 10))]
    assert chart(Series("a", points), metric="grad_norm").highest() == 4.0
    assert chart(Series("a", points)).highest() == 1e6
