"""Batches the translation requests of several clients.

Each model has one thread, because one search uses all cores. Requests that arrive during a search wait; the next search
translates the oldest one and all others with the same search options. It starts before the results of the last one are
sent, if the engine searches in the background. This module does not depend on HTTP.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

from nmt.decode.options import SearchOptions
from nmt.decode.segments import Line, Translation
from nmt.decode.translator import Translator
from nmt.errors import NmtError

log = logging.getLogger("nmt")

# Per search. They limit how long later requests wait, and how long a search without `watch` outlasts its clients.
MAX_LINES, MAX_CHARACTERS = 128, 10_000

Result = TypeVar("Result")
ShowLine = Callable[[int, str], None]  # gets the index of a line and its translation so far


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
    function: Callable[[], Any] | None = None

    @property
    def n_characters(self) -> int:
        return sum(len(line.text) for line in self.lines)

    def goes_with(self, other: "Job") -> bool:
        return self.function is None and other.function is None and self.options == other.options

    def finish(self, result: Any = None, error: Exception | None = None) -> None:
        """Set the result or error of the future, in the event loop. Called on the model's thread."""

        def set_outcome() -> None:
            if self.done.done():
                return
            if error is not None:
                self.done.set_exception(error)
            else:
                self.done.set_result(result)

        self.call_soon(set_outcome)

    def call_soon(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed: the server is shutting down
            self.done.get_loop().call_soon_threadsafe(function, *args)


class Batcher:
    """Runs one translator in a thread, with a queue of waiting requests."""

    def __init__(self, translator: Translator, max_waiting: int, on_batch: Callable[[int], None]) -> None:
        """Start the thread. `on_batch` is called with the number of lines of each search."""
        self.translator = translator
        self.max_waiting = max_waiting
        self.on_batch = on_batch
        self.waiting: deque[Job] = deque()
        self.changed = threading.Condition()
        threading.Thread(target=self._run, name="nmt model", daemon=True).start()

    def translate(
        self, lines: Sequence[Line], options: SearchOptions, show: ShowLine | None = None
    ) -> asyncio.Future[list[Translation]]:
        """Queue lines for translation; canceling the future abandons them.

        `show` is called in the event loop, for every line after every step of the search.

        Raises:
            QueueFullError: `max_waiting` requests are already waiting.
        """
        done = asyncio.get_running_loop().create_future()
        self._queue(Job(done, lines=lines, options=options, show=show))
        return done

    def call(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        """Queue a function that uses the model."""
        done = asyncio.get_running_loop().create_future()
        self._queue(Job(done, function=function))
        return done

    def _queue(self, job: Job) -> None:
        with self.changed:
            if len(self.waiting) >= self.max_waiting:
                self.waiting = deque(job for job in self.waiting if not job.done.cancelled())
            if len(self.waiting) >= self.max_waiting:
                raise QueueFullError(f"{len(self.waiting)} requests wait already", hint="try again later")
            self.waiting.append(job)
            self.changed.notify()

    def _run(self) -> None:
        finish: Callable[[], None] | None = None  # of the search that runs
        while True:
            jobs = self._next(wait=finish is None)
            finish_next = self._start(jobs) if jobs else None
            if finish:
                finish()
            finish = finish_next
            if finish and not self.translator.engine.in_background:
                finish()
                finish = None

    def _next(self, *, wait: bool) -> list[Job]:
        """Return the oldest job and all that can be translated with it, without canceled jobs; maybe wait for one."""
        with self.changed:
            if wait:
                self.changed.wait_for(lambda: self.waiting)
            elif not self.waiting:
                return []
            first = self.waiting.popleft()
            jobs, n_lines, n_characters = [first], len(first.lines), first.n_characters
            for job in list(self.waiting):
                fits = n_lines + len(job.lines) <= MAX_LINES and n_characters + job.n_characters <= MAX_CHARACTERS
                if fits and job.goes_with(first):
                    self.waiting.remove(job)
                    jobs.append(job)
                    n_lines, n_characters = n_lines + len(job.lines), n_characters + job.n_characters
        return [job for job in jobs if not job.done.cancelled()]

    def _start(self, jobs: Sequence[Job]) -> Callable[[], None]:
        """Start to process jobs together. The returned function finishes them."""
        try:
            results = self._results(jobs)
        except Exception as error:
            return partial(self._process_alone, jobs, error)

        def finish() -> None:
            try:
                for job, result in zip(jobs, results(), strict=True):
                    job.finish(result)
            except AbandonedError:
                return
            except Exception as error:
                self._process_alone(jobs, error)

        return finish

    def _process_alone(self, jobs: Sequence[Job], error: Exception) -> None:
        """After an error, process each of several jobs alone, so that only the faulty ones fail; a single job fails."""
        for job in jobs if len(jobs) > 1 else ():
            self._start([job])()
        if len(jobs) == 1:
            if not isinstance(error, NmtError):
                log.error("a request failed", exc_info=error)
            jobs[0].finish(error=error)

    def _results(self, jobs: Sequence[Job]) -> Callable[[], list[Any]]:
        """Start to process jobs; the returned function waits for their results and returns them."""
        if function := jobs[0].function:
            return lambda: [function()]
        options = jobs[0].options
        assert options
        lines = [line for job in jobs for line in job.lines]
        starts = list(accumulate((len(job.lines) for job in jobs), initial=0))

        def watch(text_of: Callable[[int], str]) -> None:
            if all(job.done.cancelled() for job in jobs):
                raise AbandonedError
            for job, start in zip(jobs, starts, strict=False):
                for i in range(len(job.lines) if job.show else 0):
                    job.call_soon(job.show, i, text_of(start + i))  # type: ignore[arg-type]

        self.on_batch(len(lines))
        batch_size = self.translator.config.decode.batch_size
        is_watched = self.translator.engine.sees_steps or any(job.show for job in jobs)
        search = self.translator.start(lines, options, batch_size, watch if is_watched else None)

        def results() -> list[list[Translation]]:
            found = search()
            return [found[start : start + len(job.lines)] for job, start in zip(jobs, starts, strict=False)]

        return results
