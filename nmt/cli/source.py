"""The sources that `nmt translate` can read: lines of text, one text, a document, or the documents in a folder."""

import os
import re
from pathlib import Path
from shlex import quote
from typing import Literal, NamedTuple

from nmt.cli.streams import DASH
from nmt.documents import SUFFIXES
from nmt.errors import InputError

# The beginning of a path on Linux, macOS and Windows: /a, ./a, ../a, ~/a, C:\a, .\a, \\server\a
PATH_START = re.compile(r"/|~[/\\]|\.\.?[/\\]|[A-Za-z]:[/\\]|\\\\")
# Suffixes of documents that -i reads as lines. `.arb` and `.ts` may be language codes instead, as in `new.ts`.
LINES = (".arb", ".htm", ".html", ".md", ".ts", ".txt")
KNOWN_SUFFIXES = (*SUFFIXES, ".gz")


class Source(NamedTuple):
    """The source that a command translates."""

    kind: Literal["lines", "text", "document", "folder"]
    path: Path | None = None  # path of a file or folder; None for a text and for stdin
    text: str = ""  # only for a text

    @property
    def suffix(self) -> str:
        """Return the suffix of a document, such as .docx. It is empty for other sources."""
        return self.path.suffix.lower() if self.path and self.kind == "document" else ""


def source_of(text: str | None, input_file: Path | None, output: Path | None) -> Source:
    """Return the source in the argument TEXT or the option -i.

    Raises InputError if both are given, or if a path is missing or of the wrong kind.
    """
    if text is None:
        check_lines(input_file, output)
        return Source("lines", input_file)
    if input_file is not None:
        raise InputError("both a TEXT and -i were given", hint="give one of them")

    # If there is a file or folder TEXT, take it as a path. The methods of `Path` would raise an error for a long TEXT.
    if os.path.isdir(text):  # noqa: PTH112
        return Source("folder", Path(text))
    if os.path.exists(text):  # noqa: PTH110
        path = Path(text)
        if path.is_file() and path.suffix.lower() in SUFFIXES:
            return Source("document", path)
        hint = f"lines of text: nmt translate -i {quote(text)}; documents end in {', '.join(SUFFIXES)}"
        raise InputError(f"'{text}' is a file, not a text or a document", hint=hint)

    # TEXT may be a mistyped path. To translate it as a text would hide the mistake.
    if is_path(text):
        hint = f"check the name; to translate it as a text: echo {quote(text)} | nmt translate"
        raise InputError(f"no such file or folder: {text}", hint=hint)

    # The shell may pass bytes that are not UTF-8.
    return Source("text", text=text.encode(errors="surrogateescape").decode(errors="replace"))


def is_path(text: str) -> bool:
    """Return whether a TEXT looks like a path.

    Such a TEXT has no white space. It begins like a path, or ends in a slash or a known suffix.
    """
    if any(map(str.isspace, text)):
        return False
    has_known_suffix = Path(text).suffix.lower() in KNOWN_SUFFIXES
    return has_known_suffix or text.endswith("/") or PATH_START.match(text) is not None


def check_sentence(text: str) -> None:
    """Raise InputError if a TEXT is a path instead of a sentence."""
    if is_path(text) or os.path.isfile(text):  # noqa: PTH113 - it returns False for a text too long for a file name
        raise InputError(f"one sentence is needed, not the name of a file: {text}", hint="give a sentence in quotes")


def check_lines(input_file: Path | None, output: Path | None) -> None:
    """Raise InputError if -i names a folder, a document that is not read line by line, or the same file as -o."""
    if input_file is None or input_file == DASH:
        return
    suffix = input_file.suffix.lower()
    if input_file.is_dir() or (suffix in SUFFIXES and suffix not in LINES):
        hint = f"for documents: nmt translate {quote(str(input_file))} -o NEW{suffix}"
        raise InputError(f"{input_file} is not a file with lines of text", hint=hint)
    if output is not None and input_file.is_file() and output.is_file() and output.samefile(input_file):
        raise InputError(f"{input_file} would be overwritten", hint="give another name after -o")
