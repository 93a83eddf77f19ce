"""The scheduler, which decides which request uses the model next. It does not depend on HTTP.

Each engine has one thread, because one search uses all cores. There are two kinds of requests:

- Short requests wait in a queue. One search translates the oldest one, and others that fit into its batch.
- Documents, long texts and explanations are long jobs. They take turns with each other, see `nmt.serve.turns`.

Short requests come first. A long job gets a turn after `QUIET_S` seconds without short requests, because a client may
send its next request at once. If short requests never stop, long jobs get at most a quarter of the time.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from nmt.decode.options import Engine
from nmt.errors import NmtError
from nmt.serve.metrics import Metrics, Stopwatch
from nmt.serve.turns import AbandonedError, Check, LongJob, in_parts
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import Translator
from nmt.translate.units import Translation, Unit, grouped

# Maximum lines and characters of one search. A larger search would keep later requests waiting.
MAX_LINES, MAX_CHARACTERS = 128, 10_000
MAX_SHORT = 1_000  # maximum length of a short request, in characters; a longer request is a long job
MAX_LONG_JOBS = 16  # maximum number of long jobs that take turns; others wait until one of these ends
QUIET_S = 0.02  # seconds that long jobs wait after a short request
# If short requests never stop, long jobs wait this many times as long as the last turn took.
WAIT_BY_TURN = 3

Job = TypeVar("Job", "ShortJob", LongJob)
Result = TypeVar("Result")
Show = Callable[[list[str]], None]  # takes the unfinished translation of each line of a request
Finish = Callable[[], list[list[Translation]]]  # waits for a search; returns the translations of each job


class QueueFullError(NmtError):
    """Too many requests are waiting."""


@dataclass(eq=False)
class ShortJob:
    """A request to translate lines. It may share a search with other requests."""

    done: asyncio.Future[Any]
    translator: Translator
    lines: Sequence[Unit]
    options: TranslationOptions
    show: Show | None = None
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def n_characters(self) -> int:
        return sum(len(line.text) for line in self.lines)

    def goes_with(self, other: "ShortJob") -> bool:
        """Return whether one search can translate both jobs.

        Jobs with and without `show` may need different engines.
        """
        agree_on_show = (self.show is None) == (other.show is None)
        return self.translator is other.translator and self.options == other.options and agree_on_show


class BatchSearch(NamedTuple):
    """A search for a batch of jobs. The result of `finish` is a function that waits for the translations."""

    jobs: Sequence[ShortJob]
    finish: asyncio.Future[Finish]


class Batcher:
    """The scheduler of one engine. All methods must be called in the same event loop."""

    def __init__(self, engine: Engine, max_waiting: int, metrics: Metrics, thread: ThreadPoolExecutor) -> None:
        """Create a batcher.

        Args:
            max_waiting: maximum number of requests that wait.
            metrics: get the number of lines of each search, and the time of each request.
            thread: an executor with one thread, in which the engine runs.
        """
        self.engine = engine
        self.max_waiting = max_waiting
        self.metrics = metrics
        self.waiting: list[ShortJob] = []
        self.long_jobs: list[LongJob] = []  # the next to get a turn comes first
        self.thread = thread
        self.worker: asyncio.Task[None] | None = None  # the task of `_work`, which runs while there are jobs
        self.arrival = asyncio.Event()  # set when a request is queued
        self.quiet_at = -math.inf  # time of the next turn if no short request waits then
        self.turn_at = -math.inf  # time of the next turn even if short requests wait

    def translate(
        self, translator: Translator, lines: Sequence[Unit], options: TranslationOptions, show: Show | None = None
    ) -> asyncio.Future[list[Translation]]:
        """Queue lines for translation. Canceling the returned future abandons the translation.

        `show` is called in another thread after every step of the search. Raises QueueFullError if too many requests
        wait.
        """
        job = ShortJob(asyncio.Future(), translator, lines, options, show)
        if job.n_characters <= MAX_SHORT:
            return self._queue(self.waiting, job)
        # A long text becomes a long job.

        def translate_alone(check: Check) -> list[Translation]:
            alone = replace(job, translator=in_parts(translator, check))
            return self._start_search([alone], check)()[0]

        return self.call(translate_alone)

    def call(self, function: Callable[[Check], Result]) -> asyncio.Future[Result]:
        """Queue a function that uses the model, as a long job. Canceling the returned future abandons the job.

        Raises QueueFullError if too many requests wait.
        """
        return self._queue(self.long_jobs, LongJob(function, asyncio.Future()))

    def _queue(self, queue: list[Job], job: Job) -> asyncio.Future[Any]:
        if self.n_waiting() >= self.max_waiting:
            raise QueueFullError(f"{self.max_waiting} requests wait already")
        queue.append(job)
        job.done.add_done_callback(lambda _: self.metrics.observe_stages(job.stopwatch))
        self.arrival.set()
        if self.worker is None or self.worker.done():
            self.worker = asyncio.create_task(self._work())
        return job.done

    def n_waiting(self) -> int:
        """Return the number of waiting short requests and long jobs. Canceled ones do not count."""
        jobs: list[ShortJob | LongJob] = [*self.waiting, *self.long_jobs]
        return sum(not job.done.cancelled() for job in jobs)

    async def _work(self) -> None:
        """Process jobs until no job is left."""
        running: BatchSearch | None = None
        try:
            while self.waiting or self.long_jobs or running:
                self.arrival.clear()
                # If a long job's turn is due, start no search.
                is_turn_due = self.long_jobs and self._wait_s() <= 0
                batch = [] if is_turn_due else self._next_batch()
                # Start the next search before the last one is finished, so that the engine always has work.
                next_search = await self._start_batch(batch) if batch else None
                if running:
                    await self._finish(running)
                running = next_search
                # Only one job at a time may use the engine, so give a turn only while no search runs.
                if running and not self.engine.in_background:
                    await self._finish(running)
                    running = None
                elif self.long_jobs and not running:
                    await self._turn_when_due()
        finally:  # jobs are left only if the server stops or a bug raises an error
            for job in self.long_jobs:
                job.abandon()

    # --- short requests -----------------------------------------------------------------------------------

    def _next_batch(self) -> list[ShortJob]:
        """Take the oldest job from the queue, and all jobs that fit into the same search."""
        batch: list[ShortJob] = []
        n_lines = n_characters = 0
        self.waiting = [job for job in self.waiting if not job.done.cancelled()]
        for job in list(self.waiting):
            new_lines = n_lines + len(job.lines)
            new_characters = n_characters + job.n_characters
            fits = new_lines <= MAX_LINES and new_characters <= MAX_CHARACTERS
            if not batch or (fits and job.goes_with(batch[0])):
                self.waiting.remove(job)
                batch.append(job)
                n_lines, n_characters = new_lines, new_characters
        return batch

    async def _start_batch(self, jobs: Sequence[ShortJob]) -> BatchSearch:
        """Start one search for several jobs in the model's thread. `_finish` handles errors of the start."""

        def check() -> None:
            if all(job.done.cancelled() for job in jobs):
                raise AbandonedError

        finish = asyncio.get_running_loop().run_in_executor(self.thread, self._start_search, jobs, check)
        await asyncio.wait([finish])
        return BatchSearch(jobs, finish)

    async def _finish(self, running: BatchSearch) -> None:
        """Wait for a search and set the results of its jobs.

        If the search fails, each job gets a search of its own, so that only the faulty jobs fail.
        """
        try:
            results = await asyncio.get_running_loop().run_in_executor(self.thread, await running.finish)
        except AbandonedError:
            pass
        except Exception as error:
            if len(running.jobs) > 1:
                for job in running.jobs:
                    await self._finish(await self._start_batch([job]))
            elif not running.jobs[0].done.cancelled():
                running.jobs[0].done.set_exception(error)
        else:
            for job, result in zip(running.jobs, results, strict=True):
                if not job.done.cancelled():
                    job.done.set_result(result)
        self.quiet_at = time.monotonic() + QUIET_S

    def _start_search(self, jobs: Sequence[ShortJob], check: Check) -> Finish:
        """Start a search for several jobs. Return a function that waits for their translations."""
        translator = jobs[0].translator
        n_lines = [len(job.lines) for job in jobs]
        # `watch` shows each step to the clients, and ends the search when all of them have disconnected.
        # An engine that searches in the background cannot be watched, so with `show`, the translator uses torch.
        shows = [job.show for job in jobs if job.show]
        is_watched = shows or not self.engine.in_background

        def watch(texts_so_far: Callable[[], list[str]]) -> None:
            check()
            if not shows:
                return
            for show, texts in zip(shows, grouped(texts_so_far(), n_lines), strict=True):
                show(texts)

        def begin(stage: str) -> None:
            for job in jobs:
                job.stopwatch.begin(stage)

        def finish() -> list[list[Translation]]:
            n_bests = translation.search()
            begin("restore")
            return grouped(translation.restored(n_bests), n_lines)

        self.metrics.batch_lines.observe(sum(n_lines))
        begin("prepare")
        lines = list(chain.from_iterable(job.lines for job in jobs))
        batch_size = translator.config.decode.batch_size
        translation = translator.start(lines, jobs[0].options, batch_size, watch if is_watched else None)
        begin("search")
        return finish

    # --- long jobs ----------------------------------------------------------------------------------------

    async def _turn_when_due(self) -> None:
        """Give the next long job a turn. If no turn is due, wait for one or for a new request."""
        wait_s = self._wait_s()
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.arrival.wait(), wait_s)
            return
        # 1. Let the job work. Meanwhile, the model's thread waits.
        began = time.monotonic()
        work = await asyncio.get_running_loop().run_in_executor(self.thread, self.long_jobs[0].take_turn)
        ended = time.monotonic()
        self.turn_at = ended + max(WAIT_BY_TURN * (ended - began), QUIET_S)
        # 2. Let the job wait for its next turn. If it has ended, set its result.
        job = self.long_jobs.pop(0)
        if not work.done():
            self.long_jobs.insert(MAX_LONG_JOBS - 1, job)
        elif job.done.cancelled():
            pass
        elif error := work.exception():
            job.done.set_exception(error)
        else:
            job.done.set_result(work.result())

    def _wait_s(self) -> float:
        """Return the seconds until the next turn of a long job. If a turn is due, return 0 or less."""
        due = self.turn_at if self.waiting else min(self.turn_at, self.quiet_at)
        return due - time.monotonic()
