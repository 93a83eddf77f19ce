"""The files of training pairs: written once, then memory-mapped by every process that trains on them.

Text is read and written in chunks. Memory grows only by a few dozen bytes per pair, for the digests of both sides.
"""

import copy
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.processes import in_parallel
from nmt.text.lines import Pair, is_blank
from nmt.text.permutation import Digests
from nmt.text.spans import Span

CHUNK = 20_000  # number of pairs that a process works on at once
SIDES = ("source", "target")
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # an odd factor, so different numbers have different products modulo 2^64


@dataclass(frozen=True, eq=False)
class RaggedArray:
    """An array with rows of different lengths. Row i is values[starts[i] : ends[i]]."""

    values: NDArray[Any]
    starts: NDArray[np.int64]  # index of the first value of each row
    ends: NDArray[np.int64]  # index after the last value of each row

    @classmethod
    def map(cls, file: Path, dtype: Any) -> "RaggedArray":
        """Memory-map an array that `append_rows` has written."""
        ends = mapped(file.with_suffix(".ends"), np.int64)
        return cls(mapped(file, dtype), ends[:-1], ends[1:])

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]], dtype: Any = np.int64) -> "RaggedArray":
        ends = np.cumsum([0, *map(len, rows)])
        values = np.fromiter(itertools.chain.from_iterable(rows), dtype)
        return cls(values, ends[:-1], ends[1:])

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> "RaggedArray":
        """Return an array with the UTF-8 bytes of each text as a row."""
        return cls.from_lists(list(map(str.encode, texts)), np.uint8)

    def take(self, index: NDArray[Any]) -> "RaggedArray":
        """Return the rows with these indices. Their values are not copied."""
        return RaggedArray(self.values, self.starts[index], self.ends[index])

    def compact(self, index: NDArray[Any]) -> "RaggedArray":
        """Copy the rows with these indices to a new array."""
        return self.from_lists([self[i] for i in index], self.values.dtype)

    def concatenated(self, is_first: NDArray[np.bool_]) -> "RaggedArray":
        """Concatenate each row in the mask `is_first` with the rows after it that are not in the mask.

        The mask must include row 0. The rows must be contiguous in `values`, as in the result of `compact`.
        """
        return RaggedArray(self.values, self.starts[is_first], self.ends[np.roll(is_first, -1)])

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.ends - self.starts

    def __len__(self) -> int:
        return len(self.ends)

    def row(self, i: int) -> NDArray[Any]:
        return self.values[self.starts[i] : self.ends[i]]

    def __getitem__(self, i: int) -> list[int]:
        return list(self.row(i).tolist())

    def text(self, i: int) -> str:
        """Decode a row of UTF-8 bytes."""
        return self.row(i).tobytes().decode()


def mapped(file: Path, dtype: Any) -> NDArray[Any]:
    """Return a file of numbers as a memory-mapped array."""
    if file.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(file, dtype, mode="r").view(np.ndarray)


def append(file: Path, values: NDArray[Any]) -> None:
    with file.open("ab") as out:
        out.write(values.tobytes())


def append_rows(file: Path, rows: RaggedArray) -> None:
    """Append the values of `rows` to a file, and the end index of each row to a file with the suffix `.ends`.

    The file of ends begins with 0, the start of the first row.
    """
    ends = file.with_suffix(".ends")
    if not ends.exists():
        append(ends, np.zeros(1, np.int64))
    # The ends count from the start of the file, so add the number of values that the file already has.
    n_before = file.stat().st_size // rows.values.itemsize if file.exists() else 0
    append(file, rows.values)
    append(ends, n_before + rows.ends)


def keep(file: Path, kept: NDArray[np.bool_]) -> None:
    """Keep only the entries of a file of 8-byte numbers for which `kept` is true."""
    rest = file.with_suffix(".rest")
    append(rest, mapped(file, np.int64)[kept])
    rest.replace(file)


class CorpusRange(NamedTuple):
    """The lines of one corpus in a file of several corpora."""

    last_line: int  # number of the last line, counted from 1 over all corpora
    languages: str  # the direction, such as de-en; empty if all corpora have the same direction


