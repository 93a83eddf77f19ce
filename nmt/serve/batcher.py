"""Decides which request uses the model next. This module does not depend on HTTP.

Each engine has one thread, because one search uses all cores. Short requests that arrive during a search wait; the next
search translates the oldest one and all others that go with it. It starts before the results of the last one are sent,
if the engine searches in the background.

Everything else, such as a document, a long text or an explanation, is a `LongJob`. Its first turn comes in the order of
arrival. If it needs more, it takes turns with the other long jobs whenever no short request waits, or has ended just
before, because its client may send the next one. At least a quarter of the time is for long jobs.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, TypeVar

from nmt.decode.options import Engine
from nmt.errors import NmtError
from nmt.serve.turns import AbandonedError, Check, LongJob, in_parts
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import Translator
from nmt.translate.units import Translation, Unit

log = logging.getLogger("nmt")

# Per search. They limit how long later requests wait, and how long a search without `watch` goes on after its clients
# have left.
MAX_LINES, MAX_CHARACTERS = 128, 10_000
MAX_SHORT = 1_000  # characters; a longer request is a long job
MAX_STARTED = 16  # long jobs that take turns; further ones wait for their first turn
QUIET_S = 0.02  # after a short request, long jobs wait so long for its client's next one
WAIT_BY_TURN = 3  # a long job waits for short requests at most so many times as long as the last turn took

Item = TypeVar("Item")
Result = TypeVar("Result")
ShowLine = Callable[[int, str], None]  # gets the index of a line and its translation so far
Finish = Callable[[], list[list[Translation]]]  # waits for a search; returns the result of each of its requests


class QueueFullError(NmtError):
    """Too many requests are waiting."""


@dataclass(eq=False)
class ShortJob:
    """A queued request of a few lines, which may be batched with others."""

    done: asyncio.Future[Any]
    translator: Translator
    lines: Sequence[Unit]
    options: TranslationOptions
    show: ShowLine | None = None

    @property
    def n_characters(self) -> int:
        return sum(len(line.text) for line in self.lines)

    def goes_with(self, other: "ShortJob") -> bool:
        """Return whether one search can translate both; a job with `show` may need another engine than one without."""
        is_shown_alike = (self.show is None) == (other.show is None)
        return self.translator is other.translator and self.options == other.options and is_shown_alike


@dataclass(eq=False)
class Search:
    """A search that has begun; the future gives a function that waits for its results."""

    jobs: Sequence[ShortJob]
    started: asyncio.Future[Finish]


class Batcher:
    """Runs the translators of one engine, with a queue of waiting requests. All methods are for one event loop."""

    def __init__(
        self, engine: Engine, max_waiting: int, on_batch: Callable[[int], None], thread: ThreadPoolExecutor
    ) -> None:
        """`on_batch` is called with the number of lines of each search. `thread`, one, is that of the engine."""
        self.engine = engine
        self.max_waiting = max_waiting
        self.on_batch = on_batch
        self.waiting: list[ShortJob | LongJob] = []
        self.started: list[LongJob] = []  # they have had a turn, and need more
        self.thread = thread
        self.worker: asyncio.Task[None] | None = None  # runs while there are jobs
        self.arrival = asyncio.Event()  # a request has been queued
        self.short_ended = self.turn_ended = -math.inf  # when the last short request and the last turn ended
        self.turn_s = 0.0  # how long the last turn of a long job took

    def translate(
        self, translator: Translator, lines: Sequence[Unit], options: TranslationOptions, show: ShowLine | None = None
    ) -> asyncio.Future[list[Translation]]:
        """Queue lines for translation; canceling the future abandons them.

        `show` is called in the event loop, for every line after every step of the search. Raises QueueFullError.
        """
        loop = asyncio.get_running_loop()
        job = ShortJob(loop.create_future(), translator, lines, options, show)
        if job.n_characters <= MAX_SHORT:
            return self._queue(job)
        # A long text is a long job; its search is watched all the same.

        def search(check: Check) -> list[Translation]:
            alone = replace(job, translator=in_parts(translator, check))
            finish = self._search([alone], loop, check)
            return finish()[0]

        return self._queue(LongJob(search, job.done))

    def call(
        self, function: Callable[[Check], Result], after_turn: Callable[[], None] = lambda: None
    ) -> asyncio.Future[Result]:
        """Queue a function that uses the model; canceling the future lets the `Check` that it is given raise.

        `after_turn` is called after each of its turns, as long as the future is not done. Raises QueueFullError.
        """
        return self._queue(LongJob(function, asyncio.get_running_loop().create_future(), after_turn))

    def _queue(self, job: ShortJob | LongJob) -> asyncio.Future[Any]:
        # Canceled requests make room for others.
        self._drop_canceled()
        if len(self.waiting) >= self.max_waiting:
            raise QueueFullError(f"{len(self.waiting)} requests wait already", hint="try again later")
        self.waiting.append(job)
        self.arrival.set()
        if self.worker is None or self.worker.done():
            self.worker = asyncio.create_task(self._work())
        return job.done

    async def _work(self) -> None:
        """Process jobs until none is left."""
        search: Search | None = None  # the one that runs
        try:
            while self.waiting or self.started or search:
                self.arrival.clear()
                # The next job from the queue, unless a job that has started must have its turn.
                is_turn_due = self.started and self._wait_s() <= 0
                job = None if is_turn_due else self._next()
                # A search begins before the last one is finished, so that the engine always has work.
                begun = await self._start(self._batch(job)) if isinstance(job, ShortJob) else None
                if search:
                    await self._finish(search)
                search = begun
                # A turn comes when no search runs: one job at a time uses the engine.
                if search and not self.engine.in_background:
                    await self._finish(search)
                    search = None
                elif isinstance(job, LongJob):
                    await self._first_turn(job)
                elif job is None and self.started:
                    await self._turn_when_due()
        finally:  # the server stops
            for job in self.started:
                job.abandon()

    def _next(self) -> ShortJob | LongJob | None:
        """Take the oldest job from the queue; None if there is none that may start."""
        self._drop_canceled()
        startable = self._startable()
        if not startable:
            return None
        oldest = startable[0]
        self.waiting.remove(oldest)
        return oldest

    def _drop_canceled(self) -> None:
        self.waiting = [job for job in self.waiting if not job.done.cancelled()]
        # A job that has started is in the middle of its work: wake it, so that it ends.
        for job in list(self.started):
            if job.done.cancelled():
                self.started.remove(job)
                job.abandon()

    def _startable(self) -> list[ShortJob | LongJob]:
        """Return the waiting jobs, without the long ones if too many have started."""
        if len(self.started) < MAX_STARTED:
            return self.waiting
        return [job for job in self.waiting if isinstance(job, ShortJob)]

    # --- short requests -----------------------------------------------------------------------------------

    def _batch(self, first: ShortJob) -> list[ShortJob]:
        """Return a job and all from the queue that can be translated with it."""
        batch = [first]
        n_lines = len(first.lines)
        n_characters = first.n_characters
        for job in list(self.waiting):
            if not isinstance(job, ShortJob) or not job.goes_with(first):
                continue
            new_lines = n_lines + len(job.lines)
            new_characters = n_characters + job.n_characters
            if new_lines <= MAX_LINES and new_characters <= MAX_CHARACTERS:
                self.waiting.remove(job)
                batch.append(job)
                n_lines, n_characters = new_lines, new_characters
        return batch

    async def _start(self, jobs: Sequence[ShortJob]) -> Search:
        """Start to process jobs together, in the model's thread. `_finish` handles an error."""
        loop = asyncio.get_running_loop()

        def check() -> None:
            if all(job.done.cancelled() for job in jobs):
                raise AbandonedError

        started = loop.run_in_executor(self.thread, self._search, jobs, loop, check)
        await asyncio.wait([started])
        return Search(jobs, started)

    async def _finish(self, search: Search) -> None:
        """Wait for a search and set its results.

        After an error, process each job alone, so that only faulty ones fail.
        """
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self.thread, await search.started)
        except AbandonedError:
            pass
        except Exception as error:
            if len(search.jobs) > 1:
                for job in search.jobs:
                    await self._finish(await self._start([job]))
            else:
                fail(search.jobs[0].done, error)
        else:
            for job, result in zip(search.jobs, results, strict=True):
                if not job.done.done():
                    job.done.set_result(result)
        self.short_ended = time.monotonic()

    def _search(self, jobs: Sequence[ShortJob], loop: asyncio.AbstractEventLoop, check: Check) -> Finish:
        """Start a search for jobs; the returned function waits for their results and returns them."""
        translator = jobs[0].translator
        lines = list(chain.from_iterable(job.lines for job in jobs))
        # `watch` shows the steps, and ends a search that nobody waits for. A search in the background has no steps.
        is_watched = jobs[0].show is not None or not self.engine.in_background

        def watch(texts_so_far: Callable[[], list[str]]) -> None:
            check()
            if jobs[0].show is None:
                return
            texts = texts_so_far()
            first = 0  # index of the job's first line
            for job in jobs:
                if job.show:
                    for i in range(len(job.lines)):
                        loop.call_soon_threadsafe(job.show, i, texts[first + i])
                first += len(job.lines)

        self.on_batch(len(lines))
        batch_size = translator.config.decode.batch_size
        search = translator.start(lines, jobs[0].options, batch_size, watch if is_watched else None)
        return lambda: grouped(search.result(), [len(job.lines) for job in jobs])

    # --- long jobs ----------------------------------------------------------------------------------------

    async def _first_turn(self, job: LongJob) -> None:
        """Give a job its first turn. Many end in it, so it counts as a short request."""
        await self._turn(job)
        self.short_ended = time.monotonic()

    async def _turn_when_due(self) -> None:
        """Give the next job that has started its turn; before that, wait for a short request until the turn is due."""
        wait_s = self._wait_s()
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.arrival.wait(), wait_s)
            return
        # The job goes to the end of the queue, unless it ends.
        began = time.monotonic()
        await self._turn(self.started.pop(0))
        self.turn_ended = time.monotonic()
        self.turn_s = self.turn_ended - began

    def _wait_s(self) -> float:
        """Return how long the jobs that have started must still wait for a turn; not positive if it is due."""
        due = self.turn_ended + WAIT_BY_TURN * self.turn_s
        if not self._startable():
            due = min(due, self.short_ended + QUIET_S)
        elif self.short_ended < self.turn_ended:
            due = math.inf  # the request that waits goes first, however short the turns are
        return due - time.monotonic()

    async def _turn(self, job: LongJob) -> None:
        """Let a job work for a turn, in which the model's thread waits; set its result if it has ended."""
        try:
            work = await asyncio.get_running_loop().run_in_executor(self.thread, job.take_turn)
        except asyncio.CancelledError:  # the server stops
            job.abandon()
            raise
        if not job.done.done():
            job.after_turn()
        if not work.done():
            self.started.append(job)
        elif error := work.exception():
            fail(job.done, error)
        elif not job.done.done():
            job.done.set_result(work.result())


def grouped(items: Sequence[Item], sizes: Iterable[int]) -> list[list[Item]]:
    """Return consecutive groups of these sizes."""
    rest = iter(items)
    return [list(islice(rest, size)) for size in sizes]


def fail(done: asyncio.Future[Any], error: BaseException) -> None:
    """Set the error of a request; what is no error of its client is logged."""
    if isinstance(error, AbandonedError):
        return
    if not isinstance(error, NmtError):
        log.error("a request failed", exc_info=error)
    if not done.done():
        done.set_exception(error)
