"""Long jobs that work in turns, so that other jobs can use the model in between.

A long job has a thread, but works only while it has the turn: the model's thread waits in `take_turn` until the job
calls `check` after `TURN_S`, or ends. So one job at a time uses the model, and a job can pause anywhere, in the middle
of a search too. `EngineInParts` calls `check` often enough, whatever the size of the work and of the model.
"""

import asyncio
import copy
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nmt.decode.options import Engine, NBest, SearchOptions, Segment, WatchStep
from nmt.documents.markup import between_segments
from nmt.translate.translator import Translator

TURN_S = 0.02  # a turn ends at the first `check` after this time
PART_S = 0.02  # about how long the engine works between two checks
LEAST_ITEMS = 4  # sentences or pairs in a part, so that all cores have work

# Threads are kept for later jobs: in a new one, torch compiles its kernels anew, which takes a second. There are never
# more threads than jobs that have started and not ended.
THREADS = ThreadPoolExecutor(10_000, "nmt long job")

Item = TypeVar("Item")
Check = Callable[[], None]  # lets other jobs go first; raises AbandonedError if no client waits any more


class AbandonedError(Exception):
    """No client waits for this job any more."""


class LongJob:
    """A function that works in turns. It is given a `Check`, which it calls every few milliseconds."""

    def __init__(
        self,
        function: Callable[[Check], Any],
        done: asyncio.Future[Any],
        after_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """Canceling `done` lets the function's next `check` raise AbandonedError.

        The owner, who calls `take_turn`, sets the result of `done` and calls `after_turn`.
        """
        self.function = function
        self.done = done
        self.after_turn = after_turn
        self.work: Future[Any] | None = None  # in its thread; None before the first turn
        self._turn_until = 0.0
        self._turn_begins = threading.Semaphore(0)
        self._turn_ends = threading.Semaphore(0)
        self._is_abandoned = False

    def take_turn(self) -> Future[Any]:
        """Let the function work until its turn is over, or it has ended. Return its work, which may be done."""
        self._turn_until = time.monotonic() + TURN_S
        if self.work is None:
            self.work = THREADS.submit(Context().run, self.function, self._check)
            self.work.add_done_callback(lambda _: self._turn_ends.release())
        else:  # it goes on where its last `check` has stopped it
            self._turn_begins.release()
        self._turn_ends.acquire()
        return self.work

    def abandon(self) -> None:
        """End a job that gets no further turn, at its next `check`."""
        self._is_abandoned = True
        self._turn_begins.release()

    def _check(self) -> None:
        self._raise_if_abandoned()
        if time.monotonic() >= self._turn_until:
            self._turn_ends.release()
            self._turn_begins.acquire()
            self._raise_if_abandoned()

    def _raise_if_abandoned(self) -> None:
        if self._is_abandoned or self.done.cancelled():
            raise AbandonedError


def in_parts(translator: Translator, check: Check) -> Translator:
    """Return the same translator, for a long job: its engine calls `check` every `PART_S`.

    Parsers and writers of documents call it, too, in the context of the job.
    """
    between_segments.set(check)
    changed = copy.copy(translator)
    changed.engine = EngineInParts(translator.engine, check)
    return changed


@dataclass
class EngineInParts:
    """An `Engine` that does the work of another one in parts of about `PART_S`, and calls `check` after each."""

    engine: Engine
    check: Check

    def __post_init__(self) -> None:
        self.name, self.max_length = self.engine.name, self.engine.max_length
        self.explains, self.in_background = self.engine.explains, self.engine.in_background
        self.tokens_per_s: dict[str, float] = {}  # by the kind of work, as measured in its last part

    def torch_engine(self, needed_for: str) -> "EngineInParts":
        return EngineInParts(self.engine.torch_engine(needed_for), self.check)

    def start(
        self, segments: Sequence[Segment], options: SearchOptions, *, batch_size: int, watch: WatchStep | None = None
    ) -> Callable[[], list[NBest]]:
        """Return a function that runs the whole search. A search that is watched is checked in each step."""

        def search(part: Sequence[int]) -> list[NBest]:
            chosen = [segments[i] for i in part]
            return self.engine.start(chosen, options, batch_size=batch_size, watch=watch)()

        # Only a whole search has steps that can be watched.
        if watch:
            return lambda: search(range(len(segments)))
        lengths = [len(segment.tokens) for segment in segments]
        return lambda: self._in_parts("search", lengths, search)

    def score(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[list[float]]:
        return self._pairs_in_parts("score", self.engine.score, source, target)

    def attention(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[NDArray[np.float32]]:
        return self._pairs_in_parts("attention", self.engine.attention, source, target)

    def _pairs_in_parts(
        self,
        kind: str,
        work: Callable[[list[list[int]], list[list[int]]], list[Item]],
        source: Sequence[list[int]],
        target: Sequence[list[int]],
    ) -> list[Item]:
        def work_on(part: Sequence[int]) -> list[Item]:
            return work([source[i] for i in part], [target[i] for i in part])

        lengths = [len(tokens) + len(target[i]) for i, tokens in enumerate(source)]
        return self._in_parts(kind, lengths, work_on)

    def _in_parts(self, kind: str, lengths: Sequence[int], work: Callable[[Sequence[int]], list[Item]]) -> list[Item]:
        """Return what `work` returns for all indices, in order; `lengths` are the tokens of each."""
        results: dict[int, Item] = {}
        # Items of similar length share a part, because they share batches. The longest come first.
        order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
        while order:
            # 1. Take as many items as fit into the time, at the speed of the last part.
            speed = self.tokens_per_s.get(kind, 0.0)
            longest = max(lengths[order[0]], 1)
            n_items = max(LEAST_ITEMS, int(speed * PART_S / longest))
            part = order[:n_items]
            del order[:n_items]
            # 2. Work on them.
            started = time.monotonic()
            results |= zip(part, work(part), strict=True)
            seconds = max(time.monotonic() - started, 1e-4)
            self.tokens_per_s[kind] = sum(lengths[i] for i in part) / seconds
            # 3. Let others go first.
            self.check()
        return [results[i] for i in range(len(lengths))]
