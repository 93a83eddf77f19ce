"""Translates a file of lines into another file: resumable, in shards."""

import json
from collections import deque
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.cli import streams
from nmt.cli.resumable import read_origin, resumed_output
from nmt.cli.shards import Shard
from nmt.errors import InputError
from nmt.files import is_special, open_file, sha256
from nmt.text.lines import iter_lines

if TYPE_CHECKING:
    from nmt.decode.segments import Translation
    from nmt.decode.translator import Translator
    from nmt.documents.markup import MarkupTranslator


class Files(NamedTuple):
    """The files that `rewrite` reads and writes."""

    source: Path
    output: Path
    shard: Shard | None = None


def checked_files(command: str, source: Path | None, output: Path | None, shard: str | None = None) -> Files:
    """Return the files of `command`. Raises InputError if `shard` is invalid, or a path is no file: it must resume."""
    if source is None or output is None or any(path == streams.DASH or is_special(path) for path in (source, output)):
        raise InputError(f"nmt {command} needs input and output files", hint=f"nmt {command} -i FILE -o FILE")
    return Files(source, output, None if shard is None else Shard.parse(shard))


def rewrite(
    files: Files,
    models: list[Path],
    translator: "Translator | MarkupTranslator",
    arguments: dict[str, Any],
    settings: dict[str, Any],
    render: Callable[["Translation"], str],
) -> None:
    """Translate the lines of a file or of a shard.

    Args:
        models: paths that the translator was loaded from.
        arguments: keyword arguments of `translate_lines`.
        settings: what the output depends on besides files, models and search options, as JSON values.
        render: returns the output line of a translation.
    """
    from nmt.decode.translator import model_files
    from nmt.run.directory import hash_files

    of_models = [file for path in models for file in model_files(path)]
    option = sha256(json.dumps({**arguments["options"].model_dump(), **settings}).encode())  # a glossary is long
    origin = {"input": hash_files([files.source]), "model": hash_files(of_models), "option": option}
    span, output = range(streams.count_lines(files.source)), files.output
    if files.shard:
        span, output = files.shard.span(len(span)), files.shard.file(output)
        origin = {**files.shard.origin(origin), "lines": str(len(span))}
        if output.is_file():
            with open_file(output) as file:
                if read_origin(file) == origin:
                    streams.log.info("%s is complete", output)
                    return
    with (
        resumed_output(output, origin, keep_header=files.shard is not None) as (out, n_done),
        closing(iter_lines([files.source])) as lines,
    ):
        first = span.start + n_done
        translations = translator.translate_lines(islice(lines, first, span.stop), first=first + 1, **arguments)
        for translation in streams.with_bar(translations, len(span), n_done):
            out.write(render(translation).encode() + b"\n")
            out.flush()  # so that --resume after a kill loses nothing
        deque(lines, maxlen=0)  # reads to the end, to warn of bad UTF-8
    if files.shard:
        streams.log.info("written to %s; `nmt merge %s` joins all shards", output, files.output)


def check_direction(translator: "Translator", source: Path) -> None:
    """Raise InputError if the suffix of the file is the language that the model translates into."""
    from nmt.config import base_language, base_languages, language_of

    source_language, target_language = base_languages(translator.config.data)
    if target_language and source_language != target_language == base_language(language_of(source)):
        direction = f"the model translates {source_language or 'something else'} to {target_language}"
        hint = f"give -m a model that translates {target_language}, or -i the text of the other side"
        raise InputError(f"{direction}, but {source} is named as {target_language}", hint=hint)
