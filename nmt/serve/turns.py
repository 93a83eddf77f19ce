"""Long jobs that work in turns, so that other jobs can use the model in between.

A long job has its own thread. During a turn, the model's thread waits in `take_turn`, so that only the job uses the
model. The turn ends when the job calls `check` after `TURN_S` seconds, even in the middle of a search. `EngineInParts`
splits the work of an engine into small parts and calls `check` after each part.
"""

import asyncio
import copy
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nmt.decode.options import Engine, NBest, RunningSearch, SearchOptions, SearchRequest, WatchStep
from nmt.documents.markup import between_segments
from nmt.serve.metrics import Stopwatch
from nmt.translate.translator import Translator

TURN_S = 0.02  # seconds after which the next `check` ends a turn
LEAST_ITEMS = 4  # minimum number of sentences or pairs in a part, so that all cores have work

# The threads of all long jobs. They are used again, because torch takes a second to compile its kernels in a new
# thread. The limit of 10,000 is never reached.
THREADS = ThreadPoolExecutor(10_000, "nmt long job")

Item = TypeVar("Item")
Result = TypeVar("Result")
Check = Callable[[], None]  # waits if the job's turn is over; raises AbandonedError if its client has left


class AbandonedError(Exception):
    """No client waits for the result any more."""


class LongJob:
    """A function that works in turns. The function gets a `Check`, which it must call every few milliseconds."""

    def __init__(self, function: Callable[[Check], Any], done: asyncio.Future[Any]) -> None:
        """Create a job. The caller of `take_turn` must set the result of `done`.

        If `done` is canceled, the job ends at its next `check`.
        """
        self.function = function
        self.done = done
        self.stopwatch = Stopwatch()
        self.work: Future[Any] | None = None  # the function's future in `THREADS`; None before the first turn
        self._turn_until = 0.0
        self._turn_begins = threading.Semaphore(0)
        self._turn_ends = threading.Semaphore(0)

    def take_turn(self) -> Future[Any]:
        """Let the function work for one turn. Return its future, which is done if the function has ended."""
        self.stopwatch.begin("turns")
        self._turn_until = time.monotonic() + TURN_S
        if self.work is None:
            self.work = THREADS.submit(Context().run, self._work)
            self.work.add_done_callback(lambda _: self._turn_ends.release())
        else:  # the function continues after the `check` that ended its last turn
            self._turn_begins.release()
        self._turn_ends.acquire()
        self.stopwatch.begin("wait")
        return self.work

    def abandon(self) -> None:
        """Cancel the job, and wake its thread so that the thread ends."""
        self.done.cancel()
        self._turn_begins.release()

    def _work(self) -> Any:
        self.check()  # the client may have left before the first turn
        return self.function(self.check)

    def check(self) -> None:
        """Wait for the next turn if this turn is over. Raise AbandonedError if `done` is canceled."""
        if time.monotonic() >= self._turn_until:
            self._turn_ends.release()
            self._turn_begins.acquire()
        if self.done.cancelled():
            raise AbandonedError


def in_parts(translator: Translator, check: Check) -> Translator:
    """Return a copy of a translator. Its engine calls `check` about every `TURN_S` seconds.

    Parsers and writers of documents in the same job call `check`, too.
    """
    between_segments.set(check)
    changed = copy.copy(translator)
    changed.engine = EngineInParts(translator.engine, check)
    return changed


@dataclass
class EngineInParts:
    """An engine that works in parts of about `TURN_S` seconds. It calls `check` after each part."""

    engine: Engine
    check: Check

    def __post_init__(self) -> None:
        self.name, self.max_length = self.engine.name, self.engine.max_length
        self.explains, self.in_background = self.engine.explains, self.engine.in_background

    def torch_engine(self, needed_for: str) -> "EngineInParts":
        return EngineInParts(self.engine.torch_engine(needed_for), self.check)

    def start(
        self,
        requests: Sequence[SearchRequest],
        options: SearchOptions,
        *,
        batch_size: int,
        watch: WatchStep | None,
    ) -> RunningSearch:
        """Return a search that works in parts when it is called."""
        # A watched search must show all lines at each step, so it runs as a whole. `watch` itself calls `check`.
        if watch:
            return self.engine.start(requests, options, batch_size=batch_size, watch=watch)

        def search(part: Sequence[SearchRequest]) -> list[NBest]:
            return self.engine.start(part, options, batch_size=batch_size, watch=None)()

        lengths = [len(request.tokens) for request in requests]
        return partial(self.in_parts, requests, lengths, search)

    def score(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[list[float]]:
        return self._pairs_in_parts(self.engine.score, source, target)

    def attention(self, source: Sequence[list[int]], target: Sequence[list[int]]) -> list[NDArray[np.float32]]:
        return self._pairs_in_parts(self.engine.attention, source, target)

    def _pairs_in_parts(
        self, work: Callable[..., list[Result]], source: Sequence[list[int]], target: Sequence[list[int]]
    ) -> list[Result]:
        def work_on(part: list[tuple[list[int], list[int]]]) -> list[Result]:
            sources, targets = zip(*part, strict=True)
            return work(sources, targets)

        pairs = list(zip(source, target, strict=True))
        lengths = [len(s) + len(t) for s, t in pairs]
        return self.in_parts(pairs, lengths, work_on)

    def in_parts(
        self, items: Sequence[Item], lengths: Sequence[int], work: Callable[[list[Item]], list[Result]]
    ) -> list[Result]:
        """Call `work` on parts of the items, and `check` after each part. Return one result per item, in order.

        `lengths` has the number of tokens of each item.
        """
        results: dict[int, Result] = {}
        # Sort the items, because a batch of similar lengths needs little padding.
        order = sorted(range(len(items)), key=lengths.__getitem__, reverse=True)
        n_items = LEAST_ITEMS
        while order:
            part = order[:n_items]
            del order[:n_items]
            started = time.monotonic()
            results |= zip(part, work([items[i] for i in part]), strict=True)
            seconds = max(time.monotonic() - started, 1e-4)
            # Choose the size of the next part so that it takes about `TURN_S` seconds.
            n_items = max(LEAST_ITEMS, int(len(part) * TURN_S / seconds))
            self.check()
        return [results[i] for i in range(len(items))]
