"""`nmt export`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.errors import InputError


def export(
    to: Annotated[str, typer.Option(help="The engine: ctranslate2.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory, written atomically; replaces an export.")],
    model: Annotated[Path | None, typer.Option("--model", "-m", help=options.MODEL_HELP)] = None,
    quantization: Annotated[str, typer.Option(help="float32, float16, bfloat16 or int8 weights.")] = "float32",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Write a model for another engine.

    A directory from which CTranslate2 translates without torch, with the tokenizer and the settings. Both engines
    translate a few sentences first and must agree.
    """
    streams.set_up_logging(quiet, verbose)
    if to != "ctranslate2":
        raise InputError(f"no engine '{to}'", hint="use ctranslate2")
    _, translator = options.load_translator([model] if model else None)
    from nmt.interchange.ctranslate2 import to_ctranslate2

    to_ctranslate2(translator, output, quantization)
    streams.log.info("written to %s", output)