class Pairs:
    """The pairs that `write_pairs` has written into a directory.

    `lines` is a file of line numbers. If it is given, only the pairs on these lines are selected.
    """

    def __init__(self, directory: Path, lines: Path | None = None, *, ranges: Sequence[CorpusRange] = ()) -> None:
        self.directory = directory
        self.ranges = ranges
        self.lines = mapped(lines or directory / "lines", np.int64)  # line number of each pair, from 1, ascending
        # The texts of all lines, selected or not.
        self.source = RaggedArray.map(directory / "source", np.uint8)
        self.target = RaggedArray.map(directory / "target", np.uint8)

    def __len__(self) -> int:
        return len(self.lines)

    def part(self, start: int, end: int) -> "Pairs":
        """Return the pairs with the indices from `start` to `end` - 1."""
        part = copy.copy(self)
        part.lines = self.lines[start:end]
        return part

    def spans(self) -> list[Span]:
        """Return the span of each corpus: the index of its first pair, and the index after its last pair."""
        last_lines = [corpus.last_line for corpus in self.ranges]
        ends = np.searchsorted(self.lines, last_lines, side="right").tolist()
        return list(itertools.pairwise([0, *ends]))

    def by_corpus(self) -> list["Pairs"]:
        """Return the pairs of each corpus."""
        return [self.part(start, end) for start, end in self.spans()]

    def __getitem__(self, i: int) -> Pair:
        line = int(self.lines[i])
        languages = next((corpus.languages for corpus in self.ranges if line <= corpus.last_line), "")
        return Pair(line, self.source.text(line - 1), self.target.text(line - 1), languages)

    def __iter__(self) -> Iterator[Pair]:
        return map(self.__getitem__, range(len(self)))


# The sources, targets and languages of some pairs. Texts are faster to send to another process than `Pair` objects.
Columns = tuple[Sequence[str], Sequence[str], Sequence[str]]


class Digested(NamedTuple):
    """A chunk of pairs in the form in which `write_pairs` stores it."""

    source: RaggedArray
    target: RaggedArray
    arrays: dict[str, NDArray[Any]]  # the content of the other files by name, see `write_pairs`


def write_pairs(directory: Path, pairs: Iterable[Pair]) -> int:
    """Append pairs to the files of a directory. Returns the new number of pairs in the files.

    The files are:
        source, target: the texts, see `append_rows`.
        lines: the line numbers (int64).
        blank: whether a side of the pair is blank (bool).
        source.digest, target.digest, pair.digest: digests to find equal texts (uint64). The digest of a pair includes
            its languages.
    """
    lines = directory / "lines"
    n_lines = lines.stat().st_size // 8 if lines.exists() else 0
    for chunk in in_parallel(digest_pairs, columns_of(pairs)):
        append_rows(directory / "source", chunk.source)
        append_rows(directory / "target", chunk.target)
        for name, values in chunk.arrays.items():
            append(directory / name, values)
        append(lines, np.arange(n_lines + 1, n_lines + 1 + len(chunk.source)))
        n_lines += len(chunk.source)
    return n_lines


def columns_of(pairs: Iterable[Pair]) -> Iterator[Columns]:
    """Yield chunks of at most `CHUNK` pairs."""
    stream = iter(pairs)
    while chunk := list(itertools.islice(stream, CHUNK)):
        rows = [(pair.source, pair.target, pair.languages) for pair in chunk]
        sources, targets, languages = zip(*rows, strict=True)
        yield sources, targets, languages


def digest_pairs(columns: Columns) -> Digested:
    """Encode pairs in UTF-8 and compute their digests. This function runs in child processes."""
    sources, targets, _ = columns
    source, target, languages = map(digests_of, columns)
    blank = np.array([*map(is_blank, sources)]) | np.array([*map(is_blank, targets)])
    pair = source * GOLDEN + target + languages
    arrays = {"source.digest": source, "target.digest": target, "pair.digest": pair, "blank": blank}
    return Digested(RaggedArray.from_texts(sources), RaggedArray.from_texts(targets), arrays)


def digests_of(texts: Iterable[str]) -> Digests:
    """Return a 64-bit digest of each text. Among 100M different texts, a collision has probability 0.0003."""
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), np.uint64)
