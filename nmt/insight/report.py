"""The report of a run: curves of metrics, and sample translations at each validation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.insight import pages
from nmt.insight.curves import CHARTS, read_figures
from nmt.run.directory import RunDirectory


def read_report(path: Path) -> dict[str, Any]:
    """Return the data of a report on a run, which may still be training. Raises ModelError if `path` is not a run."""
    run = RunDirectory(path)
    curves, validations = read_figures(run)
    return {
        "name": str(path),
        "curves": curves,
        "validations": validations,
        "settings": run.read_config().model_dump(),
        "manifest": run.read_manifest(),
    }


def as_page(reports: Sequence[dict[str, Any]]) -> str:
    """Return a self-contained HTML page about one or several runs. Each chart shows the curves of all runs.

    `reports` has a result of `read_report` for each run.
    """
    charts = [[metric, *texts] for metric, texts in CHARTS.items()]
    title = ", ".join(report["name"] for report in reports)
    data = pages.plain({"runs": reports, "charts": charts})
    return pages.page("report", f"{title} – nmt report", data)
