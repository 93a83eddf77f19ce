"""`nmt explain`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.errors import InputError


def explain(
    text: Annotated[str, typer.Argument(help="One sentence.")],
    reference: Annotated[str | None, typer.Option(help="A correct translation, to compare with.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("explanation.html"),
    as_text: Annotated[bool, typer.Option("--text", help="Print the explanation instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    open_page: options.Open = False,
    model: options.Model = None,
    beam: options.Beam = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw translations at random.")] = False,
    seed: options.Seed = 1,
    device: options.Device = "auto",
    threads: options.Threads = 0,
) -> None:
    """Show how a translation comes about.

    Writes attention, search, probabilities and tensors to one HTML file that needs no network. --text prints all but
    the tensors for a terminal.
    """
    if as_text and as_json:
        raise InputError("both --text and --json were given", hint="give one of them")
    if (as_text or as_json) and open_page:
        raise InputError("--open shows the page, which --text and --json do not write", hint="leave out one of them")
    search = options.search_options("--sample", seed=seed, sample=sample, beam=beam)
    _, translator = options.load_translator(model, device, threads)
    from nmt.insight import render
    from nmt.insight.explain import explain as explain_one

    search["n_best"] = beam or translator.options.beam
    found = explain_one(translator, text, reference=reference, **search)
    if as_text:
        print(*render.as_text(found), sep="\n")
    elif as_json:
        print(render.as_json(found))
    else:
        streams.write_text(output, render.as_page(found), show=open_page)
