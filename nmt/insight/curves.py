"""Curves of the metrics of a run, computed from metrics.jsonl."""

import math
from array import array
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from nmt.run.directory import RunDirectory, json_lines

MAX_POINTS = 1000  # maximum number of points of a curve; in a longer run, each point covers several steps
# These metrics are averaged over the steps of a point. A step is weighted by its number of target tokens.
MEANS = ("loss", "lr", "grad_norm")
# The curves are computed from these values of each step in metrics.jsonl.
COLUMNS = ("step", "elapsed_s", "n_tokens", *MEANS)
CHARTS = {  # key: metric; value: title and unit of the metric's chart
    "loss": ("Training loss", "nats per piece, smoothed"),
    "dev_loss": ("Dev loss", "nats per piece, smoothed"),
    "dev_perplexity": ("Dev perplexity", "1 is perfect"),
    "dev_bleu": ("Dev BLEU", "0 to 100"),
    "dev_chrf": ("Dev chrF", "0 to 100"),
    "lr": ("Learning rate", ""),
    "grad_norm": ("Gradient norm", "before clipping"),
    "tokens_per_s": ("Speed", "target pieces a second"),
}


def read_figures(run: RunDirectory) -> tuple[dict[str, list[float]], list[dict[str, Any]]]:
    """Return the curves of a run, and the lines of metrics.jsonl that describe validations."""
    # For each step, its start in seconds and the values of `COLUMNS`. An array takes much less memory than a list.
    rows = array("d")
    validations = []
    start = 0.0
    for line in json_lines(run.metrics_file):
        kind = line.get("kind")
        if kind == "validation":
            validations.append(line)
        elif kind == "step":
            figures = [start, *map(line.get, COLUMNS)]
            if all(map(is_finite, figures)):
                rows.extend(figures)  # type: ignore[arg-type]
        # A step starts when the previous step or validation ends.
        end = line.get("elapsed_s")
        if is_finite(end):
            start = end
    table = np.array(rows).reshape(-1, 1 + len(COLUMNS))
    return curves_of(table), validations


def curves_of(rows: NDArray[np.float64]) -> dict[str, list[float]]:
    """Return the curves of a run by name. Each row is a step: its start in seconds and the values of `COLUMNS`.

    A curve is a list with one value per point. The curve "step" is the x axis. There are at most `MAX_POINTS` points.
    """
    start_s, steps, elapsed_s, n_tokens, *_ = rows.T
    # 1. Find the first and the last step that each point covers.
    steps_per_point = max(math.ceil(len(rows) / MAX_POINTS), 1)
    firsts = np.arange(0, len(rows), steps_per_point)
    lasts = np.minimum(firsts + steps_per_point, len(rows)) - 1

    # 2. Average the metrics in `MEANS` over the target tokens of each point.
    n_tokens_of_point = np.add.reduceat(n_tokens, firsts)
    weighted = rows[:, -len(MEANS) :] * n_tokens[:, None]
    means = np.add.reduceat(weighted, firsts) / np.maximum(n_tokens_of_point, 1)[:, None]
    curves = dict(zip(MEANS, means.T.tolist(), strict=True))

    # 3. Compute the speed, without the time of validations. If the clock did not advance, the speed is unknown.
    seconds = np.add.reduceat(elapsed_s - start_s, firsts)
    seconds[seconds <= 0] = math.nan
    curves["tokens_per_s"] = (n_tokens_of_point / seconds).tolist()
    curves["step"] = steps[lasts].astype(int).tolist()
    curves["elapsed_s"] = elapsed_s[lasts].tolist()
    return curves


def is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
