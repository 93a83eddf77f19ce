"""Curves of runs: the figures of metrics.jsonl as points."""

import math
from array import array
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from nmt.run.directory import RunDirectory, json_lines

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


def read_figures(run: RunDirectory) -> tuple[dict[str, list[float]], list[dict[str, Any]]]:
    """Return the curves of a run (see `curves_of`), and its validations, as lines of metrics.jsonl."""
    rows = array("d")  # `COLUMNS` of each complete step: 72 bytes
    validations = []
    for line in json_lines(run.metrics_file):
        kind = line.get("kind")
        if kind == "validation":
            validations.append(line)
        elif kind == "step":
            figures = [line.get(name) for name in COLUMNS]
            if all(map(is_finite, figures)):
                rows.extend(figures)  # type: ignore[arg-type]
    table = np.array(rows).reshape(-1, len(COLUMNS))
    return curves_of(table), validations


def curves_of(rows: NDArray[np.float64]) -> dict[str, list[float]]:
    """Return the curves by name, one value per point, given `COLUMNS` of each step; "step" is the x axis.

    There are at most `MAX_POINTS` points, each over the same number of steps except the last.
    """
    columns = dict(zip(COLUMNS, rows.T, strict=True))
    # 1. The first and the last step of each point.
    steps_per_point = max(math.ceil(len(rows) / MAX_POINTS), 1)
    firsts = np.arange(0, len(rows), steps_per_point)
    ends = np.minimum(firsts + steps_per_point, len(rows))
    lasts = ends - 1
    steps = columns["step"][lasts].astype(int)
    elapsed_s = columns["elapsed_s"][lasts]
    curves = {"step": steps.tolist(), "elapsed_s": elapsed_s.tolist()}

    # 2. Means over the target tokens of each point.
    n_tokens = np.add.reduceat(columns["n_tokens"], firsts)
    for name in MEANS:
        weighted = columns[name] * columns["n_tokens"]
        sums = np.add.reduceat(weighted, firsts)
        curves[name] = (sums / np.maximum(n_tokens, 1)).tolist()

    # 3. Ratios of sums.
    n_real = np.add.reduceat(columns["n_real"], firsts)
    n_positions = np.add.reduceat(columns["n_positions"], firsts)
    curves["non_padding"] = (n_real / np.maximum(n_positions, 1)).tolist()
    seconds = np.diff(elapsed_s, prepend=0.0)
    seconds[seconds <= 0] = math.nan  # no speed where the clock did not advance
    curves["tokens_per_s"] = (n_tokens / seconds).tolist()
    return curves


def is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
