"""What `nmt translate` reads: lines of text, a text, a document, or the documents in a folder."""

import codecs
import os
import re
from pathlib import Path
from shlex import quote
from typing import Literal, NamedTuple

from nmt.cli.streams import DASH
from nmt.documents import SUFFIXES, ZIPPED
from nmt.errors import InputError

# As paths begin on Linux, on macOS and on Windows: /a, ./a, ../a, ~/a, C:\a, .\a, \\server\a
PATH_START = re.compile(r"/|~[/\\]|\.\.?[/\\]|[A-Za-z]:[/\\]|\\\\")
KNOWN_SUFFIXES = (*SUFFIXES, ".gz", ".tmx", ".tsv")
N_PROBED = 4096  # bytes of a file that tell whether it is text


class Source(NamedTuple):
    """What a command translates."""

    kind: Literal["lines", "text", "document", "folder"]
    path: Path | None = None  # of lines, None is stdin; of a text, None
    text: str = ""

    @property
    def is_document(self) -> bool:
        return self.kind in ("document", "folder")

    @property
    def suffix(self) -> str:
        """The suffix of a document, such as .docx; the empty text for everything else."""
        return self.path.suffix.lower() if self.path and self.kind == "document" else ""

    @property
    def has_columns(self) -> bool:
        """Return whether this is a .csv file, or a folder, which may have such files."""
        return self.kind == "folder" or self.suffix == ".csv"


def source_of(text: str | None, input_file: Path | None, output: Path | None) -> Source:
    """Return what the argument TEXT, or without it the option -i, names. Bad UTF-8 of a text is replaced.

    Raises InputError if both are given, if TEXT names a file that is no document, or if it is a path to nothing.
    """
    if text is None:
        check_lines(input_file, output)
        return Source("lines", input_file)
    if input_file is not None:
        raise InputError("both a TEXT and -i were given", hint="give one of them")

    # What exists is a path. These functions return False for a text that is too long for a file name, Path's raise.
    if os.path.isdir(text):  # noqa: PTH112
        return Source("folder", Path(text))
    if os.path.exists(text):  # noqa: PTH110
        path = Path(text)
        if path.is_file() and path.suffix.lower() in SUFFIXES:
            return Source("document", path)
        raise not_a_document(path)

    # What does not exist may be a path with a typing error. Translating it as a text would hide the error.
    if is_path(text, output):
        hint = f"check the name; to translate it as a text: echo {quote(text)} | nmt translate"
        raise InputError(f"no such file or folder: {text}", hint=hint)

    # The shell may pass bytes that are not UTF-8.
    return Source("text", text=text.encode(errors="surrogateescape").decode(errors="replace"))


def is_path(text: str, output: Path | None = None) -> bool:
    """Return whether a TEXT of which there is no file is a mistyped path, not a sentence or a word.

    A path has no white space, and begins as paths do, ends in a slash or the suffix of a format, or is to be written to
    a folder. With white space, it is one if the output has the same suffix: 'my report.docx' -o new.docx.
    """
    suffix = Path(text).suffix.lower()
    is_file_name = suffix in KNOWN_SUFFIXES
    if any(map(str.isspace, text)):
        # A sentence may well end in the name of a file; but its translation is not written to another such file.
        return is_file_name and output is not None and output.suffix.lower() == suffix
    is_into_folder = output is not None and output.is_dir()
    return is_file_name or is_into_folder or text.endswith("/") or PATH_START.match(text) is not None


def check_sentence(text: str) -> None:
    """Raise InputError for a TEXT that is a path, or the name of a file, where only a sentence can be used."""
    if is_path(text) or os.path.isfile(text):  # noqa: PTH113 - it returns False for a text too long for a file name
        raise InputError(f"one sentence is needed, not the name of a file: {text}", hint="give a sentence in quotes")


def not_a_document(path: Path) -> InputError:
    """Return the error for a TEXT that names a file which is no document, but lines of text or of an unknown format."""
    # Lines of text are for -i.
    if is_text(path):
        hint = f"nmt translate -i {quote(str(path))}; to translate the name itself, pipe it in"
        return InputError(f"'{path}' is a file, not a text", hint=hint)
    # Others are of a format, or an encoding, that cannot be read.
    message = f"'{path}' is a file, but neither text in UTF-8 nor a document that nmt reads"
    return InputError(message, hint=f"save it as one of {', '.join(SUFFIXES)}; other encodings: iconv -t utf-8")


def is_text(path: Path) -> bool:
    """Return whether a file may be lines of text: pipes, files that cannot be read and .gz may be."""
    if not path.is_file() or path.suffix == ".gz":
        return True
    try:
        with path.open("rb") as file:
            start = file.read(N_PROBED)
        codecs.getincrementaldecoder("utf-8")().decode(start)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    except OSError:
        return True
    return b"\0" not in start


def check_lines(input_file: Path | None, output: Path | None) -> None:
    """Raise InputError if -i names a folder, a Word or PowerPoint document, or the output."""
    if input_file is None or input_file == DASH:
        return
    name = quote(str(input_file))
    # a folder
    if input_file.is_dir():
        hint = f"for the documents in it: nmt translate {name} -o NEW"
        raise InputError(f"{input_file} is a folder, not lines of text", hint=hint)
    # a document
    if input_file.suffix.lower() in ZIPPED:
        hint = f"nmt translate {name} -o NEW{input_file.suffix}"
        raise InputError(f"{input_file} is a document, not lines of text", hint=hint)
    # the output, which is opened before all lines are read
    if output is not None and input_file.is_file() and output.is_file() and output.samefile(input_file):
        raise InputError(f"{input_file} would be overwritten", hint="give another name after -o")
