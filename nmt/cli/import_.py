"""The command `nmt import`."""

import contextlib
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmt.cli.streams import log
from nmt.processes import prepare_torch


def import_(
    model: Annotated[
        str, typer.Argument(metavar="DIR|FILE.zip|HUB_ID", help="For example Helsinki-NLP/opus-mt-de-en.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the new run.")],
    target_tag: Annotated[
        str, typer.Option(help="Target language of a multilingual model: fra puts >>fra<< before each line.")
    ] = "",
    source_lang: Annotated[str, typer.Option(help="Language code. [default: the model's]")] = "",
    target_lang: Annotated[str, typer.Option(help="Language code. [default: the model's]")] = "",
    positions: Annotated[
        Literal["marian", "huggingface"] | None,
        typer.Option(help="Whose position vectors the model has. [default: marian if it is as Marian trained it]"),
    ] = None,
    dev: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="SRC REF", help="Choose the positions that predict REF better, whatever --positions says."
        ),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or refs/pr/N of a model on the Hub.")] = None,
) -> None:
    """Make a run from a model of Marian, such as those of OPUS-MT.

    Reads Marian's own files (.npz), in a directory or a .zip, and Hugging Face's format: a directory, or an id on the
    Hub (pip install 'nmt-trainer[huggingface]'). The new run can translate, and be evaluated, explained and exported
    like any other; `nmt train CONFIG train.init_from=RUN` fine-tunes it. A model in Hugging Face's format is written
    only if its logits agree with the original's (compared if transformers is installed).
    """
    prepare_torch()
    from nmt.interchange.huggingface_import import model_directory, read_huggingface
    from nmt.interchange.importing import import_model
    from nmt.interchange.marian_import import read_marian, unzipped_model

    name = model if revision is None else f"{model}@{revision}"
    with contextlib.ExitStack() as stack:
        path = Path(model)
        if path.suffix == ".zip" and path.is_file() and revision is None:
            directory = stack.enter_context(unzipped_model(path))
        else:
            directory = model_directory(model, revision)
        read = read_marian if any(directory.glob("*.npz")) else read_huggingface
        import_model(
            read(directory),
            output,
            name=name,
            source_lang=source_lang,
            target_lang=target_lang,
            target_tag=target_tag,
            positions=positions or "",
            dev=dev,
        )
    log.info("written to %s; next: nmt translate -m %s", output, output)
