"""The training corpus on disk: written once, then mapped into memory by every process that trains on it.

Texts, and later their ids, lie one after the other in a file, and where each ends in another. All is read, written
and sorted a part at a time, so that memory does not grow with the corpus. Where the files lie, and what is kept
of a corpus, is decided elsewhere. Imports no torch.
"""

import hashlib
import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nmt.errors import LostRankError
from nmt.processes import child_variables, environment
from nmt.seeds import seed_of
from nmt.text.lines import Pair, is_blank

Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNK = 20_000  # pairs that a process works on at once
PART = 1_000_000  # numbers that are sorted at once
MIN_ITEMS = 6  # of work, below which it is done before other processes have started
MAX_PROCESSES = 16  # one process reads and writes for all: more would wait for it
ROUNDS = 6  # of a Feistel network: 4 are enough in theory (Luby & Rackoff 1988)
SIDES = ("source", "target")


# --- rows in files ----------------------------------------------------------------------------------------


class Rows:
    """Rows of numbers, each of its own length: values[starts[i] : ends[i]].

    Args:
        values: all rows, one after the other; usually mapped from a file, as are the others.
        starts, ends: (n,) int64.
    """

    def __init__(self, values: NDArray[Any], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self.values, self.starts, self.ends = values, starts, ends

    @classmethod
    def map(cls, file: Path, dtype: Any) -> "Rows":
        """What `append_rows` wrote."""
        ends = mapped(file.with_suffix(".ends"), np.int64)
        return cls(mapped(file, dtype), ends[:-1], ends[1:])

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], dtype: Any = np.int64) -> "Rows":
        """From lists, in memory."""
        ends = np.cumsum([0, *map(len, rows)])
        values = np.fromiter(itertools.chain.from_iterable(rows), dtype, count=int(ends[-1]))
        return cls(values, ends[:-1], ends[1:])

    def take(self, index: NDArray[Any]) -> "Rows":
        """Some of the rows, which stay where they are."""
        return Rows(self.values, self.starts[index], self.ends[index])

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.ends - self.starts

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: int) -> list[int]:
        row: list[int] = self.values[self.starts[i] : self.ends[i]].tolist()
        return row

    def text(self, i: int) -> str:
        """A row of bytes as the text that they are."""
        return self.values[self.starts[i] : self.ends[i]].tobytes().decode()


def mapped(file: Path, dtype: Any) -> NDArray[Any]:
    """A file of numbers as an array, of which memory holds what is looked at and can let go of it."""
    empty = file.stat().st_size == 0  # which cannot be mapped
    return np.zeros(0, dtype) if empty else np.memmap(file, dtype, mode="r").view(np.ndarray)


def append(file: Path, values: NDArray[Any]) -> None:
    with file.open("ab") as out:
        out.write(values.tobytes())


def append_rows(file: Path, rows: Rows) -> None:
    """Add rows, whose values fill all of their array, to a file and its table of ends."""
    ends = file.with_suffix(".ends")
    if not ends.exists():
        append(ends, np.zeros(1, np.int64))
    n_before = file.stat().st_size // rows.values.itemsize if file.exists() else 0
    append(file, rows.values)
    append(ends, n_before + rows.ends)


class Pairs:
    """Pairs of a corpus whose texts `write_pairs` wrote: those of the lines that `lines` names.

    Attributes:
        place: the directory of the texts.
        lines: (n,) int64, numbers from 1, rising.
        source, target: the texts of all lines.
    """

    def __init__(self, place: Path, lines: Path | None = None) -> None:
        self.place = place
        self.lines = mapped(lines or place / "lines", np.int64)
        self.source, self.target = (Rows.map(place / side, np.uint8) for side in SIDES)

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, i: int) -> Pair:
        line = int(self.lines[i])
        return Pair(line, self.source.text(line - 1), self.target.text(line - 1))

    def __iter__(self) -> Iterator[Pair]:
        return map(self.__getitem__, range(len(self)))


def write_pairs(place: Path, pairs: Iterable[Pair]) -> None:
    """Write texts, and beside them a number a line by which equal ones are found.

    Files: source, target (with their ends), lines; source.digest, target.digest, pair.digest (uint64), and
    blank (bool: a side is).
    """
    parts = (([p.source for p in part], [p.target for p in part]) for part in chunks(pairs, CHUNK))
    n_lines = 0
    for texts, digests, blank in in_parallel(digested, parts):
        for side, rows, numbers in zip(SIDES, texts, digests, strict=True):
            append_rows(place / side, rows)
            append(place / f"{side}.digest", numbers)
        append(place / "pair.digest", digests[0] * np.uint64(0x9E3779B97F4A7C15) + digests[1])
        append(place / "blank", blank)
        append(place / "lines", np.arange(n_lines + 1, n_lines + 1 + len(blank)))
        n_lines += len(blank)


def digested(sides: tuple[list[str], list[str]]) -> tuple[list[Rows], list[NDArray[np.uint64]], NDArray[np.bool_]]:
    """The bytes of both sides' texts, their digests, and which pairs are blank on a side."""
    encoded = [[text.encode() for text in side] for side in sides]
    blank = np.array([is_blank(source) or is_blank(target) for source, target in zip(*sides, strict=True)], bool)
    return [Rows.of(side, np.uint8) for side in encoded], [*map(digests_of, encoded)], blank


