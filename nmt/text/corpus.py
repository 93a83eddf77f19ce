"""The training corpus on disk: written once, then memory-mapped by every process that trains on it.

Text is read and written in parts, so that memory grows by some dozens of bytes per pair, for digests of its sides.
Callers choose the files and which pairs to keep. Imports no torch.
"""

import contextlib
import copy
import functools
import hashlib
import itertools
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nmt.errors import LostRankError
from nmt.processes import child_variables, environment, usable_cores
from nmt.seeds import seed_of
from nmt.text.lines import Pair, is_blank

Item = TypeVar("Item")
Result = TypeVar("Result")
Directions = Sequence[tuple[int, str]]

CHUNK = 20_000  # pairs that a process works on at once
MIN_ITEMS = 6  # fewer take less time than starting other processes
MAX_PROCESSES = 16  # more would wait for the parent, which reads and writes for all
ROUNDS = 6  # of the Feistel network; in theory 4 suffice (Luby & Rackoff 1988)
SIDES = ("source", "target")


@dataclass(frozen=True, eq=False)
class RaggedArray:
    """Rows of different lengths: row i is values[starts[i] : ends[i]]. The arrays are usually memory-mapped."""

    values: NDArray[Any]
    starts: NDArray[np.int64]  # (n,)
    ends: NDArray[np.int64]  # (n,)

    @classmethod
    def map(cls, file: Path, dtype: Any) -> "RaggedArray":
        """Memory-map the files that `append_rows` wrote."""
        ends = mapped(file.with_suffix(".ends"), np.int64)
        return cls(mapped(file, dtype), ends[:-1], ends[1:])

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]], dtype: Any = np.int64) -> "RaggedArray":
        ends = np.cumsum([0, *map(len, rows)])
        values = np.fromiter(itertools.chain.from_iterable(rows), dtype, count=int(ends[-1]))
        return cls(values, ends[:-1], ends[1:])

    def take(self, index: NDArray[Any]) -> "RaggedArray":
        """The rows with these indices; values are not copied."""
        return RaggedArray(self.values, self.starts[index], self.ends[index])

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.ends - self.starts

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: int) -> list[int]:
        return list(self.values[self.starts[i] : self.ends[i]].tolist())

    def text(self, i: int) -> str:
        """Decode a row of UTF-8 bytes."""
        return self.values[self.starts[i] : self.ends[i]].tobytes().decode()


def mapped(file: Path, dtype: Any) -> NDArray[Any]:
    """A file of numbers as a memory-mapped array."""
    is_empty = file.stat().st_size == 0  # an empty file cannot be mapped
    return np.zeros(0, dtype) if is_empty else np.memmap(file, dtype, mode="r").view(np.ndarray)


def append(file: Path, values: NDArray[Any]) -> None:
    with file.open("ab") as out:
        out.write(values.tobytes())


def append_rows(file: Path, rows: RaggedArray) -> None:
    """Append all values to a file, and the ends of the rows to FILE.ends, which begins with 0."""
    ends = file.with_suffix(".ends")
    if not ends.exists():
        append(ends, np.zeros(1, np.int64))
    n_before = file.stat().st_size // rows.values.itemsize if file.exists() else 0
    append(file, rows.values)
    append(ends, n_before + rows.ends)


def keep(files: Iterable[Path], kept: NDArray[np.bool_]) -> None:
    """Reduce files of 8-byte numbers to the entries for which `kept` is true."""
    for file in files:
        rest = file.with_suffix(".rest")
        append(rest, mapped(file, np.int64)[kept])
        rest.replace(file)


class Pairs:
    """Pairs that `write_pairs` wrote into a directory: all, or those whose line numbers are in the file `lines`.

    `corpora` has the last line of each corpus in several languages, and its direction.
    """

    def __init__(self, directory: Path, lines: Path | None = None, *, corpora: Directions = ()) -> None:
        self.directory, self.corpora = directory, corpora
        self.lines = mapped(lines or directory / "lines", np.int64)  # (n,), ascending, from 1
        self.source, self.target = (RaggedArray.map(directory / side, np.uint8) for side in SIDES)  # all lines

    def __len__(self) -> int:
        return len(self.lines)

    def part(self, start: int, end: int) -> "Pairs":
        """The pairs from `start` to before `end`."""
        part = copy.copy(self)
        part.lines = self.lines[start:end]
        return part

    def __getitem__(self, i: int) -> Pair:
        line = int(self.lines[i])
        languages = next((found for last, found in self.corpora if line <= last), "")
        return Pair(line, self.source.text(line - 1), self.target.text(line - 1), languages)

    def __iter__(self) -> Iterator[Pair]:
        return map(self.__getitem__, range(len(self)))


