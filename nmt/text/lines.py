"""Lines from bytes, and pairs of lines from two files.

A line ends at `\\n` and nowhere else: one trailing `\\r` and a leading BOM are dropped, bad UTF-8 is replaced and
told, and everything else stays as it is. Knows nothing of pieces or ids.
"""

import gzip
import logging
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from nmt.errors import DataError

log = logging.getLogger("nmt")

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Pair:
    """A source line and its translation; `line` counts from 1 over all files of a side."""

    line: int
    source: str
    target: str


def decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Text of each line of a binary stream (which splits on `\\n` alone, as every binary file does).

    Args:
        stream: lines as bytes, each but the last ending in `\\n`.
        name: for the warning about bad UTF-8.
    """
    for number, raw in enumerate(stream, 1):
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(BOM)
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            log.warning("%s, line %d: not UTF-8 at byte %d; replaced by U+FFFD", name, number, error.start + 1)
            yield line.decode(errors="replace")


def open_binary(path: Path) -> BinaryIO:
    """A file to read bytes from; `.gz` is unpacked."""
    return cast(BinaryIO, gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb"))


def read_lines(paths: Sequence[Path]) -> list[str]:
    """All lines of one or several files, one after the other.

    Raises:
        DataError: a file is missing, not readable or not what its `.gz` says.
    """
    lines: list[str] = []
    for path in paths:
        try:
            with open_binary(path) as stream:
                lines.extend(decode_lines(stream, str(path)))
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise DataError(
                f"cannot read {path}: {reason}",
                hint="paths are relative to the working directory, or to data.root where that is set",
            ) from error
    return lines


def read_pairs(source: Sequence[Path], target: Sequence[Path]) -> list[Pair]:
    """The two sides of a corpus, line by line.

    Raises:
        DataError: a file cannot be read, the sides have unequal numbers of lines, or there is no line at all.
    """
    sources, targets = read_lines(source), read_lines(target)
    names = " + ".join(map(str, source)), " + ".join(map(str, target))
    if len(sources) != len(targets):
        raise DataError(
            f"{names[0]} has {len(sources)} lines but {names[1]} has {len(targets)}",
            hint="line N of one side must translate line N of the other; find where they part",
        )
    if not sources:
        raise DataError(f"{names[0]} is empty", hint="give a corpus with at least one pair")
    return [Pair(n, s, t) for n, (s, t) in enumerate(zip(sources, targets, strict=True), 1)]


def is_blank(text: str) -> bool:
    """Whether a line has nothing to translate: such lines come out blank and never meet the model."""
    return all(character.isspace() or character in "\0\ufeff" for character in text)


def one_line(text: str) -> str:
    """Text that fits on one line of output, whatever the model wrote."""
    return text.replace("\r", " ").replace("\n", " ")
