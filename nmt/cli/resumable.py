"""Resumable translation of a file of lines: translations go to `FILE.part` and are copied to `FILE` at the end.

The first line of the part file is its header. The header has hashes of the input, the model and the options. These
hashes together are called the origin of the output. A command resumes a part file only if the origin in the header is
the origin of the command's own output.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nmt.cli import streams
from nmt.errors import InputError, OutputError
from nmt.files import atomic_writer, hash_file, is_special, locked, sha256
from nmt.text.lines import iter_lines

if TYPE_CHECKING:
    from nmt.translate.markup import MarkupTranslator
    from nmt.translate.translator import Translator
    from nmt.translate.units import Translation

WINDOW = 250  # number of lines that are translated together; an interrupted window is translated again as a whole


def is_named_file(path: Path | None) -> bool:
    """Return whether a path names an ordinary file, which may not exist yet. Only such a file can be read again."""
    return path is not None and path != streams.DASH and not is_special(path)


def rewrite(
    source: Path,
    output: Path,
    models: list[Path],
    translator: "Translator | MarkupTranslator",
    arguments: dict[str, Any],
    settings: dict[str, Any],
    render: Callable[["Translation"], str],
) -> None:
    """Translate the lines of a file. If an earlier command was interrupted, go on where it stopped.

    Args:
        models: the paths that the translator was loaded from.
        arguments: arguments of `translate_lines`.
        settings: the values on which the output depends besides files, models and search options, as JSON values.
        render: a function that formats a translation as an output line.
    """
    from nmt.decode.engines.ctranslate2_engine import contents
    from nmt.translate.loading import is_export, model_file

    # 1. Describe the origin of the output.
    hashes = [sha256(contents(path)) if is_export(path) else hash_file(model_file(path)) for path in models]
    settings = {**arguments["options"].model_dump(), **settings}
    origin = {
        "input": hash_file(source),
        "model": " ".join(hashes),
        "option": sha256(json.dumps(settings).encode()),  # a hash, because the settings may have a long glossary
    }
    n_lines = streams.count_lines(source)
    with resumed_output(output, origin) as (out, n_done):
        # 2. Find the line to begin with. The interrupted window is translated again as a whole, because the scores of a
        # line, and in bf16 also the translation of a line, depend on the other lines of the batch.
        window = arguments.get("window", WINDOW)
        n_skipped = n_done // window * window
        lines = islice(iter_lines([source]), n_skipped, None)
        # 3. Translate, and write the lines that are not in the part file yet.
        arguments = {**arguments, "window": window, "first": n_skipped + 1}
        translations = islice(translator.translate_lines(lines, **arguments), n_done - n_skipped, None)
        for translation in streams.with_bar(translations, n_lines, n_done):
            out.write(render(translation).encode() + b"\n")
            out.flush()  # so that --resume after a kill loses nothing


@contextlib.contextmanager
def resumed_output(path: Path, origin: Mapping[str, str]) -> Iterator[tuple[BinaryIO, int]]:
    """Yield the open part file, to which lines can be appended, and the number of lines that it has already.

    If the `with` block succeeds, the lines are copied to `path` and the part file is deleted. Raises InputError if the
    part file has another origin or another process is writing it, and OutputError if the part file cannot be written.
    """
    path = Path(os.path.realpath(path))
    part = path.with_name(f"{path.name}.part")
    header = json.dumps(origin).encode() + b"\n"
    with contextlib.ExitStack() as stack:
        # 1. Open and lock the part file.
        try:
            part.open("a+b").close()  # creates the file; unlike `touch`, keeps the mtime of an existing file
            file = stack.enter_context(part.open("rb+"))
            stack.enter_context(locked(part))
        except OSError as error:
            hint = "check that the directory exists and that you may write there"
            raise OutputError(f"cannot write {part}: {error.strerror or error}", hint=hint) from error
        except InputError as error:
            raise InputError(f"another command is writing {part}", hint="wait for it to end") from error
        # 2. Compare the header. If a process was killed while it wrote the header, the header is incomplete.
        if not header.startswith(file.readline()):
            hint = "restore it, or delete the part file to start over"
            raise InputError(f"{part} was started with another input, model or option", hint=hint)
        file.seek(0)
        file.write(header)
        # 3. Count the lines. If the last line is incomplete, remove it.
        n_lines = 0
        end = len(header)
        for line in file:
            if line.endswith(b"\n"):
                n_lines += 1
                end += len(line)
        file.seek(end)
        file.truncate()
        if n_lines:
            streams.log.info("%s: resuming after %d lines", part, n_lines)
        yield file, n_lines
        # 4. Copy the lines without the header to the output.
        file.seek(len(header))
        with atomic_writer(path) as whole:
            shutil.copyfileobj(file, whole)
        part.unlink(missing_ok=True)
