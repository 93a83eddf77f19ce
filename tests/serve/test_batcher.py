"""Requests that wait for a model: which are batched together, which are refused, which are dropped."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import PATIENCE_S, SOURCE, TARGET, FiveRun, wait_until
from models import small_translator
from served import served

from nmt.decode.segments import Line
from nmt.decode.translator import load
from nmt.errors import NmtError
from nmt.serve import batcher as module
from nmt.serve.batcher import Batcher, QueueFullError
from nmt.serve.guard import Limits

LINES = [Line(1, "a cat sleeps")]


class Held:
    """A translator whose searches wait until they are released."""

    def __init__(self) -> None:
        self.translator = small_translator()
        self.released = threading.Event()
        self.batches: list[int] = []
        self.texts: list[list[str]] = []
        original = self.translator.start

        def start(lines: Sequence[Line], *rest: Any) -> Any:
            self.texts.append([line.text for line in lines])
            assert self.released.wait(PATIENCE_S)
            if any(line.text == "poison" for line in lines):
                raise NmtError("out of memory with one sentence")
            return original(lines, *rest)

        self.translator.start = start  # type: ignore[method-assign,assignment]
        self.options = self.translator.options

    def batcher(self, max_waiting: int = 10) -> Batcher:
        return Batcher(self.translator, max_waiting, self.batches.append)

    async def first(self, batcher: Batcher) -> asyncio.Future[Any]:
        """Queue a request and wait until it is being translated."""
        future = batcher.translate(LINES, self.options)
        while not self.batches:
            await asyncio.sleep(0.01)
        return future


def run(test: Callable[[Held], Any]) -> Held:
    held = Held()
    asyncio.run(asyncio.wait_for(test(held), PATIENCE_S))
    return held


def test_what_waits_is_translated_together_if_its_options_are_equal() -> None:
    async def test(held: Held) -> None:
        batcher = held.batcher()
        other = held.options.changed(beam=1)
        futures = [await held.first(batcher)]
        futures += [batcher.translate([Line(1, f"a cat {i}")], held.options if i % 2 else other) for i in range(5)]
        held.released.set()
        found = await asyncio.gather(*futures)
        assert [translations[0].source for translations in found] == ["a cat sleeps", *(f"a cat {i}" for i in range(5))]
        alone = held.translator.translate(["a cat 1"])
        assert found[2][0].text == alone[0]

    held = run(test)
    assert held.batches == [1, 3, 2]
    assert held.texts[1:3] == [["a cat 0", "a cat 2", "a cat 4"], ["a cat 1", "a cat 3"]]


def test_a_search_in_the_background_is_finished_after_the_next_was_started() -> None:
    async def test(held: Held) -> None:
        events: list[str] = []
        start = held.translator.start

        def recorded(lines: Sequence[Line], *rest: Any) -> Any:
            search = start(lines, *rest)
            events.append(f"start {lines[0].text}")

            def finish() -> Any:
                events.append(f"finish {lines[0].text}")
                return search()

            return finish

        held.translator.start = recorded  # type: ignore[method-assign,assignment]
        held.translator.engine.in_background = True
        batcher = held.batcher()
        futures = [await held.first(batcher)]
        futures += [batcher.translate([Line(1, text)], held.options.changed(beam=i)) for i, text in enumerate("ab", 1)]
        held.released.set()
        assert [(await future)[0].source for future in futures] == ["a cat sleeps", "a", "b"]
        assert events == [
            "start a cat sleeps", "start a", "finish a cat sleeps", "start b", "finish a", "finish b"
        ]  # fmt: skip

    run(test)


@pytest.mark.parametrize(
    ("texts", "n_lines"),
    [(["a", "b"], [1, 4, 4]), (["a cat"], [1, 2, 2]), (["a cat and a dog"], [1, 1, 1, 1, 1])],
    ids=["lines", "characters", "each has more"],
)
def test_a_search_has_few_lines_and_characters(
    texts: list[str], n_lines: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 4)
    monkeypatch.setattr(module, "MAX_CHARACTERS", 10)

    async def test(held: Held) -> None:
        batcher = held.batcher()
        first = await held.first(batcher)
        lines = [Line(i, text) for i, text in enumerate(texts, 1)]
        others = [batcher.translate(lines, held.options) for _ in range(4)]
        held.released.set()
        await asyncio.gather(first, *others)

    assert run(test).batches == n_lines


def test_a_request_that_fails_fails_alone() -> None:
    async def test(held: Held) -> None:
        batcher = held.batcher()
        first = await held.first(batcher)
        good, bad = (batcher.translate([Line(1, text)], held.options) for text in ("a dog", "poison"))
        held.released.set()
        with pytest.raises(NmtError, match="out of memory"):
            await bad
        assert (await good)[0].source == "a dog"
        assert (await first)[0].source == "a cat sleeps"

    run(test)


def test_canceled_requests_are_not_translated() -> None:
    async def test(held: Held) -> None:
        batcher = held.batcher(max_waiting=2)
        first = await held.first(batcher)
        for _ in range(5):  # canceled requests make room for others
            batcher.translate([Line(1, "forgotten")], held.options).cancel()
        last = batcher.translate([Line(1, "a dog")], held.options)
        held.released.set()
        await asyncio.gather(first, last)

    assert run(test).texts == [["a cat sleeps"], ["a dog"]]


def test_a_search_that_nobody_waits_for_ends() -> None:
    async def test(held: Held) -> None:
        batcher = held.batcher()
        first = await held.first(batcher)
        first.cancel()
        held.released.set()
        steps: list[str] = []
        await batcher.translate(LINES, held.options, lambda _, text: steps.append(text))
        assert steps
        assert all(isinstance(step, str) for step in steps)

    run(test)


def test_too_many_waiting_requests_are_refused() -> None:
    async def test(held: Held) -> None:
        batcher = held.batcher(max_waiting=2)
        first = await held.first(batcher)
        waiting = [batcher.translate(LINES, held.options) for _ in range(2)]
        with pytest.raises(QueueFullError, match="2 requests wait already"):
            batcher.translate(LINES, held.options)
        held.released.set()
        await asyncio.gather(first, *waiting)

    run(test)


def test_functions_run_alone_and_their_errors_are_returned(caplog: pytest.LogCaptureFixture) -> None:
    async def test(held: Held) -> None:
        held.released.set()
        batcher = held.batcher()
        found, failed, _ = batcher.call(lambda: 7), batcher.call(lambda: 1 // 0), batcher.translate(LINES, held.options)
        assert await found == 7
        with pytest.raises(ZeroDivisionError):
            await failed

    run(test)


def test_a_full_queue_is_status_429_and_a_failure_503() -> None:
    held = Held()
    with served(held.translator, limits=Limits(n_waiting=1)) as client, ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(client.post, "/v1/translate", {"q": "a cat"})]
        wait_until(lambda: held.texts)  # it is being translated; together with another, there would be room for a third
        answers += [pool.submit(client.post, "/v1/translate", {"q": "a cat"}) for _ in range(7)]
        while sum(answer.done() for answer in answers) < 6:  # of the other two, one is being translated and one waits
            threading.Event().wait(0.05)
        refused = [answer.result() for answer in answers if answer.done()]
        assert {answer.status for answer in refused} == {429}
        assert {answer.headers["retry-after"] for answer in refused} == {"1"}
        assert refused[0].error == "1 requests wait already"
        held.released.set()
        assert sorted(answer.result().status for answer in answers) == [200] * 2 + [429] * 6
        assert client.post("/v1/translate", {"q": "poison"}).status == 503


def test_fifty_clients_at_once_lose_no_request(five_run: FiveRun) -> None:
    with served(load(five_run.run, device="cpu")) as client, ThreadPoolExecutor(50) as pool:
        texts = [SOURCE[i % 5] for i in range(200)]
        answers = pool.map(lambda text: client.post("/translate", {"q": text, "source": "zh", "target": "en"}), texts)
        assert [answer.json["translatedText"] for answer in answers] == [TARGET[i % 5] for i in range(200)]
        values = client.get("/metrics").body.decode()
    (n_batches,) = (float(line.split()[1]) for line in values.splitlines() if line.startswith("nmt_batch_lines_count"))
    assert n_batches < 150, "requests that wait are translated together"
