"""A reader of the lines of a corpus as bytes, with all their faults.

A check reads the files several times, in chunks. So the text need not fit into memory.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.errors import DataError
from nmt.text.lines import joined_paths, open_bytes, raw_lines, reading

CHUNK = 10_000  # number of pairs that a process examines at once
MAX_SAMPLE = 30_000  # maximum number of lines of a sample


@dataclass(frozen=True)
class CorpusFiles:
    name: str  # "train", "dev" or "test"; "corpus" for two files without a config
    source: list[Path]
    target: list[Path]

    def __str__(self) -> str:
        return f"{joined_paths(self.source)} and {joined_paths(self.target)}"

    @property
    def sides(self) -> tuple[list[Path], list[Path]]:
        return self.source, self.target


@dataclass(frozen=True)
class Chunk:
    first: int  # line number of the first pair, counted from 1
    source: list[bytes]
    target: list[bytes]


def decode(raw: bytes) -> str:
    """Return the text of a line as training reads it."""
    return raw.removesuffix(b"\r").decode(errors="replace")


def is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def side_lines(paths: Sequence[Path]) -> Iterator[bytes]:
    """Yield the lines of all files of a side, without \\n and without the BOM of each file.

    Raises DataError if a file cannot be read or is UTF-16.
    """
    for path in paths:
        with open_bytes(path) as stream, reading(str(path)):
            for line in raw_lines(stream, str(path)):
                yield line.removesuffix(b"\n")


@dataclass(frozen=True)
class Survey:
    """The numbers of lines of a corpus, and a sample of its pairs."""

    files: CorpusFiles
    n_source: int
    n_target: int
    source: list[str]  # source lines of the sample, at most `MAX_SAMPLE`
    target: list[str]  # target lines of the sample

    @property
    def n_pairs(self) -> int:
        return min(self.n_source, self.n_target)


def survey(files: CorpusFiles) -> Survey:
    """Count the lines of both sides, and sample pairs. Raises DataError if a side is empty."""
    n_source, n_target = count_lines(files.source), count_lines(files.target)
    n_pairs = min(n_source, n_target)
    return Survey(files, n_source, n_target, sample(files.source, 0, n_pairs), sample(files.target, 0, n_pairs))


def count_lines(paths: Sequence[Path]) -> int:
    n_lines = sum(1 for _ in side_lines(paths))
    if not n_lines:
        raise DataError(f"{joined_paths(paths)} is empty", hint="give a corpus with at least one pair")
    return n_lines


def sample(paths: Sequence[Path], first: int, n_lines: int) -> list[str]:
    """Sample evenly spaced lines from `n_lines` lines of a side. `first` is the number of the first one, from 0."""
    step = 1 + n_lines // MAX_SAMPLE
    lines = itertools.islice(side_lines(paths), first, first + n_lines, step)
    return [decode(raw) for raw in lines]


def chunks(files: CorpusFiles) -> Iterator[Chunk]:
    """Yield all pairs in order. Lines after the last pair are left out."""
    pairs = zip(side_lines(files.source), side_lines(files.target), strict=False)
    first = 1
    while part := list(itertools.islice(pairs, CHUNK)):
        source = [source for source, _ in part]
        target = [target for _, target in part]
        yield Chunk(first, source, target)
        first += len(part)


def read_spans(paths: Sequence[Path], spans: Sequence[tuple[int, int]]) -> Iterator[list[bytes]]:
    """Yield the lines [start, end) of each span of a side, counted from 0. Reads the files once.

    Spans may overlap, but their starts and ends must be in ascending order. Lines after the last one are left out.
    """
    stream = side_lines(paths)
    kept: list[bytes] = []  # lines that were read already, from number `first` on
    first = 0
    for start, end in spans:
        # Drop the lines before the span. Some are in `kept`, others are not read yet.
        n_dropped = min(start - first, len(kept))
        del kept[:n_dropped]
        for _ in itertools.islice(stream, start - first - n_dropped):
            pass
        first = start
        kept += itertools.islice(stream, max(end - first - len(kept), 0))
        yield kept[: end - first]


def lines_at(paths: Sequence[Path], numbers: Sequence[int]) -> dict[int, bytes]:
    """Return the given lines of a side by line number, counted from 1. Numbers after the last line are ignored."""
    wanted = set(numbers)
    lines = itertools.islice(side_lines(paths), max(wanted, default=0))
    return {number: raw for number, raw in enumerate(lines, 1) if number in wanted}
