"""Lines of text files, and pairs of lines from the two sides of a corpus.

Lines are split on `\\n` only; a trailing `\\r` and a leading BOM are dropped. Bad UTF-8 is replaced by U+FFFD, with
one warning per file. All other text stays unchanged. Independent of tokenizers.
"""

import codecs
import contextlib
import gzip
import itertools
import logging
import os
import queue
import stat
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nmt.errors import DataError, os_errors_as
from nmt.text.vocabulary import tag_of

log = logging.getLogger("nmt")

BOM = b"\xef\xbb\xbf"
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MAX_BAD_SHARE = 0.01  # of the lines of a corpus
N_EXAMPLES = 3  # bad lines named in the warning
SEPARATOR = "⟦←⟧"  # a piece that separates a line from the line before it (Tiedemann and Scherrer 2017)
MAX_LINE_BYTES = 100_000_000  # a longer line is probably a decompression bomb


@dataclass(frozen=True, slots=True)
class Pair:
    """A source line and its translation; `line` counts from 1 over all files of a side."""

    line: int
    source: str
    target: str
    languages: str = ""  # de-en, in a corpus of several

    @property
    def tagged_source(self) -> str:
        """The source as a model reads it: in a corpus of several languages, after the tag of its target language."""
        return tag_of(self.languages.partition("-")[2]) + self.source if self.languages else self.source


def decode_lines(stream: Iterable[bytes], name: str, *, strict: bool = False) -> Iterator[str]:
    """Decode lines that end in `\\n`, which the last line may lack. Bad UTF-8 is a warning after the last line.

    With `strict`, for corpora, raises DataError if the stream is UTF-16 or over 1 % of its lines are bad.
    """
    n_lines, n_bad, is_utf16 = 0, 0, False
    named: list[str] = []  # the first bad lines
    with reading(name):
        for n_lines, raw in enumerate(stream, 1):
            is_utf16 |= n_lines == 1 and raw.startswith(UTF16)
            line = raw.removesuffix(b"\n").removesuffix(b"\r").removeprefix(BOM if n_lines == 1 else b"")
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                n_bad += 1
                named += [f"line {n_lines} at byte {error.start + 1}"] if n_bad <= N_EXAMPLES else []
                text = line.decode(errors="replace")
            yield text
    if not n_bad:
        return
    examples = ", ".join(named + ["…"] * (n_bad > N_EXAMPLES))
    message = f"{name} is not UTF-8 in {n_bad:,} of {n_lines:,} lines ({examples})"
    if strict and (n_bad > MAX_BAD_SHARE * n_lines or is_utf16):
        hint = "convert it to UTF-8, `nmt check` guesses its encoding; or set data.allow_bad_utf8=true"
        raise DataError(message, hint=hint)
    log.warning("%s; bad bytes are replaced by U+FFFD", message)


def reading(name: str, hint: str = "check the path, and that you may read it") -> AbstractContextManager[None]:
    """Convert errors of reading in a block to `DataError`."""
    return os_errors_as(DataError, f"read {name}", hint=hint)


def raw_lines(stream: BinaryIO | gzip.GzipFile, name: str) -> Iterator[bytes]:
    """The lines of a stream, as bytes. Raises DataError if a line is too long, or the stream is an endless device."""
    with contextlib.suppress(OSError):  # a stream without a descriptor is not a device
        is_endless = stat.S_ISCHR(os.fstat(stream.fileno()).st_mode) and not stream.isatty()
        if is_endless and name not in ("stdin", os.devnull):
            raise DataError(f"{name} is a device, not a file", hint="give a file of text")
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_LINE_BYTES:
            raise DataError(f"{name}, line {number}: over {MAX_LINE_BYTES:,} bytes", hint="give a file of text")
        yield line


def open_bytes(path: Path) -> BinaryIO | gzip.GzipFile:
    """Open a file, decompressed if its name ends in `.gz`; `DataError` if that fails."""
    with reading(str(path)):
        return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


class Pause:
    """An item in a stream of lines: the next line has not arrived yet, so the lines so far can be processed."""


def with_pauses(lines: Iterable[str], after_s: float) -> Iterator[str | Pause]:
    """Yield the lines of a slow stream, and a `Pause` after every `after_s` seconds without a line."""
    arrived: queue.Queue[str | Pause | Exception | None] = queue.Queue(maxsize=64)

    def read() -> None:
        try:
            for line in itertools.chain(lines, [None]):
                arrived.put(line)
        except Exception as error:  # raised below, in the caller's thread
            arrived.put(error)

    threading.Thread(target=read, name="nmt-lines", daemon=True).start()
    while True:
        try:
            line = arrived.get(timeout=after_s)
        except queue.Empty:
            line = Pause()
        if line is None:
            return
        if isinstance(line, Exception):
            raise line
        yield line


def n_lines_left(stream: BinaryIO | gzip.GzipFile) -> int:
    """Count the lines that are left in a seekable stream, without changing its position."""
    start, n_lines, last = stream.tell(), 0, b"\n"
    while part := stream.read(2**20):
        n_lines += part.count(b"\n")
        last = part[-1:]
    stream.seek(start)
    return n_lines + (last != b"\n")


def iter_lines(paths: Iterable[Path], *, strict: bool = False) -> Generator[str]:
    """The lines of several files, one after the other; see `decode_lines`."""
    for path in paths:
        with open_bytes(path) as stream:
            yield from decode_lines(raw_lines(stream, str(path)), str(path), strict=strict)


def iter_pairs(source: Sequence[Path], target: Sequence[Path], *, strict: bool = False) -> Iterator[Pair]:
    """The pairs of a corpus. Raises DataError if one side has more lines, or both have none; see `decode_lines`."""
    names = " + ".join(map(str, source)), " + ".join(map(str, target))
    n_pairs = 0
    sides = iter_lines(source, strict=strict), iter_lines(target, strict=strict)
    for n_pairs, pair in enumerate(itertools.zip_longest(*sides), 1):
        if None in pair:
            ends = zip(pair, sides, strict=True)
            n_lines = [n_pairs - (line is None) + sum(1 for _ in side) for line, side in ends]
            reason = f"{names[0]} has {n_lines[0]} lines but {names[1]} has {n_lines[1]}"
            hint = "line N of one side must translate line N of the other; find where they part"
            raise DataError(reason, hint=hint)
        yield Pair(n_pairs, *pair)
    if not n_pairs:
        raise DataError(f"{names[0]} is empty", hint="give a corpus with at least one pair")


def in_context(before: str, text: str) -> str:
    """A source line as a model with data.context reads it: after the line before it, if neither is blank."""
    return f"{before}{SEPARATOR}{text}" if not is_blank(before) and not is_blank(text) else text


def is_blank(text: str) -> bool:
    """Whether a line has nothing to translate. Blank lines are copied to the output without the model."""
    return all(character.isspace() or character in "\0\ufeff" for character in text)


def one_line(text: str) -> str:
    """Replace line ends by spaces, so that text from a model stays on one line of output."""
    return text.replace("\r", " ").replace("\n", " ")
