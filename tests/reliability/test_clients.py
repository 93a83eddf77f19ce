"""`nmt serve` among hostile clients: answers, memory, abandoned work, its log, and SIGTERM in each state."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import SOAK, soak, wait_until

from .hostile import HOSTILE
from .served import BODY, KEY, MARK, Server, request, serving, settled, statuses, upload

TEXTS = [f"{MARK} {text}" for text in ("Hund.", "我买书。", "שלום", "a\nb\n\nc", "😀 <b>", "\ud800")]
FORM = "Content-Type: application/x-www-form-urlencoded"
DEEP = "[" * 20_000 + "]" * 20_000
NINES = "9" * 5_000
VALID = request("/translate", BODY)


class Request(NamedTuple):
    raw: bytes
    allowed: str  # its valid statuses. 0: no response (an incomplete request, or the connection is reset)


def honest() -> list[bytes]:
    """Requests of every kind."""
    requests = [request(path) for path in ("/languages", "/v1/models", "/", "/docs", "/health")]
    for text in TEXTS[: soak(2, None)]:
        v1 = {"q": text, "api_key": KEY}
        paragraphs = {"q": [text, f"<p>{text}</p>"], "format": "html"}
        requests.append(request("/translate", BODY | {"q": text}))
        requests.append(request("/translate", BODY | paragraphs))
        requests.append(request("/v1/translate", v1 | {"n_best": 2}))
        requests.append(request("/v1/translate", v1 | {"stream": True}))
        requests.append(upload("a.txt", text.encode(errors="replace")))
    form = f"q=Ein+{MARK}&source=auto&target=en&api_key=Schl%C3%BCssel-1"
    requests.append(request("/translate", None, FORM, raw=form.encode()))
    requests.append(request("/v1/explain", {"q": "Hund", "api_key": KEY}))
    return requests


VALID_ROW: Mapping[str, Any] = {
    "method": "POST",
    "path": "/translate",
    "host": "localhost",
    "headers": [],
    "fields": {},
    "raw": "",
}


def hostile_request(changes: Mapping[str, Any]) -> Request:
    """A request of hostile.toml: a valid one with changes."""
    row = {**VALID_ROW, **changes}
    body = BODY | row["fields"]
    body["q"] *= row.get("times", 1)
    raw = row["raw"].replace("DEEP", DEEP).replace("NINES", NINES)
    content = None if row["method"] == "GET" else body
    post = request(row["path"], content, *row["headers"], host=row["host"], raw=raw.encode())
    method = row["method"].encode()
    return Request(post.replace(b"POST", method), row["status"])


def with_wrong_keys() -> Iterator[Request]:
    wrong = "Authorization: Bearer x"
    yield Request(request("/metrics", None, wrong), "403")
    yield Request(request("/v1/translate", BODY | {"stream": True}, wrong), "403")
    for key, status in (("", "400"), ("x", "403"), (KEY[:-1], "403"), (f"{KEY}x", "403")):
        yield Request(upload("a.txt", b"x", key), status)
        for path in ("/translate", "/v1/translate", "/v1/explain", "/explain"):
            yield Request(request(path, BODY | {"api_key": key}), status)


def damaged(draw: random.Random) -> Iterator[Request]:
    """Requests with random bytes, or cut at a random place."""
    suffix = draw.choice([".docx", ".json", ".po", ".srt", ".pptx", ".xlf"])
    document = upload(f"../{MARK}{suffix}", draw.randbytes(99))
    yield Request(document, "400")
    yield Request(request("/translate", raw=draw.randbytes(300)), "400")
    yield Request(VALID[: draw.randrange(1, len(VALID))], "0")


FIXED = [
    *map(hostile_request, HOSTILE["requests"]),
    *with_wrong_keys(),
    Request(upload("a.exe", b"x"), "400"),
    Request(request("/health", None, f"X: {DEEP * 3}"), "0 200 400 431"),
    Request(b"\x16\x03\x01\x02\x00" + MARK.encode() * 9 + b"\r\n\r\n", "400"),  # TLS
]


async def storm(server: Server, expected: dict[bytes, bytes], n_requests: int, n_clients: int) -> Counter[str]:
    """Requests of clients at once: every tenth is hostile; every twentieth client leaves in the middle."""
    counts = Counter[str]()

    async def send(draw: random.Random, leaves: bool, attack: Request | None) -> None:
        raw, allowed = attack or Request(draw.choice([*expected]), "200")
        if leaves or allowed == "0":
            await server.sent(raw, leave_after_s=draw.choice([0, 0.01, 0.3]))
            counts["left"] += 1
            return
        answer = await server.sent(raw)
        status = statuses(answer)
        assert status == "429" or status in allowed.split(), (raw[:300], answer[:300])
        counts[f"hostile {status}" if attack else status] += 1
        if attack is None and status == "200":
            assert settled(answer) == expected[raw], (raw, answer)

    async def client(number: int) -> None:
        draw = random.Random(number)
        for i in range(n_requests // n_clients):
            is_hostile = (number + i) % 10 == 0
            attack = None
            if is_hostile:
                attack = draw.choice([*FIXED, *damaged(draw)])
            await send(draw, number % 20 == 1, attack)

    await asyncio.gather(*map(client, range(n_clients)))
    return counts


def check_refusals(server: Server) -> None:
    """Send every hostile request alone."""
    for raw, allowed in [*FIXED, *damaged(random.Random(1))]:
        if allowed != "0":
            answer = server.answer(raw)
            assert statuses(answer) in allowed.split(), (raw[:300], answer)


def test_every_answer_among_hostile_clients_is_the_single_one(folder: Path) -> None:
    n_requests = soak(20, 33_400)
    n_clients = soak(20, 200)
    with serving(folder, *soak(["--engine", "torch"], [])) as server:
        # 1. Each request alone.
        check_refusals(server)
        alone = {raw: server.answer(raw) for raw in honest()}
        assert {statuses(answer) for answer in alone.values()} == {"200"}

        # 2. All at once, three times.
        expected = {raw: settled(answer) for raw, answer in alone.items()}
        counts = Counter[str]()
        usages = []
        for _ in range(3):
            counts += asyncio.run(storm(server, expected, n_requests, n_clients))
            usages.append(server.usage())
        print(dict(counts), usages)
        assert counts["200"] > counts["429"]
        first, _, last = usages
        assert last.memory_mb <= first.memory_mb + soak(60, 30), "memory is flat"

        # 3. Nothing of it is left, or logged.
        metrics = request("/metrics", None, f"Authorization: Bearer {KEY}")
        wait_until(lambda: b"nmt_requests_waiting 0.0" in server.answer(metrics))
        for secret in (MARK, KEY, "Traceback"):
            assert secret not in server.messages


LINES = {"q": ["a b c"] * soak(4, 64), "api_key": KEY}
STATES = {  # what a client has sent when the server is told to stop
    "silent": Request(b"", "0"),
    "half a header": Request(b"POST /translate HTTP/1.1\r\nHos", "0"),
    "done": Request(request("/health").replace(b"close", b"keep-alive"), "200"),
    "waits for a model": Request(request("/v1/translate", LINES | {"beam": 16}), "200"),
    "reads a stream": Request(request("/v1/translate", LINES | {"stream": True}), "200"),
    "waits for a file": Request(upload("a.txt", b"a b c\n" * soak(4, 64)), "200"),
    "half a body": Request(VALID[:-5], "0 408"),  # for 10 s
}
GROUPS = [[*STATES][: soak(-1, None)]]
if SOAK:
    GROUPS += [[name] for name in STATES]


@pytest.mark.parametrize("names", GROUPS, ids=" and ".join)
def test_a_server_that_is_told_to_stop_answers_what_it_has(folder: Path, names: list[str]) -> None:
    async def stopped(server: Server) -> None:
        states = [STATES[name] for name in 3 * names]
        answers = [asyncio.create_task(server.sent(state.raw)) for state in states]
        await asyncio.sleep(0.3)
        server.send(signal.SIGTERM)
        # What was begun is answered.
        for state, coming in zip(states, answers, strict=True):
            answer = await coming
            assert statuses(answer) in state.allowed.split(), (state, answer)
            assert b"event: done" in answer or b"event-stream" not in answer, answer

    with serving(folder, "--engine", "torch") as server:
        asyncio.run(stopped(server))
        assert server.end() == 143
        assert "Traceback" not in server.messages
