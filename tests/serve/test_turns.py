"""Long jobs take turns with short requests, and end when nobody waits for them."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import PATIENCE_S, SOURCE, TARGET, wait_until
from served import Client, served
from test_batcher import Held, run
from test_documents import PAIR, form, packed, upload

from nmt.documents.html import HTML
from nmt.documents.markup import between_segments
from nmt.serve import turns
from nmt.serve.guard import Limits
from nmt.serve.turns import Check, in_parts
from nmt.translate.documents import DocumentTranslation
from nmt.translate.markup import MarkupTranslator
from nmt.translate.translator import Translator

WAIT_S = 10.0  # a test that fails waits so long
NAMESPACE = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def word_file(n_paragraphs: int) -> bytes:
    """A Word file whose paragraphs differ, and have a word in bold each."""
    paragraphs = ""
    for i in range(n_paragraphs):
        before, bold, *after = [*SOURCE[i % len(SOURCE)].split(), str(i)]
        runs = f"<w:r><w:t>{before} </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>{bold}</w:t></w:r>"
        paragraphs += f'<w:p>{runs}<w:r><w:t xml:space="preserve"> {" ".join(after)}</w:t></w:r></w:p>'
    return packed("word/document.xml", f"<w:document {NAMESPACE}><w:body>{paragraphs}</w:body></w:document>")


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[Client]:
    with served(translator) as client:
        yield client


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `check` ends a turn, and every part has the least items."""
    monkeypatch.setattr(turns, "TURN_S", 0.0)
    monkeypatch.setattr(turns, "PART_S", 0.0)


