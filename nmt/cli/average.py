"""`nmt average`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import streams
from nmt.errors import InputError
from nmt.processes import prepare_torch


def average(
    run: Annotated[Path, typer.Argument(help="A run with two or more checkpoints.")],
    last: Annotated[int | None, typer.Option(metavar="N", min=2, help="Average the last N checkpoints.")] = None,
    best: Annotated[int | None, typer.Option(metavar="N", min=2, help="Average the best N on dev.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The model file. [default: RUN/average.safetensors]")
    ] = None,
) -> None:
    """Average the weights of a run's checkpoints.

    Writes a model file for `nmt translate -m`; the run stays as it is. Training does the same at its end with
    train.average=best or last. By default the run's train.average and train.n_average apply. train.keep sets how many
    checkpoints a run keeps.
    """
    if last and best:
        raise InputError("both --last and --best were given", hint="give one of them")
    prepare_torch()
    from nmt.train.upkeep import average_run

    file, steps = average_run(run, "last" if last else "best" if best else None, last or best, output)
    streams.log.info("the mean of the checkpoints of steps %s is written to %s", ", ".join(map(str, steps)), file)
