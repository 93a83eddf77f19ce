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
    open_page: options.Open = False,
    model: options.Model = None,
    languages: options.Languages = "",
    beam: options.Beam = None,
    sample: options.Sample = False,
    seed: options.Seed = 1,
    device: options.Device = "auto",
) -> None:
    """Show how a translation comes about.

    Writes attention, search, probabilities and tensors to one HTML file that needs no network.
    """
    check_sentence(text)
    if as_json and (open_page or output):
        raise InputError("--open and -o are about the page, which --json does not write", hint="leave them out")
    search = options.search_options(seed=seed, sample=sample, beam=beam)
    translator = options.load_translator(model, device, languages=languages)
    from nmt.insight import explain as explaining

    # The page shows all hypotheses of the beam.
    search["n_best"] = beam or translator.options.beam
    explanation = explaining.explain(translator, text, reference=reference, **search)
    if as_json:
        print(explaining.as_json(explanation))
    else:
        streams.write_text(output or Path("explanation.html"), explaining.as_page(explanation), show=open_page)
