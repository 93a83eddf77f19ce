"""Lines from bytes, and pairs of lines from two files.

A line ends at `\\n` and nowhere else: one trailing `\\r` and a leading BOM are dropped, bad UTF-8 is replaced by
U+FFFD and reported once a file, and everything else stays as it is. Knows nothing of pieces or ids.
"""

import codecs
import contextlib
import gzip
import io
import itertools
import logging
import os
import queue
import re
import stat
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nmt.errors import DataError

log = logging.getLogger("nmt")

BOM = b"\xef\xbb\xbf"
MAX_BAD_SHARE = 0.01  # of a corpus' lines
N_EXAMPLES = 3  # of bad lines that a message names
N_SAMPLE, MAX_SAMPLE_BYTES = 200, 1_000  # bad lines that an encoding is guessed from, and the bytes of each
# encodings that are guessed: iconv's name, and the usual one
ENCODINGS = {
    "utf-16": "UTF-16",
    "latin1": "Latin-1",
    "cp1252": "Windows-1252",
    "gb18030": "GB18030 or GBK",
    "cp1251": "Windows-1251",
}
MAX_LINE_BYTES = 100_000_000  # more is no text, but /dev/zero or a packed bomb


@dataclass(frozen=True, slots=True)
class Pair:
    """A source line and its translation; `line` counts from 1 over all files of a side."""

    line: int
    source: str
    target: str


def decode_lines(stream: Iterable[bytes], name: str, *, strict: bool = False) -> Iterator[str]:
    """Text of each line of a binary stream (which splits on `\\n` alone, as every binary file does).

    Lines that are not UTF-8 are reported after the last line, in one warning.

    Args:
        stream: lines as bytes, each but the last ending in `\\n`.
        name: for messages.
        strict: refuse a stream of which over 1 % of the lines are not UTF-8; for corpora.
    Raises:
        DataError: the stream cannot be read to its end, or is refused.
    """
    bad, n_lines, n_intact = BadLines(), 0, 0  # n_intact: lines with UTF-8 beyond ASCII
    with reading(name):
        for n_lines, raw in enumerate(stream, 1):
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            if n_lines == 1:
                line = line.removeprefix(BOM)
            try:
                text = line.decode()
                n_intact += not text.isascii()
            except UnicodeDecodeError as error:
                bad.add(n_lines, error.start + 1, line)
                text = line.decode(errors="replace")
            yield text
    if not bad.n_lines:
        return
    places = ", ".join([*bad.places, *(["…"] if bad.n_lines > len(bad.places) else [])])
    message = f"{name} is not UTF-8 in {bad.n_lines:,} of {n_lines:,} lines ({places})"
    encoding = bad.encoding() if bad.n_lines > n_intact else ""  # else another encoding would spoil more lines
    if encoding:
        message += f", perhaps {ENCODINGS[encoding]}"
    command = f"iconv -f {encoding} -t utf-8 FILE > NEW" if encoding else ""
    if strict and (bad.n_lines > MAX_BAD_SHARE * n_lines or encoding == "utf-16"):
        hint = f"convert it to UTF-8{f', for example by {command}' if encoding else ''}"
        raise DataError(message, hint=f"{hint}; or set data.allow_bad_utf8=true to train with U+FFFD for bad bytes")
    log.warning("%s; bad bytes are replaced by U+FFFD%s", message, f"; to convert: {command}" if encoding else "")


class BadLines:
    """The lines of a stream that are not UTF-8.

    Attributes:
        n_lines: how many.
        places: of the first of them, in words.
        sample: the beginnings of the first of them.
    """

    def __init__(self) -> None:
        self.n_lines = 0
        self.places: list[str] = []
        self.sample: list[bytes] = []

    def add(self, number: int, byte: int, line: bytes) -> None:
        """Note a line and its first bad byte, both counted from 1."""
        self.n_lines += 1
        if self.n_lines <= N_EXAMPLES:
            self.places.append(f"line {number} at byte {byte}")
        if self.n_lines <= N_SAMPLE:
            self.sample.append(line[:MAX_SAMPLE_BYTES])

    def encoding(self) -> str:
        """The encoding, as iconv calls it, that the lines may be in; empty if none of a few is likely.

        Accented letters of Western European text mostly stand between ASCII letters. Chinese characters and
        Cyrillic letters stand together; the latter rarely decode as GB18030, and most are lower-case.
        """
        if self.sample[0].startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        runs = [run for line in self.sample for run in re.findall(rb"[\x80-\xff]+", line)]
        high = b"".join(runs)
        if not high:
            return ""
        if len(high) < 2 * len(runs):
            western = "cp1252" if min(high) < 0xA0 else "latin1"
            return western if _decodes(self.sample, western) else ""
        if _decodes(self.sample, "gb18030"):
            return "gb18030"
        lower_case = sum(byte >= 0xE0 for byte in high)
        return "cp1251" if 2 * lower_case > len(high) and _decodes(self.sample, "cp1251") else ""


