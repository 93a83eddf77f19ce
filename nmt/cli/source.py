"""The sources that `nmt translate` can read: lines of text, one text, a document, or the documents in a folder."""

import codecs
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
N_PROBED = 4096  # number of bytes that `is_text` reads from a file


class Source(NamedTuple):
    """The source that a command translates."""

    kind: Literal["lines", "text", "document", "folder"]
    path: Path | None = None  # path of a file or folder; None if the source is a text or the lines of stdin
    text: str = ""  # the text, if the source is a text

    @property
    def is_document(self) -> bool:
        return self.kind in ("document", "folder")

    @property
    def suffix(self) -> str:
        """Return the suffix of a document in small letters, such as .docx, or "" if the source is no document."""
        return self.path.suffix.lower() if self.path and self.kind == "document" else ""

    @property
    def has_columns(self) -> bool:
        """Return whether this source is a .csv file, or a folder, which may have .csv files."""
        return self.kind == "folder" or self.suffix == ".csv"


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
        raise not_a_document(path)

    # If there is no such file, TEXT may be a path with a typing error. Translating TEXT as a text would hide the error.
    if is_path(text, output):
        hint = f"check the name; to translate it as a text: echo {quote(text)} | nmt translate"
        raise InputError(f"no such file or folder: {text}", hint=hint)

    # The shell may pass bytes that are not UTF-8.
    return Source("text", text=text.encode(errors="surrogateescape").decode(errors="replace"))


def is_path(text: str, output: Path | None = None) -> bool:
    """Return whether a TEXT, for which there is no file, is probably a mistyped path and not a sentence or a word.

    A TEXT without white space is a path if it begins like a path, if it ends in a slash or in a known file suffix, or
    if the output is a folder. A TEXT with white space is a path if it has the same file suffix as the output, such as
    'my report.docx' -o new.docx.
    """
    suffix = Path(text).suffix.lower()
    is_file_name = suffix in KNOWN_SUFFIXES
    if any(map(str.isspace, text)):
        # A sentence can end in a file name, but its translation is rarely written to a file with the same suffix.
        return is_file_name and output is not None and output.suffix.lower() == suffix
    is_into_folder = output is not None and output.is_dir()
    return is_file_name or is_into_folder or text.endswith("/") or PATH_START.match(text) is not None


def check_sentence(text: str) -> None:
    """Raise InputError if a TEXT that must be a sentence is the name of a file or looks like a path."""
    if is_path(text) or os.path.isfile(text):  # noqa: PTH113 - it returns False for a text too long for a file name
        raise InputError(f"one sentence is needed, not the name of a file: {text}", hint="give a sentence in quotes")


def not_a_document(path: Path) -> InputError:
    """Return the error for a TEXT that is the name of a file, if the file has none of nmt's document formats."""
    # The file has lines of text: suggest -i.
    if is_text(path):
        hint = f"nmt translate -i {quote(str(path))}; to translate the name itself, pipe it in"
        return InputError(f"'{path}' is a file, not a text", hint=hint)
    # The file has an unknown format or encoding.
    message = f"'{path}' is a file, but neither text in UTF-8 nor a document that nmt reads"
    return InputError(message, hint=f"save it as one of {', '.join(SUFFIXES)}; other encodings: iconv -t utf-8")


def is_text(path: Path) -> bool:
    """Return whether a file may consist of lines of text, judging by its first bytes.

    If the bytes cannot tell, as for a pipe, an unreadable file or a .gz file, return True.
    """
    if not path.is_file() or path.suffix == ".gz":
        return True
    try:
        with path.open("rb") as file:
            start = file.read(N_PROBED)
        codecs.getincrementaldecoder("utf-8")().decode(start)  # accepts an incomplete character at the end
    except UnicodeDecodeError:
        return False
    except OSError:
        return True
    return b"\0" not in start


def check_lines(input_file: Path | None, output: Path | None) -> None:
    """Raise InputError if -i names a folder, a Word or PowerPoint document, or the same file as -o."""
    if input_file is None or input_file == DASH:
        return
    name = quote(str(input_file))
    # The input is a folder.
    if input_file.is_dir():
        hint = f"for the documents in it: nmt translate {name} -o NEW"
        raise InputError(f"{input_file} is a folder, not lines of text", hint=hint)
    # The input is a document.
    if input_file.suffix.lower() in ZIPPED:
        hint = f"nmt translate {name} -o NEW{input_file.suffix}"
        raise InputError(f"{input_file} is a document, not lines of text", hint=hint)
    # The input is also the output, so the translation would replace the input.
    if output is not None and input_file.is_file() and output.is_file() and output.samefile(input_file):
        raise InputError(f"{input_file} would be overwritten", hint="give another name after -o")
