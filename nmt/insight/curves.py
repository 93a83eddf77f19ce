"""Curves of runs: the figures of metrics.jsonl as points, and as text for a terminal. Imports no torch."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from nmt.errors import InputError
from nmt.run.directory import RunDirectory, json_lines, kind_of

MAX_POINTS = 1000  # per curve; with more steps, each point covers several
MEANS = ("loss", "nll", "lr", "grad_norm")  # averaged over the steps of a point, weighted by n_tokens
COLUMNS = ("step", "elapsed_s", "n_tokens", "n_real", "n_positions", *MEANS)  # of a line of metrics.jsonl
CHARTS = {  # by metric: title and unit
    "loss": ("Training loss", "nats per piece, smoothed"),
    "dev_loss": ("Dev loss", "nats per piece, smoothed"),
    "dev_perplexity": ("Dev perplexity", "1 is perfect"),
    "dev_bleu": ("Dev BLEU", "0 to 100"),
    "dev_chrf": ("Dev chrF", "0 to 100"),
    "lr": ("Learning rate", ""),
    "grad_norm": ("Gradient norm", "before clipping"),
    "tokens_per_s": ("Speed", "target pieces a second"),
    "non_padding": ("Non-padding share", "of all positions"),
}
HIGH_AT_FIRST = ("dev_perplexity", "grad_norm")  # their highest values are cut off
MARKS = "*o+x#@%&=~"  # one per series of a text chart
TEXT_WIDTH, TEXT_HEIGHT = 80, 16  # of a text chart, in characters, without the legend


@dataclass(frozen=True)
class Series:
    """A curve with the name of its run."""

    name: str
    points: list[tuple[float, float]]  # (x, y), sorted by x


@dataclass(frozen=True)
class Chart:
    """Curves that share their axes."""

    metric: str
    title: str
    unit: str
    series: list[Series]

    def highest(self) -> float:
        """Return the highest y to show."""
        ys = sorted(y for one in self.series for _, y in one.points)
        return min(ys[-1], 4 * ys[int(len(ys) * 0.6)]) if self.metric in HIGH_AT_FIRST else ys[-1]


def read_figures(run: RunDirectory) -> tuple[dict[str, list[float]], list[dict[str, Any]]]:
    """Return the curves of a run (see `curves_of`), and its validations, as lines of metrics.jsonl."""
    rows = array("d")  # `COLUMNS` of each complete step: 72 bytes
    validations = []
    for line in json_lines(run.metrics_file):
        kind, values = kind_of(line), [line.get(name) for name in COLUMNS]
        if kind == "validation":
            validations.append(line)
        elif kind == "step" and all(map(is_finite, values)):
            rows.extend(values)  # type: ignore[arg-type]
    return curves_of(np.array(rows).reshape(-1, len(COLUMNS))), validations


def curves_of(rows: NDArray[np.float64]) -> dict[str, list[float]]:
    """Each curve as one value per point, by its name, given `COLUMNS` of each step; "step" is the x axis.

    There are at most `MAX_POINTS` points, each over the same number of steps except the last.
    """
    if not len(rows):
        return {name: [] for name in ("step", "elapsed_s", *MEANS, "non_padding", "tokens_per_s")}
    firsts = np.arange(0, len(rows), -(-len(rows) // MAX_POINTS))  # the first step of each point
    lasts = np.append(firsts[1:], len(rows)) - 1
    steps, elapsed_s = rows[lasts, :2].T
    n_tokens, n_real, n_positions = np.add.reduceat(rows[:, 2:5], firsts).T
    sums = np.add.reduceat(rows[:, 5:] * rows[:, 2:3], firsts)  # (points, MEANS)
    found = dict(zip(MEANS, (sums / np.maximum(n_tokens, 1)[:, None]).T.tolist(), strict=True))
    found |= {"step": steps.astype(int).tolist(), "elapsed_s": elapsed_s.tolist()}
    found["non_padding"] = (n_real / np.maximum(n_positions, 1)).tolist()
    seconds = np.diff(elapsed_s, prepend=0.0)
    found["tokens_per_s"] = (n_tokens / np.where(seconds > 0, seconds, math.nan)).tolist()
    return found


def charts_of(paths: Sequence[Path], metrics: Sequence[str] = tuple(CHARTS)) -> list[Chart]:
    """Return one chart per metric with the curves of all runs; metrics without any value are left out.

    Raises ModelError if a path is not a run, and InputError if a metric is unknown, or no run has any value yet.
    """
    if unknown := [name for name in metrics if name not in CHARTS]:
        raise InputError(f"no metric '{unknown[0]}'", hint=f"one of {', '.join(CHARTS)}")
    runs = []
    for path in paths:
        run = RunDirectory(path)
        run.read_config()  # raises ModelError if this is not a run
        runs.append((str(path), *read_figures(run)))
    found = []
    for metric in metrics:
        series = []
        for name, curves, validations in runs:
            if metric.startswith("dev_"):
                pairs = [(line.get("step"), line.get(metric)) for line in validations]
            else:
                pairs = list(zip(curves["step"], curves[metric], strict=True))
            if points := [(x, y) for x, y in pairs if is_finite(x) and is_finite(y)]:
                series.append(Series(name, sorted(points)))
        if series:
            found.append(Chart(metric, *CHARTS[metric], series))
    if not found:
        raise InputError(f"{', '.join(map(str, paths))}: no figures yet", hint="train for some steps first")
    return found


def is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


def as_text(chart: Chart) -> list[str]:
    """A chart as text of `TEXT_WIDTH` columns; each series has its own mark, and a line with last value and range."""
    import plotext  # takes 0.1 s

    plotext.clear_figure()
    plotext.limit_size(False, False)  # the size of the terminal does not matter
    plotext.plot_size(TEXT_WIDTH, TEXT_HEIGHT)
    plotext.title(f"{chart.title} ({chart.unit}) by step" if chart.unit else chart.title)
    legend, highest = [], chart.highest()
    for i, one in enumerate(chart.series):
        mark, (xs, ys) = MARKS[i % len(MARKS)], zip(*one.points, strict=True)
        plotext.plot(xs, [min(y, highest) for y in ys], marker=mark)
        legend.append(f"  {mark} {one.name}: last {ys[-1]:.4g}, lowest {min(ys):.4g}, highest {max(ys):.4g}")
    lines = plotext.uncolorize(plotext.build()).rstrip("\n").split("\n")
    return [line.rstrip() for line in lines] + legend
