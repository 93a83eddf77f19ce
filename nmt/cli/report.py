"""The command `nmt report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli import options, streams
from nmt.cli.testset import search_for_scores, translate_all, warn_if_tokenized

if TYPE_CHECKING:
    from nmt.run.directory import RunDirectory


def report(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUN]...", help="[default: the newest]")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="[default: RUN/report.html]")] = None,
    evaluate: Annotated[bool, typer.Option(help="Translate the test set, or dev, and show scores.")] = True,
    open_page: options.Open = False,
    languages: options.Languages = "",
    beam: options.Beam = None,
    device: options.Device = "auto",
) -> None:
    """Write a page about a run.

    Writes curves, samples, scores, and the best and worst translations to one HTML file that needs no network. The
    curves of several runs share their axes.
    """
    from nmt.insight.report import as_page, read_report
    from nmt.run.directory import RunDirectory

    # 1. Choose the file of the page.
    runs = runs or [options.newest_run()]
    page = Path("report.html") if len(runs) > 1 else RunDirectory(runs[0]).report_file
    page = output or page
    # 2. Read the runs, and translate their test sets.
    reports = []
    for run in runs:
        directory = RunDirectory(run)
        evaluation = None
        # A run that has just started has no model yet.
        if evaluate and directory.model_file.is_file():
            evaluation = evaluation_of(directory, languages, beam, device)
        reports.append(read_report(run, evaluation))
    # 3. Write the page.
    streams.write_text(page, as_page(reports), show=open_page)


def evaluation_of(run: "RunDirectory", languages: str, beam: int | None, device: str) -> dict[str, Any] | None:
    """Translate and score a run's test set, or else its dev set. Return None if it has neither."""
    from nmt.insight.report import evaluated
    from nmt.text.lines import iter_pairs
    from nmt.train.corpora import corpus_paths

    # 1. Read the test set.
    config = run.read_config()
    if config.data.directions:
        config = config.direction(languages)
    name = "test" if config.data.test else "dev"
    corpora = config.data.test or config.data.dev
    if not corpora:
        return None
    pairs = list(iter_pairs(*corpus_paths(config, corpora[0])))
    sources = [pair.source for pair in pairs]
    references = [pair.target for pair in pairs]
    # 2. Translate and score the test set.
    translator = options.load_translator(run.path, device, languages=languages)
    hypotheses = translate_all(translator, sources, search_for_scores(translator, beam))
    warn_if_tokenized(hypotheses)
    return evaluated(name, sources, references, hypotheses, config)
