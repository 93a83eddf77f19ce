"""Long jobs take turns with short requests, and end when nobody waits for them."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from conftest import PATIENCE_S, SOURCE, TARGET, wait_until
from served import PAIR, Client, Endless, form, served
from test_batcher import Held, run
from test_documents import packed, upload

from nmt.documents.markup import between_segments
from nmt.serve import turns
from nmt.serve.guard import Limits
from nmt.serve.turns import AbandonedError, Check, in_parts
from nmt.translate.documents import DocumentTranslation
from nmt.translate.translator import Translator

WAIT_S = 10.0  # a test that fails waits so long
NAMESPACE = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def word_file(n_paragraphs: int) -> bytes:
    """A Word file whose paragraphs differ, and have a word in bold each."""
    paragraphs = ""
    for i in range(n_paragraphs):
        before, bold, *after = SOURCE[i % len(SOURCE)].split()
        after.append(str(i))
        runs = f"<w:r><w:t>{before} </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>{bold}</w:t></w:r>"
        paragraphs += f'<w:p>{runs}<w:r><w:t xml:space="preserve"> {" ".join(after)}</w:t></w:r></w:p>'
    return packed("word/document.xml", f"<w:document {NAMESPACE}><w:body>{paragraphs}</w:body></w:document>")


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `check` ends a turn, and every part has the least items."""
    monkeypatch.setattr(turns, "TURN_S", 0.0)


Score = Callable[[Callable[[], object]], list[int]]


