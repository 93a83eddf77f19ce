"""`nmt report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli import options, streams

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

    runs = runs or [options.newest_run()]
    file = output or (RunDirectory(runs[0]).report_file if len(runs) == 1 else Path("report.html"))
    found = []
    for run in runs:
        directory = RunDirectory(run)
        is_evaluated = evaluate and directory.model_file.is_file()
        evaluation = evaluation_of(directory, languages, beam, device) if is_evaluated else None
        found.append(read_report(run, evaluation, file))
    streams.write_text(file, as_page(found), show=open_page)


def evaluation_of(run: "RunDirectory", languages: str, beam: int | None, device: str) -> dict[str, Any] | None:
    """Translate and score the run's test set, else its dev set; None if its config has neither."""
    from nmt.evaluate import DEFAULT_TOKENIZER, tokenized_warning
    from nmt.insight.report import evaluated
    from nmt.text.lines import iter_pairs
    from nmt.train.corpora import corpus_paths

    config = run.read_config()
    if config.data.directions:
        config = config.direction(languages)
    name, corpora = ("test", config.data.test) if config.data.test else ("dev", config.data.dev)
    if not corpora:
        return None
    (files,) = corpora
    pairs = list(iter_pairs(*corpus_paths(config, files)))
    _, translator = options.load_translator(run.path, device, languages=languages)
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    search = translator.with_options(**options.search_options(beam=beam))
    translations = streams.with_bar(translator.translate_lines(sources, search), len(sources))
    texts = [translation.text for translation in translations]
    if warning := tokenized_warning(texts, "translations", DEFAULT_TOKENIZER):
        streams.log.warning("%s", warning)
    return evaluated(name, sources, references, texts, config)
