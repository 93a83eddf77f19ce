"""`nmt distill`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.cli.rewriting import check_direction, checked_files, rewrite
from nmt.cli.translate import formatted


def distill(
    model: options.Generators,
    input_file: options.InputFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Target lines; FILE.part until complete.")],
    beam: options.Beam = None,
    batch_size: options.BatchSize = None,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
    threads: options.Threads = 0,
) -> None:
    """Rewrite the targets of a corpus with a teacher, to train a smaller model.

    The teacher, a model or an ensemble, translates each line by beam search (Kim and Rush 2016). Line N of the output
    is the target of line N of the input; a blank line stays blank. Repeat the command to continue after an
    interruption.
    """
    files = checked_files("distill", input_file, output)
    paths, translator = options.load_translator(model, device, threads, precision, engine)
    check_direction(translator, input_file)
    chosen = translator.with_options(**options.search_options("", beam=beam, scores=False))
    settings = {"precision": precision, "engine": engine}
    rewrite(*files, paths, translator, {"options": chosen, "batch_size": batch_size}, settings, formatted)
    message = "to train a student on it: data.train.source=%s data.train.target=%s"
    streams.log.info(message, input_file, output)
