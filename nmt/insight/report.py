"""The report of a run: curves of metrics, sample translations at each validation, and best and worst translations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.config import Config, language
from nmt.evaluate import choose_settings, score
from nmt.insight import pages
from nmt.insight.compare import EvaluationSet, by_length, compared_lines
from nmt.insight.curves import CHARTS, read_figures
from nmt.run.directory import RunDirectory

N_EXAMPLES = 5  # number of best translations in the report, and of worst translations


def read_report(path: Path, evaluation: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the data of a report on a run, which may still be training. Raises ModelError if `path` is not a run.

    `evaluation` is a result of `evaluated`.
    """
    run = RunDirectory(path)
    config = run.read_config()
    curves, validations = read_figures(run)
    return {
        "name": str(path),
        "curves": curves,
        "validations": validations,
        "settings": config.model_dump(),
        "manifest": run.read_manifest(),
        "evaluation": evaluation,
    }


def evaluated(
    corpus: str, sources: Sequence[str], references: Sequence[str], translations: Sequence[str], config: Config
) -> dict[str, Any]:
    """Return the scores of translations, the best and worst lines, and groups of lines by length.

    sacreBLEU's settings follow from the target language and the references.
    """
    settings = choose_settings(language(config.data, "target"), [references])
    scores = score(translations, [references], ("bleu", "chrf", "ter"), settings, n_bootstrap=1000)
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
    """Return a self-contained HTML page about one or several runs. Each chart shows the curves of all runs.

    `reports` has a result of `read_report` for each run.
    """
    charts = [[metric, *texts] for metric, texts in CHARTS.items()]
    title = ", ".join(report["name"] for report in reports)
    data = pages.plain({"runs": reports, "charts": charts})
    return pages.page("report", f"{title} – nmt report", data)