def write_pairs(directory: Path, pairs: Iterable[Pair]) -> None:
    """Write files: source, target (see `append_rows`), lines, blank (bool), *.digest (uint64, to find equal texts)."""
    stream, n_lines = iter(pairs), 0
    chunks = iter(lambda: list(itertools.islice(stream, CHUNK)), [])
    names = (*SIDES, "languages")
    texts_of_chunks = ([[getattr(pair, name) for pair in chunk] for name in names] for chunk in chunks)
    for texts, digests, blank in in_parallel(_digested, texts_of_chunks):
        for side, rows, of_side in zip(SIDES, texts, digests[:2], strict=True):
            append_rows(directory / side, rows)
            append(directory / f"{side}.digest", of_side)
        append(directory / "pair.digest", digests[0] * np.uint64(0x9E3779B97F4A7C15) + digests[1] + digests[2])
        append(directory / "blank", blank)
        append(directory / "lines", np.arange(n_lines + 1, n_lines + 1 + len(blank)))
        n_lines += len(blank)


def _digested(columns: list[list[str]]) -> tuple[list[RaggedArray], list[NDArray[np.uint64]], NDArray[np.bool_]]:
    """Return the texts of both sides, the digests of sources, targets and languages, and which pairs have a blank side.

    Runs in child processes.
    """
    encoded = [[text.encode() for text in column] for column in columns]
    blank = np.array([is_blank(source) or is_blank(target) for source, target in zip(*columns[:2], strict=True)], bool)
    return [RaggedArray.from_lists(side, np.uint8) for side in encoded[:2]], [*map(digests_of, encoded)], blank


def digests_of(texts: Iterable[bytes]) -> NDArray[np.uint64]:
    """A 64-bit digest of each text. Among 100M texts, two collide with probability 0.0003."""
    return np.frombuffer(b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts), np.uint64)


