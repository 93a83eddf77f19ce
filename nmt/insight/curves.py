"""Curves of runs: the figures of metrics.jsonl as points, and as text for a terminal. Imports no torch."""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from nmt.errors import InputError
from nmt.run.directory import RunDirectory, kind_of

MAX_POINTS = 1000  # per curve; with more steps, each point covers several
MEANS = ("loss", "nll", "lr", "grad_norm")  # averaged over the steps of a point, weighted by n_tokens
COUNTS = ("n_tokens", "n_real", "n_positions")
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
MARKS = "*o+x#@%&=~"  # one per series of a text chart
TEXT_WIDTH, TEXT_HEIGHT = 80, 16  # of a text chart, in characters, without the legend
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A curve with the name of its run."""

    name: str
    points: list[Point]  # (x, y), sorted by x


@dataclass(frozen=True)
class Chart:
    """Curves that share their axes."""

    metric: str
    title: str
    unit: str
    x_title: str
    series: list[Series]

    def ranges(self) -> tuple[float, float, float, float]:
        """Return the lowest and highest x, then y, to show; very high perplexities and gradient norms are cut off."""
        xs, ys = (sorted(values) for values in zip(*(p for one in self.series for p in one.points), strict=True))
        low, high = ys[0], ys[-1]
        if "perplexity" in self.metric or self.metric == "grad_norm":
            high = min(high, 4 * ys[int(len(ys) * 0.6)] + 1e-9)
        if high == low:
            high, low = high + (abs(high) * 0.1 or 1.0), low - abs(low) * 0.1
        first = min(0.0, xs[0])
        return first, xs[-1] if xs[-1] > first else first + 1.0, low, high


class Curves:
    """The metrics of all steps as at most `MAX_POINTS` points, each over the same number of steps except the last."""

    def __init__(self, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        self.rows = array("d")  # step, elapsed_s (NaN if unknown), `COUNTS`, `MEANS` times n_tokens: 72 bytes per step
        self.add(lines)

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add the complete lines of steps among some lines of metrics.jsonl."""
        for line in lines:
            if kind_of(line) == "step" and has_numbers(line, (*MEANS, *COUNTS)):
                elapsed_s = line.get("elapsed_s")
                self.rows.extend([line["step"], math.nan if elapsed_s is None else elapsed_s])
                self.rows.extend(line[name] for name in COUNTS)
                self.rows.extend(line[name] * line["n_tokens"] for name in MEANS)

    def by_name(self) -> dict[str, list[float | None]]:
        """Each curve as one value per point, by its name; "step" is the x axis."""
        rows = np.array(self.rows).reshape(-1, 2 + len(COUNTS) + len(MEANS))  # (steps, columns)
        firsts = np.arange(0, len(rows), max(-(-len(rows) // MAX_POINTS), 1))  # the first step of each point
        lasts = np.append(firsts[1:], len(rows)) - 1 if len(rows) else firsts
        sums = np.add.reduceat(rows, firsts) if len(rows) else rows
        (step, elapsed_s), (n_tokens, n_real, n_positions) = rows[lasts, :2].T, sums[:, 2:5].T
        seconds = np.diff(elapsed_s, prepend=0.0)
        found = dict(zip(MEANS, sums[:, 5:].T / np.maximum(n_tokens, 1), strict=True))
        found |= {"non_padding": n_real / np.maximum(n_positions, 1), "elapsed_s": elapsed_s}
        found["tokens_per_s"] = n_tokens / np.where(seconds > 0, seconds, math.nan)
        numbers = {name: [None if math.isnan(x) else x for x in values.tolist()] for name, values in found.items()}
        return {"step": list(map(int, step)), **numbers}


def has_numbers(line: Mapping[str, Any], names: Sequence[str]) -> bool:
    return all(isinstance(line.get(name), int | float) for name in names)


def charts_of(paths: Sequence[Path], metrics: Sequence[str] = tuple(CHARTS), *, by_time: bool = False) -> list[Chart]:
    """Return one chart per metric with the curves of all runs; metrics without any value are left out.

    With `by_time`, x is minutes of training instead of steps.

    Raises:
        ModelError: a path is not a run.
        InputError: a metric is unknown, or no run has any value yet.
    """
    if unknown := [name for name in metrics if name not in CHARTS]:
        raise InputError(f"no metric '{unknown[0]}'", hint=f"one of {', '.join(CHARTS)}")
    runs = []
    for path in paths:
        run = RunDirectory(path)
        run.read_config()  # raises ModelError if this is not a run
        lines = run.read_metrics()
        runs.append((str(path), Curves(lines).by_name(), [line for line in lines if kind_of(line) == "validation"]))
    x_name, x_title = ("elapsed_s", "minute") if by_time else ("step", "step")
    found = []
    for metric in metrics:
        series = []
        for name, steps, validations in runs:
            if metric.startswith("dev_"):
                pairs = [(line.get(x_name), line.get(metric)) for line in validations]
            else:
                pairs = list(zip(steps[x_name], steps[metric], strict=True))
            points = [(x / 60 if by_time else x, y) for x, y in pairs if is_finite(x) and is_finite(y)]
            if points:
                series.append(Series(name, sorted(points)))
        if series:
            found.append(Chart(metric, *CHARTS[metric], x_title, series))
    if not found:
        raise InputError(f"{', '.join(map(str, paths))}: no figures yet", hint="train for some steps first")
    return found


def is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


# --- text -------------------------------------------------------------------------------------------------


def as_text(chart: Chart) -> list[str]:
    """A chart as text of `TEXT_WIDTH` columns; each series has its own mark, and a line with last value and range."""
    import plotext  # takes 0.1 s

    x_low, x_high, low, high = chart.ranges()
    plotext.clear_figure()
    plotext.limit_size(False, False)  # the size of the terminal does not matter
    plotext.plot_size(TEXT_WIDTH, TEXT_HEIGHT)
    plotext.title(f"{chart.title} ({chart.unit}) by {chart.x_title}" if chart.unit else chart.title)
    plotext.xlim(x_low, x_high)
    plotext.ylim(low, high)
    for axis, values in ((plotext.xticks, ticks(x_low, x_high, 6)), (plotext.yticks, ticks(low, high))):
        axis(values, list(map(short, values)))
    legend = []
    for i, one in enumerate(chart.series):
        mark, (xs, ys) = MARKS[i % len(MARKS)], zip(*one.points, strict=True)
        plotext.plot(xs, [min(y, high) for y in ys], marker=mark)
        legend.append(f"  {mark} {one.name}: last {short(ys[-1])}, lowest {short(min(ys))}, highest {short(max(ys))}")
    lines = plotext.uncolorize(plotext.build()).rstrip("\n").split("\n")
    return [line.rstrip() for line in lines] + legend


def short(value: float) -> str:
    """A number for an axis: 0, 2.5e-04, 0.125, 31.2, 12.5k."""
    if value == 0:
        return "0"
    if abs(value) < 0.01:
        return f"{value:.1e}".replace(".0e", "e")
    return f"{value / 1000:.1f}k".replace(".0k", "k") if abs(value) >= 10_000 else f"{value:.4g}"


def ticks(low: float, high: float, n: int = 4) -> list[float]:
    """About `n` round numbers from `low` to `high`."""
    raw = (high - low) / n or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    size = next(one for one in (1, 2, 5, 10) if one * power >= raw * (1 - 1e-9)) * power
    first = math.ceil(low / size - 1e-9)
    return [i * size for i in range(first, math.floor(high / size + 1e-9) + 1)]
