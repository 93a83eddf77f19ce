"""`nmt serve` in a process of its own, raw HTTP requests, and what matters of the answers."""

import asyncio
import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from conftest import PATIENCE_S, wait_until
from models import small_translator, write_run

from .runs import Command, running

MARK, KEY = "Geheimnis", "Schlüssel-1"  # what all texts have, and the key; neither may be in the log
BODY = {"q": MARK, "source": "auto", "target": "en", "api_key": KEY}
FILE = "Content-Type: multipart/form-data; boundary=b"


class Usage(NamedTuple):
    memory_mb: int  # proportional share
    n_descriptors: int


class Server(Command):
    """A running `nmt serve`."""

    @property
    def port(self) -> int:
        return int(re.findall(r"http://127.0.0.1:(\d+)", self.messages)[0])

    def usage(self) -> Usage:
        home = Path(f"/proc/{self.process.pid}")
        after_name = (home / "smaps_rollup").read_text().partition("\nPss:")[2]
        memory_kb = int(after_name.split()[0])
        descriptors = list(home.glob("fd/*"))
        return Usage(memory_kb // 1024, len(descriptors))

    async def sent(self, raw: bytes, leave_after_s: float | None = None) -> bytes:
        """Send bytes; return all that comes until the server closes the connection, or nothing if we leave."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        answer = b""
        try:
            writer.write(raw)
            if leave_after_s is not None:
                await asyncio.wait_for(reader.read(99), leave_after_s)
                return b""
            while part := await asyncio.wait_for(reader.read(99_999), PATIENCE_S):
                answer += part
        except (ConnectionError, TimeoutError):
            pass  # the answer may have come before the server refused the rest of the request
        finally:
            writer.transport.abort()
        return answer

    def answer(self, raw: bytes) -> bytes:
        return asyncio.run(self.sent(raw))


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    """Serve a tiny model, or the one of NMT_SOAK_MODEL, with a key, in its own process."""
    run = folder / "run"
    keys = folder / "keys"
    log = folder / f"{time.monotonic_ns()}.log"
    if not run.exists():  # several tests share the folder
        write_run(small_translator(source_lang="de", target_lang="en"), run)
    keys.write_text(f"first\n\n{KEY}\n", encoding="utf-8")
    model = os.environ.get("NMT_SOAK_MODEL", run)
    with running(log, "serve", "-m", model, "--port", 0, "--api-keys", keys, *options) as command:
        server = Server(command.process, log)
        wait_until(lambda: server.has_ended or "serving on" in server.messages)
        yield server


def request(path: str, body: object = None, *headers: str, host: str = "localhost", raw: bytes = b"") -> bytes:
    """An HTTP request; with a body (JSON, or raw bytes) a POST, whose usual headers can be replaced."""
    content = raw
    if body and not raw:
        content = json.dumps(body).encode()
    method = "POST" if content else "GET"
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    given = " ".join(headers)
    if content and "Content-Length" not in given:
        lines.append(f"Content-Length: {len(content)}")
    if content and "Content-Type" not in given:
        lines.append("Content-Type: application/json")
    return "\r\n".join([*lines, "\r\n"]).encode() + content


def upload(name: str, content: bytes, key: str = KEY) -> bytes:
    """A request for the translation of a file."""
    form = ""
    for field, text in {"source": "auto", "target": "en", "api_key": key}.items():
        form += f'--b\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{text}\r\n'
    form += f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return request("/translate_file", None, FILE, raw=form.encode() + content + b"\r\n--b--\r\n")


def statuses(answer: bytes) -> str:
    """Of all answers: two to one request would be smuggling."""
    codes = re.findall(r"HTTP/1\.1 (\d{3})", answer.decode(errors="replace"))
    return " ".join(codes) or "0"


def settled(answer: bytes) -> bytes:
    """The body of an answer; of a stream, the last event. Scores may differ in a batch, and names of files do."""
    body = answer.partition(b"\r\n\r\n")[2]
    last_event = body[max(body.rfind(b"event: "), 0) :]
    named = re.sub(rb"download_file/[\w-]+", b"", last_event)
    return re.sub(rb"-?\d+\.\d+(e-\d+)?", rounded, named)


def rounded(figure: re.Match[bytes]) -> bytes:
    return b"%.1f" % (float(figure[0]) + 0.0)  # not -0.0