def first_occurrences(digests: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return a mask of the digests that no equal digest precedes."""
    is_first = np.zeros(len(digests), bool)
    is_first[np.unique(digests, return_index=True)[1]] = True
    return is_first


def n_occurrences(digests: NDArray[np.uint64]) -> NDArray[np.int64]:
    """How often each digest occurs."""
    _, inverse, counts = np.unique(digests, return_inverse=True, return_counts=True)
    return counts[inverse]


def shuffled(index: NDArray[np.int64], n: int, seed: int) -> NDArray[np.int64]:
    """Return entries of a pseudo-random permutation of n numbers, by index, without storing the permutation.

    A Feistel network permutes all numbers of 2k bits. Results of n or more are permuted again until they are less
    than n (cycle walking, Black & Rogaway 2002). numpy's permutation is not used, because it may change between
    versions, and resumed runs must keep their order and dev pairs.
    """
    half = max((n - 1).bit_length() + 1, 2) // 2  # bits
    mask = (1 << half) - 1
    keys = [seed_of(seed, number) << 32 for number in range(ROUNDS)]
    entries: NDArray[Any] = index.astype(np.uint64)  # arithmetic modulo 2^64
    todo = np.arange(len(entries))
    while len(todo):
        left, right = entries[todo] >> half, entries[todo] & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right + key) & mask)
        entries[todo] = left << half | right
        todo = todo[entries[todo] >= n]
    return entries.astype(np.int64)


@dataclass(frozen=True)
class Mixture:
    """Selects the pairs of an epoch: all pairs of the first corpus, and a share of the epoch from each other corpus.

    An epoch has N = sizes[0] / (1 - sum of the shares) pairs: round(share * N), at least one, from each other corpus.
    Each other corpus is read in a random order, which continues in the next epoch. After all of its pairs were read, it
    is read again in a new order. So any two pairs of a corpus were read equally often, or one of them once more.
    """

    sizes: Sequence[int]  # number of pairs of each corpus; the corpora are concatenated
    shares: Sequence[float]  # share of an epoch's pairs, 0-1, for each corpus except the first

    @functools.cached_property
    def n_drawn(self) -> list[int]:
        """The number of pairs of each corpus in an epoch."""
        n_epoch = self.sizes[0] / (1 - sum(self.shares))
        return [self.sizes[0], *(max(round(share * n_epoch), 1) for share in self.shares)]

    @property
    def n_pairs(self) -> int:
        """The number of pairs in an epoch."""
        return sum(self.n_drawn)

    def pairs(self, entries: NDArray[np.int64], epoch: int, seed: int) -> NDArray[np.int64]:
        """Return the indices of pairs for positions (0 to `n_pairs` - 1) in an epoch that is not shuffled yet."""
        found = entries.copy()  # already right for the first corpus
        n_before, n_entries = self.sizes[0], self.sizes[0]
        for number, (size, n) in enumerate(zip(self.sizes[1:], self.n_drawn[1:], strict=True)):
            own = (entries >= n_entries) & (entries < n_entries + n)
            rounds, order = np.divmod(epoch * n + entries[own] - n_entries, size)  # passes before this one, position
            chosen = np.empty_like(order)
            for i in np.unique(rounds):
                of_round = rounds == i
                chosen[of_round] = shuffled(order[of_round], size, seed_of(seed, number, int(i), 0))
            found[own] = n_before + chosen
            n_before, n_entries = n_before + size, n_entries + n
        return found


def hold_out(
    source: NDArray[np.uint64], target: NDArray[np.uint64], n_held_out: int, seed: int, n_candidates: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Choose random pairs to hold out, and remove all other pairs that share a sentence with them.

    Prefers sentences that occur once, because holding them out removes no other pair. Chooses from the `n_candidates`
    first pairs, None for all. Returns sorted indices of pairs that are held out, and a mask of those that remain.
    """
    n_candidates = len(source) if n_candidates is None else n_candidates
    n_alike = (n_occurrences(source) + n_occurrences(target))[:n_candidates]
    chosen = np.lexsort((shuffled(np.arange(n_candidates), n_candidates, seed), n_alike))[:n_held_out]
    removed = np.isin(source, source[chosen]) | np.isin(target, target[chosen])
    return np.sort(chosen), ~removed


def _mixed(x: Any) -> Any:
    """The finalizer of splitmix64: each bit of the result depends on all bits of x."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


def in_parallel(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Like `map`, but in one process per usable core, at most `MAX_PROCESSES`; few items are processed in this process.

    Each process receives `work`, which may hold tokenizers, once, then items one by one. It exits when its pipe closes.
    `ProcessPoolExecutor` would pickle `work` with each item, and its processes would outlive a parent that is killed.
    """
    stream = iter(items)
    head = list(itertools.islice(stream, MIN_ITEMS))
    if len(head) < MIN_ITEMS:
        yield from map(work, head)
        return
    context = multiprocessing.get_context("spawn")  # forking a process with threads may deadlock
    n_processes = min(usable_cores(), MAX_PROCESSES)
    pipes: deque[Connection] = deque()  # one per process; the first has the oldest item
    processes = []
    try:
        for item in itertools.chain(head, stream):
            if len(pipes) < n_processes:
                pipe, child_pipe = context.Pipe()
                with environment(child_variables()):
                    processes.append(context.Process(target=_serve, args=(work, child_pipe), daemon=True))
                    processes[-1].start()
                child_pipe.close()
                pipes.append(pipe)
            else:
                yield pipes[0].recv()
                pipes.rotate(-1)
            pipes[-1].send(item)
        for pipe in pipes:
            yield pipe.recv()
    except (EOFError, ConnectionError) as error:
        raise LostRankError("a process that prepared the corpus is gone", hint="was there enough memory?") from error
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:  # wait, so that their memory is free for what comes next
            process.terminate()
            process.join()


def _serve(work: Callable[[Any], Any], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent handles it
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pipe.send(work(pipe.recv()))