def _decodes(lines: Sequence[bytes], encoding: str) -> bool:
    """Whether an encoding has no error in any line, each of which may be cut at its end."""
    with contextlib.suppress(UnicodeDecodeError):
        for line in lines:
            codecs.getincrementaldecoder(encoding)().decode(line)
        return True
    return False


@contextlib.contextmanager
def reading(name: str, hint: str = "check the path, and that you may read it") -> Iterator[None]:
    """Turn what goes wrong in reading into a `DataError`."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot read {name}: {reason}", hint=hint) from error


def raw_lines(stream: BinaryIO | io.BufferedIOBase, name: str) -> Iterator[bytes]:
    """The lines of a stream, each of which takes memory, but not without limit.

    Raises:
        DataError: one is too long, or there would be no end of them.
    """
    with contextlib.suppress(OSError):  # a stream without a descriptor has an end
        endless = stat.S_ISCHR(os.fstat(stream.fileno()).st_mode) and not stream.isatty()
        if endless and name not in ("stdin", os.devnull):
            raise DataError(f"{name} is a device, not a file", hint="give a file of text")
    for number in itertools.count(1):
        line = stream.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        if len(line) > MAX_LINE_BYTES:
            raise DataError(f"{name}, line {number}: over {MAX_LINE_BYTES:,} bytes", hint="give a file of text")
        yield line


def open_bytes(path: Path) -> BinaryIO | gzip.GzipFile:
    """A file to read, unpacked if its name ends in `.gz`.

    Raises:
        DataError: it is missing or not readable.
    """
    with reading(str(path)):
        return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


@contextlib.contextmanager
def open_lines(path: Path, *, strict: bool = False) -> Iterator[Iterator[str]]:
    """The lines of a file, unpacked if its name ends in `.gz`; for `strict` see `decode_lines`.

    Raises:
        DataError: it is missing, not readable or not what its `.gz` says.
    """
    with open_bytes(path) as stream:
        yield decode_lines(raw_lines(stream, str(path)), str(path), strict=strict)


class Pause:
    """Stands among lines where no further line has come for a while."""


def with_pauses(lines: Iterable[str], after_s: float) -> Iterator[str | Pause]:
    """The lines of a stream that may be slow; a `Pause` whenever none has come for `after_s` seconds.

    So whoever collects lines can work on those that it has. A thread reads; what it raises is raised here.
    """
    arrived: queue.Queue[str | Exception | None] = queue.Queue(maxsize=64)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except Exception as error:  # any: it belongs to the caller
            arrived.put(error)

    threading.Thread(target=read, name="nmt-lines", daemon=True).start()
    while True:
        try:
            line = arrived.get(timeout=after_s)
        except queue.Empty:
            yield Pause()
            continue
        if line is None:
            return
        if isinstance(line, Exception):
            raise line
        yield line


def n_lines_left(stream: BinaryIO | io.BufferedIOBase) -> int:
    """The number of lines from where a seekable stream stands; it stays there."""
    start, n_lines, last = stream.tell(), 0, b"\n"
    while part := stream.read(2**20):
        n_lines += part.count(b"\n")
        last = part[-1:]
    stream.seek(start)
    return n_lines + (last != b"\n")


def iter_lines(paths: Iterable[Path], *, strict: bool = False) -> Iterator[str]:
    """All lines of one or several files, one after the other; see `open_lines` for what can go wrong."""
    for path in paths:
        with open_lines(path, strict=strict) as found:
            yield from found


def read_lines(paths: Sequence[Path]) -> list[str]:
    """The same as a list."""
    return list(iter_lines(paths))


def iter_pairs(source: Sequence[Path], target: Sequence[Path], *, strict: bool = False) -> Iterator[Pair]:
    """The two sides of a corpus, line by line; for `strict` see `decode_lines`.

    Raises:
        DataError: a file cannot be read or is refused, the sides have unequal numbers of lines, or there is no
            line at all.
    """
    sides = iter_lines(source, strict=strict), iter_lines(target, strict=strict)
    names = " + ".join(map(str, source)), " + ".join(map(str, target))
    n_pairs = 0
    for s, t in itertools.zip_longest(*sides):
        if s is None or t is None:
            n_lines = [
                n_pairs + (one is not None) + sum(1 for _ in rest) for one, rest in zip((s, t), sides, strict=True)
            ]
            raise DataError(
                f"{names[0]} has {n_lines[0]} lines but {names[1]} has {n_lines[1]}",
                hint="line N of one side must translate line N of the other; find where they part",
            )
        n_pairs += 1
        yield Pair(n_pairs, s, t)
    if not n_pairs:
        raise DataError(f"{names[0]} is empty", hint="give a corpus with at least one pair")


def read_pairs(source: Sequence[Path], target: Sequence[Path], *, strict: bool = False) -> list[Pair]:
    """The same as a list."""
    return list(iter_pairs(source, target, strict=strict))


def is_blank(text: str) -> bool:
    """Whether a line has nothing to translate: such lines come out blank and never meet the model."""
    return all(character.isspace() or character in "\0\ufeff" for character in text)


def one_line(text: str) -> str:
    """Text that fits on one line of output, whatever the model wrote."""
    return text.replace("\r", " ").replace("\n", " ")
