"""The sources that `nmt translate` can read: lines of text, one text, a document, or the documents in a folder."""

import os
import re
from pathlib import Path
from shlex import quote
from typing import Literal, NamedTuple

from nmt.cli.streams import DASH
from nmt.documents import SUFFIXES, ZIPPED
from nmt.errors import InputError

# The beginning of a path on Linux, macOS and Windows: /a, ./a, ../a, ~/a, C:\a, .\a, \\server\a
PATH_START = re.compile(r"/|~[/\\]|\.\.?[/\\]|[A-Za-z]:[/\\]|\\\\")
KNOWN_SUFFIXES = (*SUFFIXES, ".gz", ".tmx", ".tsv")


class Source(NamedTuple):
    """The source that a command translates."""

    kind: Literal["lines", "text", "document", "folder"]
    path: Path | None = None  # path of a file or folder; None if the source is a text or the lines of stdin
    text: str = ""  # the text, if the source is a text

    @property
    def suffix(self) -> str:
        """Return the suffix of a document in small letters, such as .docx, or "" if the source is no document."""
        return self.path.suffix.lower() if self.path and self.kind == "document" else ""


def source_of(text: str | None, input_file: Path | None, output: Path | None) -> Source:
    """Return the source that the argument TEXT names, or without TEXT, the source that the option -i names.

    Invalid UTF-8 in a text is replaced. Raises InputError if TEXT and -i are both given, if TEXT names a file that is
    not a document, if TEXT looks like a path but does not exist, or if -i names a folder, a document or the output.
    """
    if text is None:
        check_lines(input_file, output)
        return Source("lines", input_file)
    if input_file is not None:
        raise InputError("both a TEXT and -i were given", hint="give one of them")

    # If there is a file or folder with the name TEXT, take TEXT as a path. If TEXT is too long for a file name, the
    # functions of `os` return False, whereas the methods of `Path` raise an error.
    if os.path.isdir(text):  # noqa: PTH112
        return Source("folder", Path(text))
    if os.path.exists(text):  # noqa: PTH110
        path = Path(text)
        if path.is_file() and path.suffix.lower() in SUFFIXES:
            return Source("document", path)
        hint = f"lines of text: nmt translate -i {quote(text)}; documents end in {', '.join(SUFFIXES)}"
        raise InputError(f"'{text}' is a file, not a text or a document", hint=hint)

    # If there is no such file, TEXT may be a path with a typing error. Translating TEXT as a text would hide the error.
    if is_path(text):
        hint = f"check the name; to translate it as a text: echo {quote(text)} | nmt translate"
        raise InputError(f"no such file or folder: {text}", hint=hint)

    # The shell may pass bytes that are not UTF-8.
    return Source("text", text=text.encode(errors="surrogateescape").decode(errors="replace"))


def is_path(text: str) -> bool:
    """Return whether a TEXT, for which there is no file, is probably a mistyped path and not a sentence or a word.

    A TEXT without white space is a path if it begins like a path, or if it ends in a slash or in a known file suffix.
    """
    if any(map(str.isspace, text)):
        return False
    has_known_suffix = Path(text).suffix.lower() in KNOWN_SUFFIXES
    return has_known_suffix or text.endswith("/") or PATH_START.match(text) is not None


def check_sentence(text: str) -> None:
    """Raise InputError if a TEXT that must be a sentence is the name of a file or looks like a path."""
    if is_path(text) or os.path.isfile(text):  # noqa: PTH113 - it returns False for a text too long for a file name
        raise InputError(f"one sentence is needed, not the name of a file: {text}", hint="give a sentence in quotes")


def check_lines(input_file: Path | None, output: Path | None) -> None:
    """Raise InputError if -i names a folder, a Word or PowerPoint document, or the same file as -o."""
    if input_file is None or input_file == DASH:
        return
    name = quote(str(input_file))
    # The input is a folder or a document.
    if input_file.is_dir() or input_file.suffix.lower() in ZIPPED:
        hint = f"for documents: nmt translate {name} -o NEW{input_file.suffix}"
        raise InputError(f"{input_file} is not a file with lines of text", hint=hint)
    # The input is also the output, so the translation would replace the input.
    if output is not None and input_file.is_file() and output.is_file() and output.samefile(input_file):
        raise InputError(f"{input_file} would be overwritten", hint="give another name after -o")
