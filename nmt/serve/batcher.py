"""Batches the translation requests of several clients.

Each model has one thread, because one search uses all cores. Requests that arrive during a search wait; the next search
translates the oldest one and all others with the same search options. It starts before the results of the last one are
sent, if the engine searches in the background. This module does not depend on HTTP.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

from nmt.decode.options import SearchOptions
from nmt.decode.segments import Line, Translation
from nmt.decode.translator import Translator
from nmt.errors import NmtError

log = logging.getLogger("nmt")

# Per search. They limit how long later requests wait, and how long a search without `watch` goes on after its clients
# have left.
MAX_LINES, MAX_CHARACTERS = 128, 10_000

Result = TypeVar("Result")
ShowLine = Callable[[int, str], None]  # gets the index of a line and its translation so far
Check = Callable[[], None]  # raises AbandonedError if no client waits any more
Finish = Callable[[], list[Any]]  # waits for a search; returns the result of each of its jobs


class QueueFullError(NmtError):
    """Too many requests are waiting."""


class AbandonedError(Exception):
    """No client waits for this search any more."""


@dataclass(eq=False)
class Job:
    """A queued request: lines, which may be batched with those of other jobs, or a function, which runs alone."""

    done: asyncio.Future[Any]
    lines: Sequence[Line] = ()
    options: SearchOptions | None = None
    show: ShowLine | None = None
    function: Callable[[Check], Any] | None = None

    @property
    def n_characters(self) -> int:
        return sum(len(line.text) for line in self.lines)

    def goes_with(self, other: "Job") -> bool:
        """Whether one search can translate both; a job with `show` may need another engine than one without."""
        is_alike = self.options == other.options and (self.show is None) == (other.show is None)
        return self.function is None and other.function is None and is_alike


class Batcher:
    """Runs one translator in a thread, with a queue of waiting requests. All methods are for one event loop."""

    def __init__(
        self, translator: Translator, max_waiting: int, on_batch: Callable[[int], None], thread: ThreadPoolExecutor
    ) -> None:
        """`on_batch` is called with the number of lines of each search. Batchers of one engine share its `thread`."""
        self.translator = translator
        self.max_waiting = max_waiting
        self.on_batch = on_batch
        self.waiting: deque[Job] = deque()
        self.thread = thread
        self.worker: asyncio.Task[None] | None = None  # runs while there are jobs

    def translate(
        self, lines: Sequence[Line], options: SearchOptions, show: ShowLine | None = None
    ) -> asyncio.Future[list[Translation]]:
        """Queue lines for translation; canceling the future abandons them.

        `show` is called in the event loop, for every line after every step of the search. Raises QueueFullError.
        """
        return self._queue(Job(asyncio.get_running_loop().create_future(), lines, options, show))

    def call(self, function: Callable[[Check], Result]) -> asyncio.Future[Result]:
        """Queue a function that uses the model; canceling the future lets the `Check` that it is given raise."""
        return self._queue(Job(asyncio.get_running_loop().create_future(), function=function))

    def _queue(self, job: Job) -> asyncio.Future[Any]:
        self._drop_canceled()
        if len(self.waiting) >= self.max_waiting:
            raise QueueFullError(f"{len(self.waiting)} requests wait already", hint="try again later")
        self.waiting.append(job)
        if self.worker is None or self.worker.done():
            self.worker = asyncio.create_task(self._work())
        return job.done

    def _drop_canceled(self) -> None:
        self.waiting = deque(job for job in self.waiting if not job.done.cancelled())

    async def _work(self) -> None:
        """Process jobs until none is left."""
        last: tuple[list[Job], asyncio.Future[Finish]] | None = None  # the search that runs
        while self.waiting or last:
            jobs = self._next()
            started = (jobs, await self._start(jobs)) if jobs else None
            if last:
                await self._finish(*last)
            last = started
            if last and not self.translator.engine.in_background:
                await self._finish(*last)
                last = None

    def _next(self) -> list[Job]:
        """Return the oldest job and all that can be translated with it; none if all were canceled."""
        self._drop_canceled()
        if not self.waiting:
            return []
        first = self.waiting.popleft()
        jobs, n_lines, n_characters = [first], len(first.lines), first.n_characters
        for job in list(self.waiting):
            fits = n_lines + len(job.lines) <= MAX_LINES and n_characters + job.n_characters <= MAX_CHARACTERS
            if fits and job.goes_with(first):
                self.waiting.remove(job)
                jobs.append(job)
                n_lines, n_characters = n_lines + len(job.lines), n_characters + job.n_characters
        return jobs

    async def _start(self, jobs: Sequence[Job]) -> asyncio.Future[Finish]:
        """Start to process jobs together, in the model's thread. `_finish` handles the error of the future."""
        loop = asyncio.get_running_loop()
        started = loop.run_in_executor(self.thread, self._search, jobs, loop)
        await asyncio.wait([started])
        return started

    async def _finish(self, jobs: Sequence[Job], started: asyncio.Future[Finish]) -> None:
        """Wait for jobs and set their results. After an error, process each alone, so that only faulty ones fail."""
        try:
            results = await asyncio.get_running_loop().run_in_executor(self.thread, await started)
        except AbandonedError:
            return
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    await self._finish([job], await self._start([job]))
                return
            if not isinstance(error, NmtError):
                log.error("a request failed", exc_info=error)
            if not jobs[0].done.done():
                jobs[0].done.set_exception(error)
            return
        for job, result in zip(jobs, results, strict=True):
            if not job.done.done():
                job.done.set_result(result)

    def _search(self, jobs: Sequence[Job], loop: asyncio.AbstractEventLoop) -> Finish:
        """Start a search for jobs; the returned function waits for their results and returns them."""

        def check() -> None:
            if all(job.done.cancelled() for job in jobs):
                raise AbandonedError

        if function := jobs[0].function:
            return lambda: [function(check)]
        options = jobs[0].options
        assert options
        lines = [line for job in jobs for line in job.lines]
        starts = list(accumulate((len(job.lines) for job in jobs), initial=0))

        def watch(text_of: Callable[[int], str]) -> None:
            check()
            for job, start in zip(jobs, starts, strict=False):
                for i in range(len(job.lines) if job.show else 0):
                    loop.call_soon_threadsafe(job.show, i, text_of(start + i))  # type: ignore[arg-type]

        self.on_batch(len(lines))
        batch_size = self.translator.config.decode.batch_size
        is_watched = any(job.show for job in jobs) or not self.translator.engine.in_background
        search = self.translator.start(lines, options, batch_size, watch if is_watched else None)

        def finish() -> list[list[Translation]]:
            found = search()
            return [found[start : start + len(job.lines)] for job, start in zip(jobs, starts, strict=False)]

        return finish
