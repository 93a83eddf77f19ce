"""`nmt serve` among hostile clients: answers, memory, abandoned work, its log, and SIGTERM in each state."""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import FORKS, PATIENCE_S, soak, wait_until
from models import small_translator, write_run

from nmt.serve.schema import TranslateRequest

from .runs import Training, run_main

MARK, KEY = "Geheimnis", "Schlüssel-1"  # what all texts have, and the key; neither may be in the log
TEXTS = [
    f"Ein {MARK} {i}: {text}" for i, text in enumerate(["Hund.", "我买书。", "שלום", "a\nb\n\nc", "😀 <b>", "\ud800"])
]
BODY = {"q": MARK, "source": "auto", "target": "en", "api_key": KEY}
MINE = {"q": MARK, "api_key": KEY}
Sent = tuple[bytes, str]  # a request, and the statuses that may answer it; 0 is none
VALUES = [1, -1, None, [], {}, "\0", "1e999", True, "<script>", [1], [["a"]], 1e300, "\ufeff\u202e\u2028", 10**30]
FIELDS = [name for name in TranslateRequest.model_fields if name != "api_key"]
FORM = "Content-Type: application/x-www-form-urlencoded"


class Served(NamedTuple):
    """A running `nmt serve`."""

    process: Training
    port: int

    def memory(self) -> tuple[int, int]:
        """Resident MB and open descriptors."""
        of_process = Path(f"/proc/{self.process.process.pid}")
        kb = re.findall(r"VmRSS:\s+(\d+)", (of_process / "status").read_text())[0]
        return int(kb) // 1024, len(list((of_process / "fd").iterdir()))

    async def send(self, raw: bytes, *, leave_after_s: float | None = None) -> bytes:
        """All that the server answers to these bytes until it closes the connection; nothing if we leave."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(raw)
            if leave_after_s is None:
                return await asyncio.wait_for(reader.read(), PATIENCE_S)
            await asyncio.wait_for(reader.read(99), leave_after_s)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            writer.transport.abort()
        return b""


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[Served]:
    """Serve a tiny model, or the one of NMT_SOAK_MODEL, with a key, in its own process."""
    run = Path(os.environ.get("NMT_SOAK_MODEL", folder / "run"))
    if not run.exists():
        write_run(small_translator(source_lang="de", target_lang="en"), run)
    log, keys = folder / f"{time.monotonic_ns()}.log", folder / "keys"
    keys.write_text(KEY, encoding="utf-8")
    arguments = ["serve", "-m", str(run), "--port", "0", "--api-keys", str(keys), "--device", "cpu", *options]
    process = FORKS.Process(target=run_main, args=(arguments, str(log)))
    process.start()
    try:
        server = Training(process, log)
        wait_until(lambda: process.exitcode is not None or "serving on" in server.messages)
        yield Served(server, int(re.findall(r"http://127.0.0.1:(\d+)", server.messages)[0]))
    finally:
        process.kill()
        process.join()


def request(path: str, body: object, *headers: str, host: str = "localhost", raw: bytes = b"") -> bytes:
    content = raw or (json.dumps(body).encode() if body else b"")
    lines = [f"{'POST' if content else 'GET'} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    names = " ".join(headers)
    if content and "Length" not in names and "chunked" not in names:
        lines.append(f"Content-Length: {len(content)}")
    if content and "Type" not in names:
        lines.append("Content-Type: application/json")
    return "\r\n".join([*lines, "\r\n"]).encode() + content


def honest() -> list[bytes]:
    """Requests of every kind."""
    found = [request(path, None) for path in ("/languages", "/v1/models", "/", "/docs", "/health")]
    for text in TEXTS:
        found += [
            request("/translate", {**BODY, "q": text}),
            request("/v1/translate", {**MINE, "q": text, "n_best": 2}),
        ]
        found.append(request("/v1/translate", {**MINE, "q": text, "stream": True}))
        found.append(request("/translate", {**BODY, "q": [text, f"<p>{text}</p>"], "format": "html"}))
    form = f"q=Ein+{MARK}&source=auto&target=en&api_key=Schl%C3%BCssel-1".encode()
    return [*found, request("/translate", None, FORM, raw=form), request("/v1/explain", {**MINE, "q": "Hund"})]


def bad(
    status: str, *headers: str, path: str = "/translate", host: str = "localhost", raw: bytes = b"", **body: Any
) -> Sent:
    return request(path, {**BODY, **body}, *headers, host=host, raw=raw), status


def hostile(draw: random.Random) -> Sent:
    """A request and the statuses that may answer it; 0 if we or the server leave without an answer."""
    good, inner = request("/translate", BODY), b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    key: dict[str, Any] = {"api_key": draw.choice(["", "x", KEY[:-1], KEY + "x", "\ud800"])}
    v1, chunks, wrong = "/v1/translate", "Transfer-Encoding: chunked", "Authorization: Bearer x"
    return draw.choice(
        [
            bad("400", chunks, "Content-Length: 5", raw=b"0\r\n\r\n" + inner),
            bad("400", "Content-Length: 5", "Content-Length: 6", raw=b"{}   " + inner),
            bad("400", "Content-Length: +5"),
            bad("400 501", chunks + ", identity"),
            bad("400 408", chunks, raw=b"F" * 18 + b"\r\n{}"),
            bad("400", raw=b'{"q": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
            bad("400", raw=b'{"q": "x", "seed": ' + b"9" * 5000 + b"}", path=v1),
            bad("400", alpha=float("nan"), path=v1),
            bad(
                "200 400", **{draw.choice(["q", "format", "alternatives", "__proto__", "target"]): draw.choice(VALUES)}
            ),
            bad("200 400", path=v1, **{draw.choice(FIELDS): draw.choice(VALUES)}),
            *[bad("413", q=text) for text in ("x" * 70_000, "x" * 6_000, "\n" * 100)],
            *[bad("200", q=text * 800, format="html") for text in ("<?", "<b>", "<![", "<p>")],
            *[bad("421", host=host) for host in ("evil.example", "localhost@evil.example:80", "")],
            *[bad("403", f"Origin: {origin}") for origin in ("http://evil.example", "null", "http://localhost.evil")],
            *[bad("403", path=path, **key) for path in ("/translate", v1, "/v1/explain", "/explain")],
            *[bad("403", wrong, path=v1, stream=True), (request("/metrics", None, wrong), "403")],
            *[bad("415", header) for header in ("Content-Encoding: gzip", "Content-Type: text/plain")],
            *[bad("400", FORM, raw=form) for form in (b"q=%ff&%", b"a&" * 99)],
            *[(request(f"/static/{path}", None), "404") for path in ("../../etc/passwd", "%2e%2e/%00", "\u2028")],
            (request("/health", None, "X: " + "x" * 100_000), "200 400 431"),
            (b"\x16\x03\x01\x02\x00" + MARK.encode() * 9 + b"\r\n\r\n", "400"),
            (good[: draw.randrange(1, len(good))], "0"),
        ]
    )


def settled(answer: bytes) -> bytes:
    """The body of an answer; of a stream, the last event. A batch may change the last digits of a score."""
    _, _, body = answer.partition(b"\r\n\r\n")
    body = body[max(body.rfind(b"event: "), 0) :]
    return re.sub(rb"-?\d+\.\d+(e-\d+)?", lambda found: f"{float(found[0]) + 0.0:.1f}".encode(), body)


def statuses(answer: bytes) -> list[str]:
    return re.findall(r"HTTP/1\.1 (\d{3})", answer.decode(errors="replace")) or ["0"]


async def storm(server: Served, expected: dict[bytes, bytes], n_requests: int, n_clients: int) -> Counter[str]:
    """Requests of clients at once: every tenth is hostile; every twentieth client leaves in the middle."""
    counts = Counter[str]()

    async def client(number: int) -> None:
        draw = random.Random(number)
        for i in range(n_requests // n_clients):
            raw, allowed = draw.choice([*expected]), "200"
            if is_hostile := (number + i) % 10 == 0:
                raw, allowed = hostile(draw)
            leaves = allowed == "0" or number % 20 == 1
            answer = await server.send(raw, leave_after_s=draw.choice([0, 0.01, 0.3]) if leaves else None)
            status = " ".join(statuses(answer))  # two answers to one request would be smuggling
            assert leaves or status in [*allowed.split(), "429"], (raw[:300], answer[:300])
            assert is_hostile or leaves or status == "429" or settled(answer) == expected[raw], (raw, answer)
            counts["left" if leaves else f"{'hostile' if is_hostile else 'equal'} {status}"] += 1

    await asyncio.gather(*map(client, range(n_clients)))
    return counts


def test_every_answer_among_hostile_clients_is_the_single_one(folder: Path) -> None:
    n_requests, n_clients = int(os.environ.get("NMT_SOAK_REQUESTS", soak(60, 8_000))), soak(20, 200)
    with serving(folder, *soak(["--engine", "torch"], [])) as server:
        single = {raw: asyncio.run(server.send(raw)) for raw in honest()}
        assert {*map(str, map(statuses, single.values()))} == {"['200']"}
        expected = {raw: settled(answer) for raw, answer in single.items()}
        counts, sizes = Counter[str](), []
        for _ in range(3):
            counts += asyncio.run(storm(server, expected, n_requests // 3, n_clients))
            sizes.append(server.memory())
        print(dict(counts), "MB and descriptors", sizes)
        assert counts["equal 200"] > counts["equal 429"]
        assert sizes[-1][0] <= sizes[0][0] + soak(60, 30), "memory is flat"
        metrics = request("/metrics", None, f"Authorization: Bearer {KEY}")
        wait_until(lambda: b"nmt_requests_waiting 0.0" in asyncio.run(server.send(metrics)))
        for secret in (MARK, KEY, "Traceback"):
            assert secret not in server.process.messages


def test_work_of_clients_who_left_is_stopped(folder: Path) -> None:
    heavy = request("/v1/translate", {**MINE, "q": ["ist ein Wort"] * soak(16, 64), "beam": 16, "stream": True})

    async def leave(server: Served) -> None:
        await asyncio.gather(*(server.send(heavy, leave_after_s=0.2) for _ in range(30)))

    with serving(folder, "--engine", "torch") as server:
        times: list[float] = []
        for raw in (heavy, heavy, request("/v1/translate", MINE)):
            if len(times) == 2:
                asyncio.run(leave(server))
            start = time.monotonic()
            assert statuses(asyncio.run(server.send(raw))) == ["200"]
            times.append(time.monotonic() - start)
        print("seconds: first, alone, another after 30 that left", times)
        assert times[2] < 8 * times[1] + 1


N_LINES = soak(4, 64)
STATES = {  # what a client has sent when the server is told to stop, and the statuses that it may then get
    "silent": (b"", "0"),
    "half a header": (b"POST /translate HTTP/1.1\r\nHos", "0"),
    "done": (request("/health", None).replace(b"close", b"keep-alive"), "200"),
    "waits for a model": (request("/v1/translate", {**MINE, "q": ["a b c"] * N_LINES, "beam": 16}), "200"),
    "reads a stream": (request("/v1/translate", {**MINE, "q": ["a b"] * N_LINES, "stream": True}), "200"),
    "half a body": (request("/translate", BODY)[:-5], "0 408"),  # waits for 10 s
}


@pytest.mark.parametrize(
    "names", [[*STATES][: soak(-1, None)], *soak([], [[name] for name in STATES])], ids=" and ".join
)
def test_a_server_that_is_told_to_stop_answers_what_it_has(folder: Path, names: list[str]) -> None:
    async def stopped(server: Served) -> None:
        answers = [(name, asyncio.create_task(server.send(STATES[name][0]))) for name in 3 * names]
        await asyncio.sleep(0.3)
        server.process.send(signal.SIGTERM)
        for name, answer in answers:
            raw = await answer
            assert statuses(raw)[0] in STATES[name][1].split(), (name, raw)
            assert b"event-stream" not in raw or b"event: done" in raw, raw

    with serving(folder, "--engine", "torch") as server:
        asyncio.run(stopped(server))
        assert server.process.end() == 143
        assert "Traceback" not in server.process.messages
