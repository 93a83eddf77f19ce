"""The command `nmt import`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.streams import log
from nmt.processes import prepare_torch


def import_(
    model: Annotated[str, typer.Argument(metavar="DIR|HUB_ID", help="For example Helsinki-NLP/opus-mt-de-en.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the new run.")],
    target_tag: Annotated[
        str, typer.Option(help="Target language of a multilingual model: fra puts >>fra<< before each line.")
    ] = "",
    source_lang: Annotated[str, typer.Option(help="Language code. [default: the model's]")] = "",
    target_lang: Annotated[str, typer.Option(help="Language code. [default: the model's]")] = "",
    revision: Annotated[str | None, typer.Option(help="Branch, tag or refs/pr/N of a model on the Hub.")] = None,
) -> None:
    """Make a run from an OPUS-MT model.

    Reads a Marian model in Hugging Face's format: a directory, or an id on the Hub (pip install
    'nmt-trainer[huggingface]'). The new run can translate, and be evaluated, explained and exported like any other;
    `nmt train CONFIG train.init_from=RUN` fine-tunes it. It is written only if its logits agree with the original's
    (compared if transformers is installed).
    """
    prepare_torch()
    from nmt.interchange.marian import import_marian
    from nmt.interchange.marian_files import model_directory

    directory = model_directory(model, revision)
    name = model if revision is None else f"{model}@{revision}"
    languages = {"source_lang": source_lang, "target_lang": target_lang}
    import_marian(directory, output, name=name, target_tag=target_tag, **languages)
    log.info("written to %s; next: nmt translate -m %s", output, output)
