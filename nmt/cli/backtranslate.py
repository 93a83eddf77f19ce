"""`nmt backtranslate`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.cli import options, streams
from nmt.cli.resumable import checked_files, rewrite
from nmt.errors import InputError

if TYPE_CHECKING:
    from nmt.decode.segments import Translation
    from nmt.decode.translator import Translator


def backtranslate(
    model: Annotated[list[Path], typer.Option("--model", "-m", help="Of the reverse direction. Several: an ensemble.")],
    input_file: Annotated[Path, typer.Option("--input", "-i", help="Lines of the target language.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Synthetic source lines; FILE.part until complete.")],
    tag: Annotated[str, typer.Option(help='Word at the beginning of each line; "" is none.')] = "<BT>",
    languages: options.Languages = "",
    beam: options.Beam = None,
    sample: options.Sample = False,
    temperature: options.Temperature = 1.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    seed: options.Seed = 1,
    batch_size: options.BatchSize = None,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
) -> None:
    """Make training pairs from text of the target language.

    A model of the reverse direction translates the text (Sennrich et al. 2016). Each translation gets a tag, so that
    the new model can distinguish it from human text (Caswell et al. 2019). Line N of the output is the source of line N
    of the input; a blank line stays blank. Repeat the command to continue after an interruption.
    """
    if tag and tag.split() != [tag]:
        raise InputError(f"the tag {tag!r} is not one word", hint='for example --tag "<BT>", or --tag "" for none')
    files = checked_files("backtranslate", input_file, output)
    beam = 1 if sample and beam is None else beam
    search = options.search_options(
        "--sample", beam=beam, sample=sample, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, scores=False
    )
    paths, translator = options.load_translator(model, device, precision, engine, languages=languages)
    check_direction(translator, input_file)
    chosen = translator.with_options(**search)
    arguments: dict[str, Any] = {"options": chosen, "batch_size": batch_size}
    settings = {"tag": tag, "precision": precision, "engine": engine, "languages": languages}
    rewrite(*files, paths, translator, arguments, settings, partial(tagged, tag=tag))
    symbols = f' and tokenizer.symbols: "{tag}"' if tag else ""
    message = "to train on it, add %s to data.train.source, %s to data.train.target%s"
    streams.log.info(message, output, input_file, symbols)


def tagged(translation: "Translation", *, tag: str) -> str:
    """Return the tag and the translation; a blank translation stays blank, so that training drops the pair."""
    text = translation.text
    return f"{tag} {text}" if tag and text.strip() else text


def check_direction(translator: "Translator", source: Path) -> None:
    """Raise InputError if the suffix of the file is the language that the model translates into."""
    from nmt.config import base_language, base_languages, language_of

    source_language, target_language = base_languages(translator.config.data)
    if target_language and source_language != target_language == base_language(language_of(source)):
        direction = f"the model translates {source_language or 'something else'} to {target_language}"
        hint = f"give -m a model that translates {target_language}, or -i the text of the other side"
        raise InputError(f"{direction}, but {source} is named as {target_language}", hint=hint)