@pytest.fixture
def before_score(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> Score:
    """A function whose argument is called before words are aligned; it returns the number of pairs of each call."""
    original = translator.engine.score

    def patch(act: Callable[[], object]) -> list[int]:
        calls: list[int] = []

        def score(source: Any, target: Any) -> Any:
            calls.append(len(source))
            act()
            return original(source, target)

        monkeypatch.setattr(translator.engine, "score", score)
        return calls

    return patch


def test_a_request_is_answered_while_tags_are_placed(client: Client, before_score: Score) -> None:
    aligning, answered = threading.Event(), threading.Event()
    waited: list[bool] = []

    def wait() -> None:
        if aligning.is_set():
            waited.append(answered.wait(WAIT_S))
        else:  # at first, until the request is queued
            aligning.set()
            wait_until(lambda: len(client.connections) > 1)
            time.sleep(0.3)

    before_score(wait)
    document = threading.Thread(target=upload, args=(client, "a.docx", word_file(40)))
    document.start()
    assert aligning.wait(PATIENCE_S)
    result = client.text(SOURCE[0])
    assert result == TARGET[0]
    answered.set()
    document.join(PATIENCE_S)
    assert waited
    assert all(waited)


def test_tags_are_not_placed_for_a_client_that_has_left(client: Client, before_score: Score) -> None:
    aligning, has_left = threading.Event(), threading.Event()

    def wait() -> None:
        aligning.set()
        assert has_left.wait(PATIENCE_S)

    calls = before_score(wait)
    with contextlib.closing(client.connect()) as connection:
        connection.request("POST", "/translate_file", *form("a.docx", word_file(40), **PAIR))
        assert aligning.wait(PATIENCE_S)
    wait_until(lambda: not client.connections)
    time.sleep(0.1)  # the request is canceled
    has_left.set()
    outcome = client.translate(SOURCE[0]).status
    assert outcome == 200
    assert len(calls) == 1


def test_a_document_may_take_longer_than_the_time_limit(translator: Translator, before_score: Score) -> None:
    calls = before_score(lambda: time.sleep(0.3))
    with served(translator, limits=Limits(answer_s=1.0)) as client:
        assert upload(client, "a.docx", word_file(60)).status == 200
    assert len(calls) * 0.3 > 1.0, "longer than the limit"


def translated(translator: Translator, suffix: str, content: bytes) -> bytes:
    document = DocumentTranslation(translator, "the file", suffix, content, 10**7)
    list(document.translations())
    return document.content()


def test_a_document_is_the_same_in_parts(translator: Translator, before_score: Score) -> None:
    content = word_file(30)
    calls = before_score(lambda: None)
    whole = translated(translator, ".docx", content)
    assert len(calls) == 1
    result = translated(in_parts(translator, lambda: None), ".docx", content)
    assert result == whole
    _, *parts = calls
    assert len(parts) > 1
    assert max(parts) <= turns.LEAST_ITEMS


def test_a_search_in_parts_finds_the_same_in_the_same_order(translator: Translator) -> None:
    lines = [*SOURCE, "", *reversed(SOURCE)]
    result = in_parts(translator, lambda: None).translate(lines)
    assert result == translator.translate(lines)


@pytest.mark.parametrize(
    ("suffix", "content"), [(".docx", None), (".html", b"<p>a<p>b"), (".po", b'msgid "a"\nmsgstr ""\n')]
)
def test_what_is_parsed_can_be_interrupted(translator: Translator, suffix: str, content: bytes | None) -> None:
    def stop() -> None:
        raise AbandonedError

    with pytest.raises(AbandonedError):
        translated(in_parts(translator, stop), suffix, content or word_file(2))
    between_segments.set(lambda: None)


def counting(order: list[str], name: str, n: int) -> Callable[[Check], str]:
    """A job that writes its name `n` times, and checks after each."""

    def job(check: Check) -> str:
        for _ in range(n):
            order.append(name)
            check()
        return name

    return job


def test_long_jobs_take_turns() -> None:
    order: list[str] = []

    async def test(held: Held) -> None:
        jobs = [held.batcher.call(counting(order, name, 9)) for name in "abc"]
        assert await asyncio.gather(*jobs) == ["a", "b", "c"]

    run(test)
    # Once all have begun, any three turns in a row are of three jobs.
    for i in range(6, 18):
        assert len(set(order[i : i + 3])) == 3, order


def test_short_requests_go_first() -> None:
    order: list[str] = []

    async def test(held: Held) -> None:
        held.released.set()
        long = held.batcher.call(counting(order, "long", 100))
        await held.translate("a cat")
        order.append("short")
        await long

    run(test)
    assert "short" in order[:4]


def test_long_jobs_get_on_among_short_requests_without_end() -> None:
    order: list[str] = []

    async def ask_until(held: Held, long: asyncio.Future[str]) -> None:
        while not long.done():
            await held.translate("a dog")

    async def test(held: Held) -> None:
        held.released.set()
        long = held.batcher.call(counting(order, "long", 5))
        # There is always a request that waits.
        await asyncio.gather(ask_until(held, long), ask_until(held, long), ask_until(held, long))

    run(test)
    assert order == ["long"] * 5


@pytest.mark.parametrize("turn_s", [0.0, PATIENCE_S], ids=["waits for a turn", "has a turn"])
def test_a_canceled_job_ends_at_its_next_check(monkeypatch: pytest.MonkeyPatch, turn_s: float) -> None:
    monkeypatch.setattr(turns, "TURN_S", turn_s)
    endless = Endless()

    async def test(held: Held) -> None:
        job = held.batcher.call(endless)
        await asyncio.to_thread(endless.started.wait)
        job.cancel()
        assert await held.batcher.call(lambda _: 7) == 7

    run(test)
    assert endless.ended.wait(WAIT_S)


def test_jobs_that_wait_for_a_turn_end_with_the_server() -> None:
    jobs = [Endless(), Endless(), Endless()]

    async def test(held: Held) -> None:
        for job in jobs:
            held.batcher.call(job)
        for job in jobs:
            await asyncio.to_thread(job.started.wait)

    run(test)  # it closes the event loop
    assert all(job.ended.wait(WAIT_S) for job in jobs)


def test_a_long_text_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.serve.batcher.MAX_SHORT", 20)
    texts = [f"a cat {i}" for i in range(10)]

    async def test(held: Held) -> None:
        held.released.set()
        translations = await held.translate(*texts)
        assert [translation.text for translation in translations] == held.translator.translate(texts)

    with mock.patch.object(turns.LongJob, "take_turn", autospec=True, side_effect=turns.LongJob.take_turn) as turn:
        run(test)
    assert turn.call_count > 1


def test_jobs_beyond_the_limit_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.serve.batcher.MAX_LONG_JOBS", 1)
    order: list[str] = []

    async def test(held: Held) -> None:
        jobs = [held.batcher.call(counting(order, name, 2)) for name in "abc"]
        await asyncio.gather(*jobs)

    run(test)
    assert "".join(order) == "aabbcc"
