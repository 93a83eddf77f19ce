"""The command `nmt report`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams


def report(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUN]...", help="[default: the newest]")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="[default: RUN/report.html]")] = None,
    open_page: options.Open = False,
) -> None:
    """Write a page about a run.

    Writes curves and samples of the training to one HTML file that needs no network. The curves of several runs share
    their axes.
    """
    from nmt.insight.report import as_page, read_report
    from nmt.run.directory import RunDirectory, newest_run

    runs = runs or [newest_run()]
    page = Path("report.html") if len(runs) > 1 else RunDirectory(runs[0]).report_file
    reports = list(map(read_report, runs))
    streams.write_text(output or page, as_page(reports), show=open_page)
