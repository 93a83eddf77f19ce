"""A reader of the lines of a corpus as bytes, with all their faults.

A check reads the files several times, in chunks. So the text need not fit into memory.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.errors import DataError
from nmt.text.lines import BOM, UTF16, joined_paths, open_bytes, raw_lines, reading

CHUNK = 10_000  # number of pairs that a process examines at once
SAMPLE_LIMIT = 15_000  # a sample has fewer than 2 * SAMPLE_LIMIT pairs


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
            for number, line in enumerate(raw_lines(stream, str(path))):
                if number == 0 and line.startswith(UTF16):
                    hint = f"convert it: iconv -f utf-16 -t utf-8 {path} > NEW"
                    raise DataError(f"{path} is not UTF-8, perhaps utf-16", hint=hint)
                yield line.removesuffix(b"\n").removeprefix(BOM if number == 0 else b"")


@dataclass(frozen=True)
class Survey:
    """The numbers of lines of a corpus, and a sample of its pairs."""

    files: CorpusFiles
    n_source: int
    n_target: int
    source: list[str]  # source lines of the sample, fewer than 2 * SAMPLE_LIMIT
    target: list[str]  # target lines of the sample

    @property
    def n_pairs(self) -> int:
        return min(self.n_source, self.n_target)


def survey(files: CorpusFiles) -> Survey:
    """Count the lines of both sides, and sample evenly spaced pairs. Raises DataError if a side is empty."""
    sample = []
    n_source = n_target = 0
    step = 1
    for source, target in itertools.zip_longest(side_lines(files.source), side_lines(files.target)):
        if source is not None and target is not None and n_source % step == 0:
            sample.append((decode(source), decode(target)))
            if len(sample) >= 2 * SAMPLE_LIMIT:  # halve the sample, and sample half as often
                del sample[1::2]
                step *= 2
        n_source += source is not None
        n_target += target is not None
    for count, paths in ((n_source, files.source), (n_target, files.target)):
        if not count:
            raise DataError(f"{joined_paths(paths)} is empty", hint="give a corpus with at least one pair")
    source_sample = [source for source, _ in sample]
    target_sample = [target for _, target in sample]
    return Survey(files, n_source, n_target, source_sample, target_sample)


def sample_from_end(surveyed: Survey) -> tuple[list[str], list[str]]:
    """Sample evenly spaced pairs of lines that have the same number, counted from the end of each file."""
    files, n_pairs = surveyed.files, surveyed.n_pairs
    step = 1 + n_pairs // (2 * SAMPLE_LIMIT)
    source = lines_at(files.source, range(surveyed.n_source, surveyed.n_source - n_pairs, -step))
    target = lines_at(files.target, range(surveyed.n_target, surveyed.n_target - n_pairs, -step))
    return [*map(decode, source.values())], [*map(decode, target.values())]


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
    if not wanted:
        return {}
    lines = itertools.islice(side_lines(paths), max(wanted))
    return {number: raw for number, raw in enumerate(lines, 1) if number in wanted}
