"""Translates a file of lines into another file: resumable, in shards, with one or several processes."""

import json
from collections import deque
from collections.abc import Callable
from contextlib import closing
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.cli import streams
from nmt.cli.resumable import resumed_output
from nmt.cli.shards import Shard
from nmt.cli.streams import count_lines
from nmt.distributed import launched, rank
from nmt.errors import ConfigError, DataError, InputError
from nmt.files import is_special
from nmt.processes import usable_cores
from nmt.text.lines import iter_lines

if TYPE_CHECKING:
    from nmt.decode.segments import Translation
    from nmt.decode.translator import Translator
    from nmt.documents.markup import MarkupTranslator

Render = Callable[["Translation", str], str]  # from a translation and its line of `beside` to the output line


class Files(NamedTuple):
    """The files that `rewrite` reads and writes."""

    source: Path
    output: Path
    shard: Shard | None = None
    beside: Path | None = None  # line N belongs to line N of the source, for example a reference


def checked_files(
    command: str, source: Path | None, output: Path | None, shard: str | None = None, beside: Path | None = None
) -> Files:
    """Check the files of a command; `command` is its name with options, for messages.

    Raises:
        InputError: input or output is not a file, so resuming is impossible; or `shard` is invalid.
        DataError: `beside` and the source have different numbers of lines.
    """
    if source is None or output is None or any(path == streams.DASH or is_special(path) for path in (source, output)):
        raise InputError(f"nmt {command} needs input and output files", hint=f"nmt {command} -i FILE -o FILE")
    if beside is not None and (counts := [count_lines(path) for path in (source, beside)])[0] != counts[1]:
        reason = f"{source} has {counts[0]} lines but {beside} has {counts[1]}"
        raise DataError(reason, hint="line N of one must translate line N of the other")
    return Files(source, output, None if shard is None else Shard.parse(shard), beside)


def rewrite(
    files: Files,
    models: list[Path],
    translator: "Translator | MarkupTranslator",
    arguments: dict[str, Any],
    settings: dict[str, Any],
    render: Render,
) -> None:
    """Translate the lines of a file or of a shard; only the first rank reads and writes files.

    Args:
        files: input and output.
        models: paths that the translator was loaded from.
        translator: the translator of this rank.
        arguments: keyword arguments of `translate_lines`.
        settings: what the output depends on besides files and models, compared on --resume; JSON-serializable.
        render: returns the output line of a translation.
    """
    if rank() > 0:
        deque(translator.translate_lines([], **arguments), maxlen=0)  # translates this rank's share of the lines
        return
    span = (files.shard or Shard(0, 1)).span(count_lines(files.source))
    output, origin = files.output, origin_of(files, models, settings)
    if files.shard:
        output = files.shard.file(output)
        origin = {**origin, "shard": str(files.shard), "lines": str(len(span))}
    others = iter_lines([files.beside]) if files.beside else (line for line in repeat(""))  # unlike repeat, has close()
    with (
        resumed_output(output, origin, keep_header=files.shard is not None) as (out, n_done),
        closing(iter_lines([files.source])) as lines,
        closing(others) as beside,
    ):
        first = span.start + n_done
        own = islice(lines, first, span.stop)
        translations = translator.translate_lines(own, first=first + 1, **arguments)
        bar = streams.with_bar(translations, len(span), n_done)
        for translation, other in zip(bar, islice(beside, first, None), strict=False):
            out.write(render(translation, other).encode() + b"\n")
            out.flush()  # so that --resume after a kill loses nothing
        deque(lines, maxlen=0)  # reads to the end, to warn of bad UTF-8
    if files.shard:
        streams.log.info("written to %s; `nmt merge %s` joins all shards", output, files.output)


def origin_of(files: Files, models: list[Path], settings: dict[str, Any]) -> dict[str, str]:
    """Return hashes of input and models, and the options; an output can be resumed only if they are the same."""
    from nmt.decode.translator import model_files
    from nmt.run.directory import hash_files

    inputs = [files.source, *([files.beside] if files.beside else [])]
    of_models = [file for path in models for file in model_files(path)]
    return {"input": hash_files(inputs), "model": hash_files(of_models), "option": json.dumps(settings)}


def check_direction(translator: "Translator", source: Path) -> None:
    """Raise InputError if the suffix of the file is the language that the model translates into."""
    from nmt.config import base_language, base_languages, language_of

    source_language, target_language = base_languages(translator.config.data)
    if target_language and source_language != target_language == base_language(language_of(source)):
        direction = f"the model translates {source_language or 'something else'} to {target_language}"
        hint = f"give -m a model that translates {target_language}, or -i the text of the other side"
        raise InputError(f"{direction}, but {source} is named as {target_language}", hint=hint)


def share_cores(processes: int, threads: int, device: str) -> tuple[int, int]:
    """Return the number of processes to start, and the CPU threads of each; 0 keeps torch's default."""
    if processes > 1:
        if device not in ("auto", "cpu"):
            raise ConfigError("--processes share a CPU", hint="for several GPUs: torchrun -m nmt translate …")
        threads = max((threads or usable_cores()) // processes, 1)
    return (1 if launched().n_ranks > 1 else processes), threads