@pytest.fixture
def score(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of pairs in each call of the engine that aligns words."""
    calls: list[int] = []
    original = translator.engine.score

    def counted(source: Any, target: Any) -> Any:
        calls.append(len(source))
        return original(source, target)

    monkeypatch.setattr(translator.engine, "score", counted)
    return calls


def test_a_request_is_answered_while_tags_are_placed(
    client: Client, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    aligning, answered = threading.Event(), threading.Event()
    original = translator.engine.score
    waited: list[bool] = []

    def score(source: Any, target: Any) -> Any:
        if aligning.is_set():
            waited.append(answered.wait(WAIT_S))
        else:
            aligning.set()
            wait_until(lambda: len(client.connections) > 1)
            time.sleep(0.3)  # the request is queued
        return original(source, target)

    monkeypatch.setattr(translator.engine, "score", score)
    document = threading.Thread(target=upload, args=(client, "a.docx", word_file(150)))
    document.start()
    assert aligning.wait(PATIENCE_S)
    assert client.post("/translate", {"q": SOURCE[0], **PAIR}).json == {"translatedText": TARGET[0]}
    answered.set()
    document.join(PATIENCE_S)
    assert waited.count(False) == 0


def test_tags_are_not_placed_for_a_client_that_has_left(
    client: Client, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    aligning, has_left = threading.Event(), threading.Event()
    original = translator.engine.score
    calls: list[int] = []

    def score(source: Any, target: Any) -> Any:
        calls.append(len(source))
        aligning.set()
        assert has_left.wait(PATIENCE_S)
        return original(source, target)

    monkeypatch.setattr(translator.engine, "score", score)
    with contextlib.closing(client.connect()) as connection:
        connection.request("POST", "/translate_file", *form("a.docx", word_file(300), **PAIR))
        assert aligning.wait(PATIENCE_S)
    wait_until(lambda: not client.connections)
    time.sleep(0.1)  # the request is canceled
    has_left.set()
    assert client.post("/translate", {"q": SOURCE[0], **PAIR}).status == 200
    assert len(calls) == 1


@pytest.mark.parametrize(("wait_s", "status"), [(0.1, 200), (5.0, 504)], ids=["all together", "one turn"])
def test_the_time_limit_is_for_each_turn_of_a_document(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, wait_s: float, status: int
) -> None:
    calls: list[int] = []
    original = translator.engine.score

    def slow(source: Any, target: Any) -> Any:
        calls.append(len(source))
        time.sleep(wait_s)
        return original(source, target)

    monkeypatch.setattr(translator.engine, "score", slow)
    with served(translator, limits=Limits(answer_s=2.0)) as client:
        answer = upload(client, "a.docx", word_file(40))
        assert answer.status == status, answer.body
    if status == 200:
        assert len(calls) * wait_s > 2.0
    else:
        assert answer.error == "no translation within 2 s"
        assert len(calls) == 1


def translated(translator: Translator, suffix: str, content: bytes) -> bytes:
    document = DocumentTranslation(translator, "the file", suffix, content, 10**7)
    for _ in document.translations():
        pass
    return document.content()


def test_a_document_is_the_same_in_parts(translator: Translator, score: list[int]) -> None:
    whole = translated(translator, ".docx", word_file(30))
    n_calls = len(score)
    in_turns = translated(in_parts(translator, lambda: None), ".docx", word_file(30))
    assert in_turns == whole
    assert len(score) - n_calls > n_calls == 1
    assert max(score[1:]) <= turns.LEAST_ITEMS


def test_where_a_tag_goes_does_not_depend_on_the_other_paragraphs(translator: Translator) -> None:
    writer = MarkupTranslator(translator, HTML)
    lines = [f"{line[:i]}<b>{line[i]}</b>{line[i + 1 :]}" for line in SOURCE for i in range(len(line) - 1)]
    there = [found.text for found in writer.translate_lines(lines)]
    back = [found.text for found in writer.translate_lines(lines[::-1])]
    alone = [found.text for found in writer.translate_lines(lines, window=1)]
    assert there == back[::-1] == alone


def test_a_search_in_parts_finds_the_same_in_the_same_order(translator: Translator) -> None:
    lines = [*SOURCE, "", *reversed(SOURCE)]
    assert in_parts(translator, lambda: None).translate(lines) == translator.translate(lines)


def test_what_is_parsed_can_be_interrupted(translator: Translator) -> None:
    class StoppedError(Exception):
        pass

    def stop() -> None:
        raise StoppedError

    for suffix, content in ((".docx", word_file(2)), (".html", b"<p>a<p>b"), (".po", b'msgid "a"\nmsgstr ""\n')):
        with pytest.raises(StoppedError):
            translated(in_parts(translator, stop), suffix, content)
    between_segments.set(lambda: None)


def counting(order: list[str], name: str, n: int) -> Any:
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
    assert all(len({*order[i : i + 3]}) == 3 for i in range(6, 18)), order  # once all have begun


def test_short_requests_go_first() -> None:
    order: list[str] = []

    async def test(held: Held) -> None:
        held.released.set()
        held.batcher.turn_s = WAIT_S  # the jobs that have started may have to wait long
        long = held.batcher.call(counting(order, "long", 100))
        await held.translate("a cat")
        order.append("short")
        await long

    run(test)
    assert "short" in order[:4]


def test_long_jobs_get_on_among_short_requests_without_end() -> None:
    order: list[str] = []

    async def test(held: Held) -> None:
        held.released.set()
        long = held.batcher.call(counting(order, "long", 5))
        short = {held.translate("a cat") for _ in range(3)}
        while not long.done():
            done, short = await asyncio.wait({long, *short}, return_when=asyncio.FIRST_COMPLETED)
            short = {one for one in short if one is not long} | {held.translate("a dog") for one in done - {long}}
        await asyncio.gather(*short)

    run(test)
    assert order == ["long"] * 5


def test_a_canceled_job_ends_at_its_next_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", PATIENCE_S)
    started, ended = threading.Event(), threading.Event()

    def endless(check: Check) -> None:
        started.set()
        try:
            while True:
                check()
                time.sleep(0.001)
        finally:
            ended.set()

    async def test(held: Held) -> None:
        job = held.batcher.call(endless)
        await asyncio.to_thread(started.wait)
        job.cancel()
        assert await held.batcher.call(lambda _: 7) == 7

    run(test)
    assert ended.is_set()


def test_jobs_that_wait_for_a_turn_end_with_the_server() -> None:
    ended: list[str] = []

    def endless(check: Check) -> None:
        try:
            while True:
                check()
        finally:
            ended.append("job")

    async def test(held: Held) -> None:
        for _ in range(3):
            held.batcher.call(endless)
        while len(held.batcher.started) < 2:
            await asyncio.sleep(0.01)

    run(test)  # it closes the event loop
    deadline = time.monotonic() + WAIT_S
    while len(ended) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(ended) == 3


def test_a_long_text_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.serve.batcher.MAX_SHORT", 20)
    n_checks: list[int] = []
    original = turns.LongJob._check

    def check(job: turns.LongJob) -> None:
        n_checks.append(1)
        original(job)

    monkeypatch.setattr(turns.LongJob, "_check", check)

    async def test(held: Held) -> None:
        held.released.set()
        texts = [f"a cat {i}" for i in range(10)]
        found = await held.translate(*texts)
        assert [one.text for one in found] == held.translator.translate(texts)

    run(test)
    assert n_checks


def test_jobs_beyond_the_limit_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.serve.batcher.MAX_STARTED", 1)
    order: list[str] = []

    async def test(held: Held) -> None:
        await asyncio.gather(*(held.batcher.call(counting(order, name, 2)) for name in "abc"))

    run(test)
    assert "".join(order) == "aabbcc"
