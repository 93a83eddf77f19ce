"""Curves of runs: the figures of metrics.jsonl as points. Imports no torch."""

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
        kind, values = line.get("kind"), [line.get(name) for name in COLUMNS]
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


def is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
