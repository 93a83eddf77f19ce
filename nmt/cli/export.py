"""The command `nmt export`."""

from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

import typer

from nmt.cli import options
from nmt.cli.streams import log
from nmt.errors import InputError

EXPORTS = {  # format -> name of the function that writes it, so that torch is imported late
    "argos": "nmt.interchange.argos:to_argos",
    "browser": "nmt.interchange.bergamot:to_browser",
    "ctranslate2": "nmt.interchange.ctranslate2:to_ctranslate2",
    "huggingface": "nmt.interchange.huggingface:to_huggingface",
    "marian": "nmt.interchange.marian:to_marian",
}
Format = Literal["argos", "browser", "ctranslate2", "huggingface", "marian"]
QUANTIZED = ("argos", "ctranslate2")  # the formats for which --quantization is allowed


def export(
    to: Annotated[Format, typer.Option(help="The format.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory (argos: file), written atomically; replaces an export.")
    ],
    model: options.Model = None,
    languages: options.Languages = "",
    quantization: Annotated[
        str | None, typer.Option(help="float32, float16, bfloat16 or int8. [default: float32; argos: int8]")
    ] = None,
    shortlist: Annotated[
        bool, typer.Option("--shortlist", help="Faster: compute likely pieces only, learned from the training text.")
    ] = False,
) -> None:
    """Write a model for other tools.

    ctranslate2: a directory from which CTranslate2 translates without torch. argos: an .argosmodel file for Argos
    Translate and LibreTranslate. huggingface: a directory for transformers and other tools that read its models.
    marian: a directory for Marian. browser: a page that translates offline. Every export includes the tokenizer. Its
    probabilities on a few sentences must agree with nmt's (huggingface: compared if transformers is installed; marian
    and browser: not compared).
    """
    # 1. Check that the options fit the format.
    if quantization and to not in QUANTIZED:
        raise InputError(f"--quantization does not apply to {to}", hint=f"it is for {', '.join(QUANTIZED)}")
    if shortlist and to != "ctranslate2":
        raise InputError(f"--shortlist does not apply to {to}", hint="it is for ctranslate2")
    # 2. Load the model with torch, because every export is made from torch's weights.
    translator = options.load_translator(model, engine="torch", languages=languages or None)
    chosen: dict[str, Any] = {}
    if quantization:
        chosen["quantization"] = quantization
    # The shortlist is learned from the training text, which the run's config names.
    if shortlist:
        from nmt.interchange.shortlist import vocabulary_map

        chosen["shortlist"] = vocabulary_map(translator)
    # 3. Write the export.
    resolve_name(EXPORTS[to])(translator, output, **chosen)
    log.info("written to %s", output)
