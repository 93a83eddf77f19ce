"""Requests that wait for a model: which are batched together, which are refused, which are dropped."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import PATIENCE_S, wait_until
from models import small_translator
from served import served

from nmt.errors import NmtError
from nmt.serve import batcher as module
from nmt.serve.batcher import Batcher
from nmt.serve.guard import Limits
from nmt.serve.metrics import Metrics
from nmt.translate.units import Unit


class Held:
    """A batcher whose searches wait until they are released; the text `poison` makes one fail."""

    def __init__(self, max_waiting: int = 10) -> None:
        self.translator = small_translator()
        self.options = self.translator.options
        self.released = threading.Event()
        self.batches: list[int] = []  # numbers of lines
        self.texts: list[list[str]] = []  # of each search
        self.metrics = Metrics()
        self.metrics.batch_lines.observe = self.batches.append  # type: ignore[method-assign,assignment]
        self.batcher = Batcher(self.translator.engine, max_waiting, self.metrics, ThreadPoolExecutor(1))
        original = self.translator.start

        def start(units: list[Unit], *rest: Any) -> Any:
            self.texts.append([unit.text for unit in units])
            assert self.released.wait(PATIENCE_S)
            if any(unit.text == "poison" for unit in units):
                raise NmtError("out of memory with one sentence")
            return original(units, *rest)

        self.translator.start = start  # type: ignore[method-assign,assignment]

    def translate(self, *texts: str, **options: Any) -> asyncio.Future[Any]:
        lines = [Unit(i, text) for i, text in enumerate(texts, 1)]
        return self.batcher.translate(self.translator, lines, self.options.changed(**options))

    async def first(self) -> asyncio.Future[Any]:
        """Queue a request and wait until it is being translated."""
        future = self.translate("a cat sleeps")
        while not self.batches:
            await asyncio.sleep(0.01)
        return future

    async def release(self, *futures: asyncio.Future[Any]) -> list[str]:
        """Let the searches go on; return the first source of each request."""
        self.released.set()
        return [translations[0].source for translations in await asyncio.gather(*futures)]


def run(test: Callable[[Held], Any], **options: Any) -> Held:
    held = Held(**options)
    asyncio.run(asyncio.wait_for(test(held), PATIENCE_S))
    return held


def test_what_waits_is_translated_together_if_its_options_are_equal() -> None:
    async def test(held: Held) -> None:
        first = await held.first()
        narrow = [held.translate("cat"), held.translate("dog")]
        wide = [held.translate("fish", beam=2), held.translate("bird", beam=2)]
        # Each gets its own result.
        sources = await held.release(first, narrow[0], wide[0], wide[1], narrow[1])
        assert sources == ["a cat sleeps", "cat", "fish", "bird", "dog"]
        # It is that of its own options.
        (fish,) = await wide[0]
        assert [fish.text] == small_translator().translate(["fish"], beam=2)

    held = run(test)
    assert held.texts == [["a cat sleeps"], ["cat", "dog"], ["fish", "bird"]]
    assert held.batches == [1, 2, 2]


SIZES = [(["a", "b"], [1, 4, 4]), (["a cat"], [1, 2, 2]), (["a cat and a dog"], [1, 1, 1, 1, 1])]


# Four equal requests wait for a first one of a line; a search may have four lines and ten characters.
@pytest.mark.parametrize(("texts", "n_lines"), SIZES, ids=["lines", "characters", "each has more"])
def test_a_search_has_a_limited_size(texts: list[str], n_lines: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 4)
    monkeypatch.setattr(module, "MAX_CHARACTERS", 10)

    async def test(held: Held) -> None:
        first = await held.first()
        waiting = [held.translate(*texts) for _ in range(4)]
        await held.release(first, *waiting)

    assert run(test).batches == n_lines


def test_a_request_that_fails_fails_alone() -> None:
    async def test(held: Held) -> None:
        first = await held.first()
        good, bad = held.translate("a dog"), held.translate("poison")
        assert await held.release(first, good) == ["a cat sleeps", "a dog"]
        with pytest.raises(NmtError, match="out of memory"):
            await bad

    run(test)


def test_canceled_requests_are_not_translated() -> None:
    async def test(held: Held) -> None:
        first = await held.first()
        for _ in range(5):  # canceled requests make room for others
            held.translate("forgotten").cancel()
        await held.release(first, held.translate("a dog"))

    assert run(test, max_waiting=2).texts == [["a cat sleeps"], ["a dog"]]


def test_a_search_that_nobody_waits_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*arguments: Any) -> Any:
        watch = arguments[-1]

        def finish() -> None:
            while True:
                watch(list)

        return SimpleNamespace(search=finish)

    async def test(held: Held) -> None:
        monkeypatch.setattr(held.translator, "start", endless)
        (await held.first()).cancel()
        assert await held.batcher.call(lambda _: 7) == 7

    run(test)


def test_functions_run_alone_and_their_errors_are_returned() -> None:
    async def test(held: Held) -> None:
        held.released.set()
        bad = held.batcher.call(lambda _: 1 // 0)
        assert await held.batcher.call(lambda _: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await bad

    run(test)


def test_a_full_queue_is_status_429() -> None:
    held = Held()
    with served(held.translator, limits=Limits(n_waiting=1)) as client, ThreadPoolExecutor(2) as pool:
        translating = pool.submit(client.v1, "a cat")
        wait_until(lambda: held.texts)
        waiting = pool.submit(client.v1, "a cat")
        wait_until(lambda: client.get("/metrics").body.count(b"nmt_requests_waiting 1.0"))
        refused = client.v1("a cat")
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert refused.error == "1 requests wait already"
        assert client.get("/ready").status == 503
        assert client.get("/health").status == 200
        held.released.set()
        assert translating.result().status == 200
        assert waiting.result().status == 200


def test_a_failure_is_status_503() -> None:
    held = Held()
    held.released.set()
    with served(held.translator) as client:
        assert client.v1("poison").status == 503