def digests_of(texts: Iterable[bytes]) -> NDArray[np.uint64]:
    """A number a text. Of 100M different ones two are the same with a probability of 0.0003."""
    return np.frombuffer(b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts), np.uint64)


def keep(files: Iterable[Path], kept: NDArray[np.bool_], dtype: Any = np.int64) -> None:
    """Drop from files of 8-byte numbers those that are not kept."""
    for file in files:
        before = mapped(file, dtype)
        rest = file.with_suffix(".rest")
        rest.touch()
        for start in range(0, len(kept), PART):
            append(rest, before[start : start + PART][kept[start : start + PART]])
        rest.replace(file)


# --- equal ones, in bounded memory ------------------------------------------------------------------------


def gathered(digests: NDArray[np.uint64]) -> Iterator[NDArray[np.int64]]:
    """Indices in groups that can be sorted one by one: equal digests are in the same group."""
    n_groups = np.uint64(len(digests) // PART + 1)
    for group in range(int(n_groups)):
        yield np.concatenate(
            [
                start + np.flatnonzero(digests[start : start + PART] % n_groups == group)
                for start in range(0, max(len(digests), 1), PART)
            ]
        )


def first_of_equals(digests: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which have no equal before them."""
    first = np.zeros(len(digests), bool)
    for group in gathered(digests):
        first[group[np.unique(digests[group], return_index=True)[1]]] = True
    return first


def n_equals(digests: NDArray[np.uint64]) -> NDArray[np.int32]:
    """How often the digest at each place occurs in all."""
    n = np.zeros(len(digests), np.int32)
    for group in gathered(digests):
        _, place, counts = np.unique(digests[group], return_inverse=True, return_counts=True)
        n[group] = counts[place]
    return n


def found_in(digests: NDArray[np.uint64], few: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of many digests are among a few, and which of the few among the many."""
    many_found, few_found = np.zeros(len(digests), bool), np.zeros(len(few), bool)
    for start in range(0, len(digests), PART):
        part = digests[start : start + PART]
        many_found[start : start + PART] = np.isin(part, few)
        few_found |= np.isin(few, part)
    return many_found, few_found


# --- a random order ---------------------------------------------------------------------------------------


def shuffled(index: NDArray[np.int64], n: int, seed: int) -> NDArray[np.int64]:
    """What stands at some places of n numbers in random order; every place has one of its own.

    A Feistel network turns the numbers of 2k bits into one another. Where the result is n or more, it is put in
    again, until it is less (cycle walking: Black & Rogaway 2002). So no array of n is needed, at any n.
    """
    half = max((n - 1).bit_length() + 1, 2) // 2  # bits
    mask = (1 << half) - 1
    keys = [seed_of(seed, number) << 32 for number in range(ROUNDS)]
    found: NDArray[Any] = index.astype(np.uint64)  # all that follows is modulo 2^64
    todo = np.arange(len(found))
    while len(todo):
        left, right = found[todo] >> half, found[todo] & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right + key) & mask)
        found[todo] = left << half | right
        todo = todo[found[todo] >= n]
    return found.astype(np.int64)


def _mixed(x: NDArray[Any]) -> NDArray[Any]:
    """splitmix64's last step: every bit of the result depends on every bit of x."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    mixed: NDArray[Any] = x ^ (x >> 31)
    return mixed


# --- in several processes ---------------------------------------------------------------------------------


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Items in lists of a size, the last one shorter."""
    stream = iter(items)
    while part := list(itertools.islice(stream, size)):
        yield part


def in_parallel(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`work` of each item, in order; where there are many items in as many processes as there are cores.

    Each process has one item at a time, so that no more than these are in memory. It ends with its pipe, however
    this process ends.

    Raises:
        LostRankError: one of the processes has gone.
    """
    stream = iter(items)
    head = list(itertools.islice(stream, MIN_ITEMS))
    if len(head) < MIN_ITEMS:
        yield from map(work, head)
        return
    context = multiprocessing.get_context("spawn")  # a fork of a process that has threads may hang
    n_processes = min(os.cpu_count() or 1, MAX_PROCESSES)
    pipes: list[Connection] = []
    try:
        for number, item in enumerate(itertools.chain(head, stream)):
            if number < n_processes:
                pipe, other = context.Pipe()
                with environment(child_variables()):
                    context.Process(target=_serve, args=(work, other), daemon=True).start()
                other.close()
                pipes.append(pipe)
            else:
                yield pipes[number % n_processes].recv()
            pipes[number % n_processes].send(item)
        for last in range(max(number + 1 - n_processes, 0), number + 1):
            yield pipes[last % n_processes].recv()
    except (EOFError, ConnectionError) as error:
        raise LostRankError("a process that prepared the corpus is gone", hint="was there enough memory?") from error
    finally:
        for pipe in pipes:
            pipe.close()


def _serve(work: Callable[[Any], Any], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that reads the results
    while True:
        try:
            pipe.send(work(pipe.recv()))
        except (EOFError, ConnectionError):
            return
