"""The report of a run: curves of its metrics, sample translations over time, and its best and worst translations."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nmt.config import Config, language
from nmt.evaluate import choose_settings, score
from nmt.insight import pages
from nmt.insight.compare import EvaluationSet, by_length, compared_lines
from nmt.insight.curves import CHARTS, read_figures
from nmt.run.directory import RunDirectory

N_EXAMPLES = 5


def read_report(path: Path, evaluation: dict[str, Any] | None = None, page: Path | None = None) -> dict[str, Any]:
    """Return the state of a run, which may still be training; `evaluation` is what `evaluated` returns.

    `page` is the file that the report is for, None for one in the run; the link to growth.html is relative to it. The
    curves have one value per point; "step" is the x axis. Raises ModelError if the directory is not a run.
    """
    run = RunDirectory(path)
    config = run.read_config()
    curves, validations = read_figures(run)
    # The page lists warnings by themselves, with their steps.
    warnings = []
    for line in validations:
        warnings += [(line["step"], text) for text in line.pop("warnings", [])]
    growth = None
    if run.growth_file.is_file():
        folder = (page or run.report_file).parent
        growth = os.path.relpath(run.growth_file, folder)
    return {
        "name": str(path),
        "curves": curves,
        "validations": validations,
        "warnings": warnings,
        "settings": config.model_dump(),
        "manifest": run.read_manifest(),
        "evaluation": evaluation,
        "growth": growth,
    }


def evaluated(
    corpus: str, sources: Sequence[str], references: Sequence[str], translations: Sequence[str], config: Config
) -> dict[str, Any]:
    """Return scores, best and worst lines, and groups by length; the config names the target language."""
    settings = choose_settings(language(config.data, "target"), [references])
    scores = score(translations, [references], ("bleu", "chrf", "ter"), **asdict(settings), n_bootstrap=1000)
    test_set = EvaluationSet(corpus, list(sources), [list(references)], settings)
    lines = compared_lines([translations], test_set)
    worst_first = sorted(lines, key=lambda line: line.chrf)
    best_first = worst_first[::-1]
    return {
        "corpus": corpus,
        "n_lines": len(lines),
        "scores": scores,
        "left_out": settings.left_out,
        "best": best_first[:N_EXAMPLES],
        "worst": worst_first[:N_EXAMPLES],
        "lengths": by_length(lines, test_set),
    }


def as_page(reports: Sequence[dict[str, Any]]) -> str:
    """Return a self-contained page of one or several runs, from `read_report`; their curves share axes."""
    charts = [[metric, *texts] for metric, texts in CHARTS.items()]
    title = ", ".join(report["name"] for report in reports)
    data = pages.plain({"runs": reports, "charts": charts})
    return pages.page("report", f"{title} – nmt report", data)
