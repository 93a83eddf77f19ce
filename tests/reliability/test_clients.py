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
from typing import Any

import pytest
from conftest import FORKS, PATIENCE_S, soak, wait_until
from models import small_translator, write_run

from .runs import Training, run_main

MARK, KEY = "Geheimnis", "Schlüssel-1"  # what all texts have, and the key; neither may be in the log
TEXTS = [f"{MARK} {text}" for text in ("Hund.", "我买书。", "שלום", "a\nb\n\nc", "😀 <b>", "\ud800")]
BODY, V1 = {"q": MARK, "source": "auto", "target": "en", "api_key": KEY}, {"q": MARK, "api_key": KEY}
FORM = "Content-Type: application/x-www-form-urlencoded"
FILE = "Content-Type: multipart/form-data; boundary=b"


class Served(Training):
    """A running `nmt serve`."""

    @property
    def port(self) -> int:
        return int(re.findall(r"http://127.0.0.1:(\d+)", self.messages)[0])

    def memory(self) -> tuple[int, int]:
        """The proportional share of memory in MB, and open descriptors."""
        home = Path(f"/proc/{self.process.pid}")
        (pss,) = re.findall(r"\nPss:\s+(\d+)", (home / "smaps_rollup").read_text())
        return int(pss) // 1024, len([*home.glob("fd/*")])

    async def sent(self, raw: bytes, leave_after_s: float | None = None) -> bytes:
        """All that the server answers to these bytes until it closes the connection; nothing if we leave."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.suppress(ConnectionError, TimeoutError), contextlib.ExitStack() as stack:
            stack.callback(writer.transport.abort)
            writer.write(raw)
            if leave_after_s is None:
                return await asyncio.wait_for(reader.read(), PATIENCE_S)
            await asyncio.wait_for(reader.read(99), leave_after_s)
        return b""

    def answer(self, raw: bytes) -> bytes:
        return asyncio.run(self.sent(raw))


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[Served]:
    """Serve a tiny model, or the one of NMT_SOAK_MODEL, with a key, in its own process."""
    run, keys, log = folder / "run", folder / "keys", folder / f"{time.monotonic_ns()}.log"
    if not run.exists():
        write_run(small_translator(source_lang="de", target_lang="en"), run)
    keys.write_text(f"first\n\n{KEY}\n", encoding="utf-8")
    words = ["serve", "-m", os.environ.get("NMT_SOAK_MODEL", str(run)), "--port", "0", "--api-keys", str(keys)]
    process = FORKS.Process(target=run_main, args=([*words, *options], str(log)))
    process.start()
    try:
        server = Served(process, log)
        wait_until(lambda: process.exitcode is not None or "serving on" in server.messages)
        yield server
    finally:
        process.kill()
        process.join()


def request(path: str, body: object = None, *headers: str, host: str = "localhost", raw: bytes = b"") -> bytes:
    content = raw or (json.dumps(body).encode() if body else b"")
    lines = [f"{'POST' if content else 'GET'} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    for header in (f"Content-Length: {len(content)}", "Content-Type: application/json") if content else ():
        lines += [] if header.partition(":")[0] in " ".join(headers) else [header]
    return "\r\n".join([*lines, "\r\n"]).encode() + content


def upload(name: str, content: bytes, key: str = KEY) -> bytes:
    fields = {"source": "auto", "target": "en", "api_key": key}
    parts = [f'--b\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{text}\r\n' for key, text in fields.items()]
    file = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return request("/translate_file", None, FILE, raw=("".join(parts) + file).encode() + content + b"\r\n--b--\r\n")


def honest() -> list[bytes]:
    """Requests of every kind."""
    found = [request(path) for path in ("/languages", "/v1/models", "/", "/docs", "/health")]
    for text in TEXTS[: soak(2, None)]:
        found += [request("/translate", {**BODY, "q": text}), request("/v1/translate", {**V1, "q": text, "n_best": 2})]
        found += [request("/translate", {**BODY, "q": [text, f"<p>{text}</p>"], "format": "html"})]
        found += [
            request("/v1/translate", {**V1, "q": text, "stream": True}),
            upload("a.txt", text.encode(errors="replace")),
        ]
    form = f"q=Ein+{MARK}&source=auto&target=en&api_key=Schl%C3%BCssel-1".encode()
    return [*found, request("/translate", None, FORM, raw=form), request("/v1/explain", {**V1, "q": "Hund"})]


def hostile(draw: random.Random) -> list[tuple[bytes, str]]:
    """Requests and their valid statuses. 0: no response (an incomplete request, or the connection is reset)."""

    def bad(
        status: str, *headers: str, path: str = "/translate", host: str = "", raw: bytes = b"", **body: Any
    ) -> tuple[bytes, str]:
        return request(path, {**BODY, **body}, *headers, host=host or "localhost", raw=raw), status

    good, inner = request("/translate", BODY), b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    wrong, chunked, v1 = "Authorization: Bearer x", "Transfer-Encoding: chunked", "/v1/translate"
    keys = ["", "x", KEY[:-1], KEY + "x"]
    damaged = upload(f"../{MARK}{draw.choice(['.docx', '.json', '.po', '.srt', '.pptx', '.xlf'])}", draw.randbytes(99))
    no_numbers: list[object] = [float("nan"), "x", []]
    return [
        bad("400", chunked, "Content-Length: 5", raw=b"0\r\n\r\n" + inner),
        bad("400", "Content-Length: 5", "Content-Length: 6", raw=b"{}   " + inner),
        *[bad("400", header) for header in ("Content-Length: +5", chunked + ", identity")],
        *[bad("400", raw=b'{"q": ' + text + b"}") for text in (b"[" * 20_000 + b"]" * 20_000, b"9" * 5_000, b'"\0"')],
        *[bad("400", path=v1, q="x", alpha=value) for value in no_numbers],
        *[bad("413", q=text) for text in ("x" * 70_000, "x" * 6_000, "\n" * 100)],
        *[bad("200", q=text * 800, format="html") for text in ("<?", "<b>", "<![", "<p>")],
        *[bad("421", host=host) for host in ("evil.example", "localhost@evil.example:80")],
        *[bad("403", f"Origin: {origin}") for origin in ("http://evil.example", "null", "http://localhost.evil")],
        *[bad("403", path=path, api_key=key) for path in ("/translate", v1, "/v1/explain", "/explain") for key in keys],
        *[bad("403", wrong, path=v1, stream=True), (request("/metrics", None, wrong), "403")],
        *[(upload("a.txt", b"x", draw.choice(keys)), "403"), (upload("a.exe", b"x"), "400"), (damaged, "400")],
        *[bad("415", header) for header in ("Content-Encoding: gzip", "Content-Type: text/plain", FILE)],
        *[bad("400", FORM, raw=form) for form in (b"q=%ff&%", b"a&" * 99)],
        *[(request(path), "404") for path in ("/static/../../etc/passwd", "/%2e%2e/%00", "/download_file/../x")],
        *[(good.replace(b"POST", method), "405") for method in (b"PUT", b"BREW", b"OPTIONS", b"TRACE")],
        *[
            bad("413", "Content-Length: 1000000000"),
            bad("400", "Content-Length: -1"),
            bad("400", raw=draw.randbytes(300)),
        ],
        *[
            bad("400", path=v1, **field)
            for field in ({"__proto__": 1}, {"beam": 1e300}, {"top_p": "\0"}, {"n_best": -1})
        ],
        (request("/health", None, "X: " + "x" * 100_000), "0 200 400 431"),
        (b"\x16\x03\x01\x02\x00" + MARK.encode() * 9 + b"\r\n\r\n", "400"),
        (good[: draw.randrange(1, len(good))], "0"),
    ]


def settled(answer: bytes) -> bytes:
    """The body of an answer; of a stream, the last event. Scores may differ in a batch, and names of files do."""
    body = answer.partition(b"\r\n\r\n")[2]
    body = re.sub(rb"download_file/[\w-]+", b"", body[max(body.rfind(b"event: "), 0) :])
    return re.sub(rb"-?\d+\.\d+(e-\d+)?", lambda found: b"%.1f" % (float(found[0]) + 0.0), body)


def statuses(answer: bytes) -> str:
    """Of all answers: two to one request would be smuggling."""
    return " ".join(re.findall(r"HTTP/1\.1 (\d{3})", answer.decode(errors="replace"))) or "0"


async def storm(server: Served, expected: dict[bytes, bytes], n_requests: int, n_clients: int) -> Counter[str]:
    """Requests of clients at once: every tenth is hostile; every twentieth client leaves in the middle."""
    counts = Counter[str]()

    async def client(number: int) -> None:
        draw = random.Random(number)
        for i in range(n_requests // n_clients):
            is_hostile = (number + i) % 10 == 0
            raw, allowed = draw.choice(hostile(draw)) if is_hostile else (draw.choice([*expected]), "200")
            leaves = allowed == "0" or number % 20 == 1
            answer = await server.sent(raw, draw.choice([0, 0.01, 0.3]) if leaves else None)
            status = statuses(answer)
            assert leaves or status in [*allowed.split(), "429"], (raw[:300], answer[:300])
            assert is_hostile or leaves or status == "429" or settled(answer) == expected[raw], (raw, answer)
            counts["left" if leaves else f"{'hostile' if is_hostile else 'equal'} {status}"] += 1

    await asyncio.gather(*map(client, range(n_clients)))
    return counts


def test_every_answer_among_hostile_clients_is_the_single_one(folder: Path) -> None:
    n_requests, n_clients = soak(60, 100_200), soak(20, 200)
    with serving(folder, *soak(["--engine", "torch"], [])) as server:
        for raw, allowed in hostile(random.Random(1)):
            assert allowed == "0" or statuses(answer := server.answer(raw)) in allowed.split(), (raw[:300], answer)
        single = {raw: server.answer(raw) for raw in honest()}
        assert {*map(statuses, single.values())} == {"200"}
        expected = {raw: settled(answer) for raw, answer in single.items()}
        counts, sizes = Counter[str](), []
        for _ in range(3):
            counts += asyncio.run(storm(server, expected, n_requests // 3, n_clients))
            sizes.append(server.memory())
        print(dict(counts), "MB and descriptors", sizes)
        assert counts["equal 200"] > counts["equal 429"]
        assert sizes[-1][0] <= sizes[0][0] + soak(60, 30), "memory is flat"
        metrics = request("/metrics", None, f"Authorization: Bearer {KEY}")
        wait_until(lambda: b"nmt_requests_waiting 0.0" in server.answer(metrics))
        assert not [secret for secret in (MARK, KEY, "Traceback") if secret in server.messages]


LINES = ["a b c"] * soak(4, 64)
STATES = {  # what a client has sent when the server is told to stop, and the statuses that it may then get
    "silent": (b"", "0"),
    "half a header": (b"POST /translate HTTP/1.1\r\nHos", "0"),
    "done": (request("/health").replace(b"close", b"keep-alive"), "200"),
    "waits for a model": (request("/v1/translate", {**V1, "q": LINES, "beam": 16}), "200"),
    "reads a stream": (request("/v1/translate", {**V1, "q": LINES, "stream": True}), "200"),
    "waits for a file": (upload("a.txt", "\n".join(LINES).encode()), "200"),
    "half a body": (request("/translate", BODY)[:-5], "0 408"),  # for 10 s
}


@pytest.mark.parametrize("names", [[*STATES][: soak(-1, None)], *soak([], [[one] for one in STATES])], ids=" and ".join)
def test_a_server_that_is_told_to_stop_answers_what_it_has(folder: Path, names: list[str]) -> None:
    async def stopped(server: Served) -> None:
        answers = [(name, asyncio.create_task(server.sent(STATES[name][0]))) for name in 3 * names]
        await asyncio.sleep(0.3)
        server.send(signal.SIGTERM)
        for name, answer in answers:
            raw = await answer
            assert statuses(raw) in STATES[name][1].split(), (name, raw)
            assert b"event-stream" not in raw or b"event: done" in raw, raw

    with serving(folder, "--engine", "torch") as server:
        asyncio.run(stopped(server))
        assert server.end() == 143
        assert "Traceback" not in server.messages
