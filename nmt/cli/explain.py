"""The command `nmt explain`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.source import check_sentence
from nmt.errors import InputError


def explain(
    text: Annotated[str, typer.Argument(help="One sentence.")],
    reference: Annotated[str | None, typer.Option(help="A correct translation, to compare with.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page to write. [default: explanation.html]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    growth: Annotated[bool, typer.Option("--growth", help="Follow it through the snapshots of a run.")] = False,
    open_page: options.Open = False,
    models: Annotated[
        list[Path] | None, typer.Option("--model", "-m", help=f"{options.MODEL_HELP} Several with --growth.")
    ] = None,
    languages: options.Languages = "",
    beam: options.Beam = None,
    sample: options.Sample = False,
    seed: options.Seed = 1,
    device: options.Device = "auto",
) -> None:
    """Show how a translation comes about.

    Writes attention, search, probabilities and tensors to one HTML file that needs no network. --growth writes
    RUN/growth.html, which shows the sentence along training (train.snapshots); -m may name several runs, to see them
    beside each other in growth.html.
    """
    check_sentence(text)
    if as_json and open_page:
        raise InputError("--open shows the page, which --json does not write", hint="leave out one of them")
    # 1. With --growth, show the sentence along the training of the runs.
    if growth:
        if as_json or sample or beam:
            raise InputError("--growth writes one page, of greedy translations", hint="leave out the other options")
        runs = options.model_paths(models)
        if len(runs) > 1 and not reference:
            raise InputError("several runs are compared on one translation", hint="add --reference")
        from nmt.insight import growth as snapshots
        from nmt.run.directory import RunDirectory

        along = [snapshots.growth(run, text, reference=reference, languages=languages, device=device) for run in runs]
        page = Path("growth.html") if len(runs) > 1 else RunDirectory(runs[0]).growth_file
        streams.write_text(output or page, snapshots.as_page(along), show=open_page)
        return
    # 2. Otherwise, explain one translation.
    if models and len(models) > 1:
        raise InputError("one translation is explained by one model", hint="leave out a -m, or add --growth")
    search = options.search_options(seed=seed, sample=sample, beam=beam)
    translator = options.load_translator(models, device, languages=languages)
    from nmt.insight import explain as explaining

    # The page shows all hypotheses of the beam.
    search["n_best"] = beam or translator.options.beam
    explanation = explaining.explain(translator, text, reference=reference, **search)
    if as_json:
        print(explaining.as_json(explanation))
    else:
        streams.write_text(output or Path("explanation.html"), explaining.as_page(explanation), show=open_page)
