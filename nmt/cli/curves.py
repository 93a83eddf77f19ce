"""`nmt curves`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams

SHOWN = ("loss", "dev_loss", "dev_bleu")  # default metrics in the terminal


def curves(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUN]...", help="[default: the newest]")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Repeat it for several. [default: loss, dev_loss and dev_bleu; all with --json]"),
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="Print the points as one JSON object.")] = False,
) -> None:
    """Show the curves of runs: loss, dev BLEU, learning rate, speed.

    Metrics: loss, dev_loss, dev_perplexity, dev_bleu, dev_chrf, lr, grad_norm, tokens_per_s, non_padding. Several runs
    share their axes. `nmt report` writes a page with the same curves.
    """
    from nmt.insight.curves import CHARTS, as_text, charts_of

    chosen = metric or (list(CHARTS) if json_lines else SHOWN)
    charts = charts_of(runs or [options.newest_run()], chosen)
    if json_lines:
        by_metric = {chart.metric: {one.name: one.points for one in chart.series} for chart in charts}
        print(json.dumps({"x": "step", "metrics": by_metric}, ensure_ascii=False))
    else:
        blocks = ("\n".join(map(streams.printable, as_text(chart))) for chart in charts)
        print("\n\n".join(blocks))
