"""Lines of text files, and pairs of lines from the two sides of a corpus.

Lines are split on `\\n` only; a trailing `\\r` and a leading BOM are dropped. Bad UTF-8 is replaced by U+FFFD, with
one warning per file. All other text stays unchanged.
"""

import codecs
import gzip
import itertools
import logging
import os
import queue
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nmt.errors import DataError, os_errors_as
from nmt.languages import target_of
from nmt.text.vocabulary import tag_of

log = logging.getLogger("nmt")

BOM = b"\xef\xbb\xbf"
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MAX_BAD_SHARE = 0.01  # maximum share of lines with bad UTF-8 in a file of a corpus, 0-1
MAX_LINE_BYTES = 100_000_000  # maximum length of a line, in bytes; a longer line is probably a decompression bomb


@dataclass(frozen=True, slots=True)
class Pair:
    """A source line and its translation. `line` is the line number, counted from 1 over all files of a side."""

    line: int
    source: str
    target: str
    languages: str = ""  # the direction, such as de-en; empty if all pairs have the same direction

    @property
    def has_text(self) -> bool:
        """Whether neither side is blank."""
        return not (is_blank(self.source) or is_blank(self.target))

    @property
    def tagged_source(self) -> str:
        """The source as a model reads it.

        If the corpus has several directions, the source begins with the tag of the target language.
        """
        if not self.languages:
            return self.source
        return tag_of(target_of(self.languages)) + self.source


def decode_lines(stream: Iterable[bytes], name: str, *, strict: bool = False) -> Iterator[str]:
    """Decode the lines of a stream, without their line ends.

    Lines that are not UTF-8 cause one warning, after the last line. If `strict` is true, over 1 % of bad lines raise
    DataError instead.
    """
    n_lines = n_bad = 0
    example = ""  # place of the first bad line
    with reading(name):
        for n_lines, raw in enumerate(stream, 1):
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                n_bad += 1
                example = example or f"line {n_lines} at byte {error.start + 1}"
                text = line.decode(errors="replace")
            yield text

    if not n_bad:
        return
    others = ", …" if n_bad > 1 else ""
    message = f"{name} is not UTF-8 in {n_bad:,} of {n_lines:,} lines ({example}{others})"
    if strict and n_bad > MAX_BAD_SHARE * n_lines:
        raise DataError(
            message, hint="convert it to UTF-8, `nmt check` guesses its encoding; or set data.allow_bad_utf8=true"
        )
    log.warning("%s; bad bytes are replaced by U+FFFD", message)


def reading(name: str, hint: str = "check the path, and that you may read it") -> AbstractContextManager[None]:
    """Return a context manager that converts errors of reading to `DataError`."""
    return os_errors_as(DataError, f"read {name}", hint=hint)


def raw_lines(stream: BinaryIO | gzip.GzipFile, name: str) -> Iterator[bytes]:
    """Yield the lines of a stream as bytes, without a BOM at the start.

    Raises DataError if the stream is in UTF-16, or a line is too long.
    """
    # Limit each read, because an endless line would fill the memory.
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(BOM)
            if line.startswith(UTF16):
                raise DataError(f"{name} is in UTF-16", hint="convert it: iconv -f utf-16 -t utf-8 FILE > NEW")
        if len(line) > MAX_LINE_BYTES:
            raise DataError(f"{name}, line {number}: over {MAX_LINE_BYTES:,} bytes", hint="give a file of text")
        yield line


def open_bytes(path: Path) -> BinaryIO | gzip.GzipFile:
    """Open a file to read bytes. Files with the suffix `.gz` are decompressed.

    Raises DataError if the file cannot be opened. Devices are refused, because they may never end.
    """
    if path.is_char_device() and str(path) not in ("/dev/stdin", os.devnull):
        raise DataError(f"{path} is a device, not a file", hint="give a file of text")
    with reading(str(path)):
        return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


class Pause:
    """A mark in a stream of lines. It means that the next line has not arrived yet."""


def with_pauses(lines: Iterable[str], after_s: float) -> Iterator[str | Pause]:
    """Yield the lines of a slow stream, and a `Pause` whenever `after_s` seconds have passed without a line."""
    arrived: queue.Queue[str | Pause | Exception | None] = queue.Queue(maxsize=64)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except Exception as error:  # the loop below raises it in the caller's thread
            arrived.put(error)

    threading.Thread(target=read, name="nmt-lines", daemon=True).start()
    while True:
        try:
            item = arrived.get(timeout=after_s)
        except queue.Empty:
            item = Pause()
        if item is None:
            return
        if isinstance(item, Exception):
            raise item
        yield item


def n_lines_left(stream: BinaryIO | gzip.GzipFile, name: str) -> int:
    """Count the lines that are left in a seekable stream, without changing its position."""
    start = stream.tell()
    n_lines = sum(1 for _ in raw_lines(stream, name))
    stream.seek(start)
    return n_lines


def iter_lines(paths: Iterable[Path], *, strict: bool = False) -> Generator[str]:
    """Yield the lines of several files, one after the other; see `decode_lines`."""
    for path in paths:
        with open_bytes(path) as stream:
            yield from decode_lines(raw_lines(stream, str(path)), str(path), strict=strict)


def joined_paths(paths: Iterable[Path]) -> str:
    return " + ".join(map(str, paths))


def iter_pairs(source: Sequence[Path], target: Sequence[Path], *, strict: bool = False) -> Iterator[Pair]:
    """Yield the pairs of a corpus.

    Raises DataError if one side has more lines than the other, or if both sides are empty.
    """
    source_name, target_name = joined_paths(source), joined_paths(target)
    source_lines, target_lines = iter_lines(source, strict=strict), iter_lines(target, strict=strict)
    n_pairs = 0
    for source_line, target_line in itertools.zip_longest(source_lines, target_lines):
        if source_line is None or target_line is None:  # count the lines that are left on the longer side
            n_source = n_pairs + (source_line is not None) + sum(1 for _ in source_lines)
            n_target = n_pairs + (target_line is not None) + sum(1 for _ in target_lines)
            reason = f"{source_name} has {n_source} lines but {target_name} has {n_target}"
            hint = "line N of one side must translate line N of the other; find where they part"
            raise DataError(reason, hint=hint)
        n_pairs += 1
        yield Pair(n_pairs, source_line, target_line)
    if n_pairs == 0:
        raise DataError(f"{source_name} is empty", hint="give a corpus with at least one pair")


def is_blank(text: str) -> bool:
    """Return whether a line has nothing to translate. Such a line is copied."""
    return not text.replace("\0", "").replace("\ufeff", "").strip()


def one_line(text: str) -> str:
    """Replace line ends by spaces, so that a translation stays on one line."""
    return text.replace("\r", " ").replace("\n", " ")
