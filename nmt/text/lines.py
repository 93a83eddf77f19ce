"""Lines from bytes, and pairs of lines from two files.

A line ends at `\\n` and nowhere else: one trailing `\\r` and a leading BOM are dropped, bad UTF-8 is replaced and
told, and everything else stays as it is. Knows nothing of pieces or ids.
"""

import contextlib
import gzip
import io
import itertools
import logging
import os
import queue
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
MAX_LINE_BYTES = 100_000_000  # more is no text, but /dev/zero or a packed bomb


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
        name: for messages.
    Raises:
        DataError: the stream cannot be read to its end.
    """
    with reading(name):
        for number, raw in enumerate(stream, 1):
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                line = line.removeprefix(BOM)
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                log.warning("%s, line %d: not UTF-8 at byte %d; replaced by U+FFFD", name, number, error.start + 1)
                text = line.decode(errors="replace")
            yield text


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn what goes wrong in reading into a `DataError`."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(
            f"cannot read {name}: {reason}",
            hint="paths are relative to the working directory; a corpus' to data.root where that is set",
        ) from error


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
def open_lines(path: Path) -> Iterator[Iterator[str]]:
    """The lines of a file, unpacked if its name ends in `.gz`.

    Raises:
        DataError: it is missing, not readable or not what its `.gz` says.
    """
    with open_bytes(path) as stream:
        yield decode_lines(raw_lines(stream, str(path)), str(path))


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


def iter_lines(paths: Iterable[Path]) -> Iterator[str]:
    """All lines of one or several files, one after the other; see `open_lines` for what can go wrong."""
    for path in paths:
        with open_lines(path) as found:
            yield from found


def read_lines(paths: Sequence[Path]) -> list[str]:
    """The same as a list."""
    return list(iter_lines(paths))


def iter_pairs(source: Sequence[Path], target: Sequence[Path]) -> Iterator[Pair]:
    """The two sides of a corpus, line by line.

    Raises:
        DataError: a file cannot be read, the sides have unequal numbers of lines, or there is no line at all.
    """
    sides = iter_lines(source), iter_lines(target)
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


def read_pairs(source: Sequence[Path], target: Sequence[Path]) -> list[Pair]:
    """The same as a list."""
    return list(iter_pairs(source, target))


def is_blank(text: str) -> bool:
    """Whether a line has nothing to translate: such lines come out blank and never meet the model."""
    return all(character.isspace() or character in "\0\ufeff" for character in text)


def one_line(text: str) -> str:
    """Text that fits on one line of output, whatever the model wrote."""
    return text.replace("\r", " ").replace("\n", " ")
