"""Resumable translation of a file of lines.

Translations are written to the part file, `FILE.part`, and copied to `FILE` at the end. The header of a part file is a
hash of the input, the model and the options. A part file with another header is refused.

Lines are translated in windows, because the scores of a line depend on the other lines of its batch. A resumed
translation begins with the first incomplete window.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nmt.cli import streams
from nmt.cli.streams import log
from nmt.errors import InputError, OutputError, os_errors_as
from nmt.files import atomic_writer, hash_file, is_special, locked, sha256
from nmt.text.lines import iter_lines

if TYPE_CHECKING:
    from nmt.translate.markup import MarkupTranslator
    from nmt.translate.translator import Translator
    from nmt.translate.units import Translation

WINDOW = 250  # number of lines that are translated together


def is_named_file(path: Path | None) -> bool:
    """Return whether a path names an ordinary file. The file may not exist yet."""
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
        settings: other values on which the output depends. They are hashed as JSON.
        render: a function that formats a translation as an output line.
    """
    from nmt.decode.engines.ctranslate2_engine import contents
    from nmt.run.directory import model_file
    from nmt.translate.loading import is_export

    # 1. Hash everything that the output depends on.
    hashes = []
    for path in models:
        digest = sha256(contents(path)) if is_export(path) else hash_file(model_file(path))
        hashes.append(digest)
    origin = [hash_file(source), *hashes, arguments["options"].model_dump(), settings]
    header = f"{sha256(json.dumps(origin).encode())}\n".encode()
    # 2. Translate the lines that are not in the part file yet.
    n_lines = streams.count_lines(source)
    arguments = {"window": WINDOW, **arguments}
    with resumed_output(output, header, arguments["window"]) as (out, n_done):
        lines = islice(iter_lines([source]), n_done, None)
        translations = translator.translate_lines(lines, first=n_done + 1, **arguments)
        streams.write_at_once(out, streams.with_bar(map(render, translations), n_lines, n_done))


@contextlib.contextmanager
def resumed_output(path: Path, header: bytes, window: int) -> Iterator[tuple[BinaryIO, int]]:
    """Yield the open part file and the number of lines in it. The caller appends more lines.

    Lines after the last whole window are removed first. After the `with` block, the lines are copied to `path`, and
    the part file is deleted.

    Raises:
        InputError: the part file has another header, or another process is writing it.
        OutputError: the part file cannot be written.
    """
    path = Path(os.path.realpath(path))
    part = path.with_name(f"{path.name}.part")
    with contextlib.ExitStack() as stack:
        # 1. Open and lock the part file.
        hint = "check that the directory exists and that you may write there"
        with os_errors_as(OutputError, f"write {part}", hint=hint):
            part.open("a+b").close()  # unlike `touch`, keeps the mtime of an existing file
            file = stack.enter_context(part.open("rb+"))
        stack.enter_context(locked(part, holder="translation"))
        # 2. Compare the header. It may be incomplete if a process was killed.
        if not header.startswith(file.readline()):
            hint = "restore it, or delete the part file to start over"
            raise InputError(f"{part} was started with another input, model or option", hint=hint)
        file.seek(0)
        file.write(header)
        # 3. Remove the lines after the last whole window.
        n_complete = sum(line.endswith(b"\n") for line in file)
        n_lines = n_complete // window * window
        file.seek(len(header))
        n_bytes = sum(map(len, islice(file, n_lines)))
        file.truncate(len(header) + n_bytes)
        file.seek(0, os.SEEK_END)
        if n_lines:
            log.info("%s: resuming after %d lines", part, n_lines)
        yield file, n_lines
        # 4. Copy the lines without the header to the output.
        file.seek(len(header))
        with atomic_writer(path) as whole:
            shutil.copyfileobj(file, whole)
        part.unlink(missing_ok=True)
