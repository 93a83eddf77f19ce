"""The command `nmt info`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import streams
from nmt.processes import prepare_torch


def info(
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL|RUN]", help="A run, model file or export. [default: the newest]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Describe a model or a run.

    Prints languages, parameters, the config, and of a run also hashes of its data, training, versions, and scores with
    signatures. The scores are those of earlier `nmt eval` commands.
    """
    prepare_torch()
    from nmt.insight.info import as_text, information
    from nmt.run.directory import newest_run

    facts = information(model or newest_run())
    if as_json:
        streams.print_json(facts)
    else:
        print(as_text(facts), end="")
