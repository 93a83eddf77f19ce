"""`nmt export`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.errors import InputError

EXPORTS = ("argos", "ctranslate2")


def export(
    to: Annotated[str, typer.Option(help=f"The format: {', '.join(EXPORTS)}.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory (argos: file), written atomically; replaces an export.")
    ],
    model: Annotated[Path | None, typer.Option("--model", "-m", help=options.MODEL_HELP)] = None,
    quantization: Annotated[
        str | None, typer.Option(help="float32, float16, bfloat16 or int8. [default: float32; argos: int8]")
    ] = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Write a model for other tools.

    ctranslate2: a directory from which CTranslate2 translates without torch, with the tokenizer and the settings.
    argos: an .argosmodel file for Argos Translate and LibreTranslate. Both engines translate a few sentences first and
    must agree.
    """
    streams.set_up_logging(quiet, verbose)
    if to not in EXPORTS:
        raise InputError(f"no format '{to}'", hint=f"use {', '.join(EXPORTS)}")
    _, translator = options.load_translator([model] if model else None)
    from nmt.interchange.argos import to_argos
    from nmt.interchange.ctranslate2 import to_ctranslate2

    write = to_argos if to == "argos" else to_ctranslate2
    write(translator, output, *([quantization] if quantization else []))
    streams.log.info("written to %s", output)
