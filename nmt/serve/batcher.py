"""The queue of requests, which decides which request uses the model next. This module does not depend on HTTP.

Each engine has one thread, because one search uses all cores. Short requests that arrive during a search wait in the
queue. The next search translates the oldest short request, together with all short requests that can share its batch.
If the engine searches in the background, the next search starts before the results of the previous search are sent.

Every other request, such as a document, a long text or an explanation, is a `LongJob`. A long job gets its first turn
in the order of arrival. If a long job needs more than one turn, it then takes turns with the other long jobs. Such a
turn begins when no short request waits and no short request has ended in the last `QUIET_S` seconds. This pause is
needed because the client of a short request may send the next request at once. If short requests never stop, long jobs
get a quarter of the time, or less if a single search takes longer than three turns.
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

# Maximum lines and characters of one search. The limits bound how long later requests wait, and how long a search
# without `watch` goes on after the clients of the search have disconnected.
MAX_LINES, MAX_CHARACTERS = 128, 10_000
MAX_SHORT = 1_000  # maximum length of a short request, in characters; a longer request is a long job
MAX_LONG_JOBS = 16  # maximum number of long jobs that take turns; further long jobs wait for their first turn
QUIET_S = 0.02  # after a short request, long jobs wait this many seconds for the next request of the same client
WAIT_BY_TURN = 3  # maximum time that long jobs wait for short requests after a turn, divided by the time of the turn

Item = TypeVar("Item")
Result = TypeVar("Result")
ShowLine = Callable[[int, str], None]  # takes the index of a line and the line's translation so far
Finish = Callable[[], list[list[Translation]]]  # waits for a search; returns the translations of each job


class QueueFullError(NmtError):
    """Too many requests are waiting."""


@dataclass(eq=False)
class ShortJob:
    """A queued request of a few lines, which may share a search with other requests."""

    done: asyncio.Future[Any]
    translator: Translator
    lines: Sequence[Unit]
    options: TranslationOptions
    show: ShowLine | None = None

    @property
    def n_characters(self) -> int:
        return sum(len(line.text) for line in self.lines)

    def goes_with(self, other: "ShortJob") -> bool:
        """Return whether one search can translate both jobs.

        A job with `show` and a job without `show` may need different engines, so they do not share a search.
        """
        agree_on_show = (self.show is None) == (other.show is None)
        return self.translator is other.translator and self.options == other.options and agree_on_show


@dataclass(eq=False)
class BatchSearch:
    """A started search for a batch of jobs. The result of `finish` is a function that waits for the translations."""

    jobs: Sequence[ShortJob]
    finish: asyncio.Future[Finish]


class Batcher:
    """The scheduler of one engine, with a queue of waiting requests. All methods must be called in one event loop."""

    def __init__(
        self, engine: Engine, max_waiting: int, on_batch: Callable[[int], None], thread: ThreadPoolExecutor
    ) -> None:
        """Create a batcher.

        `on_batch` is called with the number of lines of each search. `thread` is an executor with one thread, in which
        the engine runs.
        """
        self.engine = engine
        self.max_waiting = max_waiting
        self.on_batch = on_batch
        self.waiting: list[ShortJob | LongJob] = []
        self.long_jobs: list[LongJob] = []  # long jobs that have had a turn and need more turns, in turn order
        self.thread = thread
        self.worker: asyncio.Task[None] | None = None  # the task of `_work`, which runs while there are jobs
        self.arrival = asyncio.Event()  # set when a request is queued
        self.short_ended = self.turn_ended = -math.inf  # times when the last short request and the last turn ended
        self.turn_s = 0.0  # duration of the last turn of a long job, in seconds

    def translate(
        self, translator: Translator, lines: Sequence[Unit], options: TranslationOptions, show: ShowLine | None = None
    ) -> asyncio.Future[list[Translation]]:
        """Queue lines for translation. Canceling the returned future abandons the translation.

        `show` is called in the event loop, for every line after every step of the search. Raises QueueFullError if too
        many requests wait.
        """
        loop = asyncio.get_running_loop()
        job = ShortJob(loop.create_future(), translator, lines, options, show)
        if job.n_characters <= MAX_SHORT:
            return self._queue(job)
        # A long text becomes a long job. `show` works as in a short job.

        def translate_alone(check: Check) -> list[Translation]:
            alone = replace(job, translator=in_parts(translator, check))
            finish = self._start_search([alone], loop, check)
            return finish()[0]

        return self._queue(LongJob(translate_alone, job.done))

    def call(
        self, function: Callable[[Check], Result], after_turn: Callable[[], None] = lambda: None
    ) -> asyncio.Future[Result]:
        """Queue a function that uses the model, as a long job.

        The function gets a `Check`. If the returned future is canceled, the next call of the `Check` raises
        AbandonedError. `after_turn` is called after each turn of the function until the future is done. Raises
        QueueFullError if too many requests wait.
        """
        return self._queue(LongJob(function, asyncio.get_running_loop().create_future(), after_turn))

    def _queue(self, job: ShortJob | LongJob) -> asyncio.Future[Any]:
        # Canceled requests do not count against the limit.
        self._drop_canceled()
        if len(self.waiting) >= self.max_waiting:
            raise QueueFullError(f"{len(self.waiting)} requests wait already", hint="try again later")
        self.waiting.append(job)
        self.arrival.set()
        if self.worker is None or self.worker.done():
            self.worker = asyncio.create_task(self._work())
        return job.done

    async def _work(self) -> None:
        """Process jobs until no job is left."""
        running: BatchSearch | None = None
        try:
            while self.waiting or self.long_jobs or running:
                self.arrival.clear()
                # If a turn of a long job is due, take no job from the queue.
                is_turn_due = self.long_jobs and self._wait_s() <= 0
                job = None if is_turn_due else self._next()
                # Start the next search before the running search is finished, so that the engine always has work.
                next_search = await self._start_batch(self._batch(job)) if isinstance(job, ShortJob) else None
                if running:
                    await self._finish(running)
                running = next_search
                # Give a turn only while no search runs, because only one job at a time may use the engine.
                if running and not self.engine.in_background:
                    await self._finish(running)
                    running = None
                elif isinstance(job, LongJob):
                    await self._first_turn(job)
                elif job is None and self.long_jobs:
                    await self._turn_when_due()
        finally:  # jobs are left only if the server stops or a bug raises an error
            for job in self.long_jobs:
                job.abandon()

    def _next(self) -> ShortJob | LongJob | None:
        """Return the oldest job in the queue that may start, or None, and remove the job from the queue."""
        self._drop_canceled()
        startable = self._startable()
        if not startable:
            return None
        oldest = startable[0]
        self.waiting.remove(oldest)
        return oldest

    def _drop_canceled(self) -> None:
        self.waiting = [job for job in self.waiting if not job.done.cancelled()]
        # The thread of a canceled long job is blocked until the next turn: wake the thread, so that it ends.
        for job in list(self.long_jobs):
            if job.done.cancelled():
                self.long_jobs.remove(job)
                job.abandon()

    def _startable(self) -> list[ShortJob | LongJob]:
        """Return the waiting jobs. If `MAX_LONG_JOBS` long jobs take turns already, leave out the waiting long jobs."""
        if len(self.long_jobs) < MAX_LONG_JOBS:
            return self.waiting
        return [job for job in self.waiting if isinstance(job, ShortJob)]

    # --- short requests -----------------------------------------------------------------------------------

    def _batch(self, first: ShortJob) -> list[ShortJob]:
        """Remove from the queue all jobs that fit into the same search as `first`. Return `first` and these jobs."""
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

    async def _start_batch(self, jobs: Sequence[ShortJob]) -> BatchSearch:
        """Start one search for several jobs, in the model's thread. If the start fails, `_finish` handles the error."""
        loop = asyncio.get_running_loop()

        def check() -> None:
            if all(job.done.cancelled() for job in jobs):
                raise AbandonedError

        finish = loop.run_in_executor(self.thread, self._start_search, jobs, loop, check)
        await asyncio.wait([finish])
        return BatchSearch(jobs, finish)

    async def _finish(self, running: BatchSearch) -> None:
        """Wait for a search and set the results of its jobs.

        If a search for several jobs fails, start a separate search for each job, so that only the faulty jobs fail.
        """
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self.thread, await running.finish)
        except AbandonedError:
            pass
        except Exception as error:
            if len(running.jobs) > 1:
                for job in running.jobs:
                    await self._finish(await self._start_batch([job]))
            else:
                fail(running.jobs[0].done, error)
        else:
            for job, result in zip(running.jobs, results, strict=True):
                if not job.done.done():
                    job.done.set_result(result)
        self.short_ended = time.monotonic()

    def _start_search(self, jobs: Sequence[ShortJob], loop: asyncio.AbstractEventLoop, check: Check) -> Finish:
        """Start a search for several jobs. Return a function that waits for the results of the jobs."""
        translator = jobs[0].translator
        lines = list(chain.from_iterable(job.lines for job in jobs))
        # `watch` shows each step to the clients. If all clients have disconnected, `watch` ends the search by raising
        # AbandonedError. A background search cannot be watched, so jobs with `show` use an engine without background
        # searches.
        is_watched = jobs[0].show is not None or not self.engine.in_background

        def watch(texts_so_far: Callable[[], list[str]]) -> None:
            check()
            if jobs[0].show is None:
                return
            texts = texts_so_far()
            first = 0  # index in `texts` of the job's first line
            for job in jobs:
                if job.show:
                    for i in range(len(job.lines)):
                        loop.call_soon_threadsafe(job.show, i, texts[first + i])
                first += len(job.lines)

        self.on_batch(len(lines))
        batch_size = translator.config.decode.batch_size
        translation = translator.start(lines, jobs[0].options, batch_size, watch if is_watched else None)
        return lambda: grouped(translation.result(), [len(job.lines) for job in jobs])

    # --- long jobs ----------------------------------------------------------------------------------------

    async def _first_turn(self, job: LongJob) -> None:
        """Give a job its first turn.

        The first turn counts as a short request: many long jobs end in it, and then the client may send the next
        request at once.
        """
        await self._turn(job)
        self.short_ended = time.monotonic()

    async def _turn_when_due(self) -> None:
        """Give the next long job a turn, if a turn is due. Otherwise, wait until a turn is due or a request arrives."""
        wait_s = self._wait_s()
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.arrival.wait(), wait_s)
            return
        # If the job does not end in this turn, `_turn` appends it to `self.long_jobs` again.
        began = time.monotonic()
        await self._turn(self.long_jobs.pop(0))
        self.turn_ended = time.monotonic()
        self.turn_s = self.turn_ended - began

    def _wait_s(self) -> float:
        """Return how many seconds the long jobs must still wait for a turn. If a turn is due, return 0 or less."""
        due = self.turn_ended + WAIT_BY_TURN * self.turn_s
        if not self._startable():
            due = min(due, self.short_ended + QUIET_S)
        elif self.short_ended < self.turn_ended:
            due = math.inf  # after each turn, a waiting request goes first, even if turns are short
        return due - time.monotonic()

    async def _turn(self, job: LongJob) -> None:
        """Let a job work for one turn, while the model's thread waits. If the job has ended, set its result."""
        try:
            work = await asyncio.get_running_loop().run_in_executor(self.thread, job.take_turn)
        except asyncio.CancelledError:  # the server stops
            job.abandon()
            raise
        if not job.done.done():
            job.after_turn()
        if not work.done():
            self.long_jobs.append(job)
        elif error := work.exception():
            fail(job.done, error)
        elif not job.done.done():
            job.done.set_result(work.result())


def grouped(items: Sequence[Item], sizes: Iterable[int]) -> list[list[Item]]:
    """Split items into consecutive groups of the given sizes."""
    rest = iter(items)
    return [list(islice(rest, size)) for size in sizes]


def fail(done: asyncio.Future[Any], error: BaseException) -> None:
    """Set the error of a request. Also log an error that is not an NmtError, because it is a fault of the server."""
    if isinstance(error, AbandonedError):
        return
    if not isinstance(error, NmtError):
        log.error("a request failed", exc_info=error)
    if not done.done():
        done.set_exception(error)
