"""Translates a file of lines into another file, resumably."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli import streams
from nmt.cli.resumable import resumed_output
from nmt.errors import InputError
from nmt.files import hash_file, is_special, sha256
from nmt.text.lines import iter_lines

if TYPE_CHECKING:
    from nmt.decode.segments import Translation
    from nmt.decode.translator import Translator
    from nmt.documents.markup import MarkupTranslator


def checked_files(command: str, source: Path | None, output: Path | None) -> tuple[Path, Path]:
    """Return the input and the output of `command`. Raises InputError if one is no file: it could not be resumed."""
    if source is None or output is None or any(path == streams.DASH or is_special(path) for path in (source, output)):
        raise InputError(f"nmt {command} needs input and output files", hint=f"nmt {command} -i FILE -o FILE")
    return source, output


def rewrite(
    source: Path,
    output: Path,
    models: list[Path],
    translator: "Translator | MarkupTranslator",
    arguments: dict[str, Any],
    settings: dict[str, Any],
    render: Callable[["Translation"], str],
) -> None:
    """Translate the lines of a file.

    Args:
        models: paths that the translator was loaded from.
        arguments: keyword arguments of `translate_lines`.
        settings: what the output depends on besides files, models and search options, as JSON values.
        render: returns the output line of a translation.
    """
    from nmt.decode.engines.ctranslate2_engine import contents
    from nmt.decode.translator import is_export, model_file

    n_lines = streams.count_lines(source)
    of_models = [sha256(contents(path)) if is_export(path) else hash_file(model_file(path)) for path in models]
    option = json.dumps({**arguments["options"].model_dump(), **settings})
    origin = {"input": hash_file(source), "model": " ".join(of_models), "option": option}
    with resumed_output(output, origin) as (out, n_done):
        lines = islice(iter_lines([source]), n_done, None)
        translations = translator.translate_lines(lines, first=n_done + 1, **arguments)
        for translation in streams.with_bar(translations, n_lines, n_done):
            out.write(render(translation).encode() + b"\n")
            out.flush()  # so that --resume after a kill loses nothing


def check_direction(translator: "Translator", source: Path) -> None:
    """Raise InputError if the suffix of the file is the language that the model translates into."""
    from nmt.config import base_language, base_languages, language_of

    source_language, target_language = base_languages(translator.config.data)
    if target_language and source_language != target_language == base_language(language_of(source)):
        direction = f"the model translates {source_language or 'something else'} to {target_language}"
        hint = f"give -m a model that translates {target_language}, or -i the text of the other side"
        raise InputError(f"{direction}, but {source} is named as {target_language}", hint=hint)
