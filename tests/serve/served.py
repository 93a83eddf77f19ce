"""A running server for the tests, and a client."""

import asyncio
import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from conftest import PATIENCE_S, wait_until

from nmt.serve.api import Api
from nmt.serve.app import create_app
from nmt.serve.guard import Guard, Limits
from nmt.serve.models import LoadedModel
from nmt.serve.server import bind, new_server
from nmt.translate.translator import Translator

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
PAIR = {"source": "zh", "target": "en"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert self.status >= 400, self.body
        assert list(self.json) == ["error"]
        return str(self.json["error"])


class Event(NamedTuple):
    """A server-sent event."""

    kind: str
    data: Any


@dataclass(frozen=True)
class Client:
    """Sends each request on a new connection."""

    port: int
    connections: Collection[Any] = ()  # of the server
    loop: asyncio.AbstractEventLoop | None = None  # of the server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.send("POST", path, json.dumps(body), {**JSON, **headers})

    def translate(self, q: str | list[str], **fields: Any) -> Answer:
        """Translate by LibreTranslate's endpoint, by default from Chinese to English."""
        return self.post("/translate", {"q": q, **PAIR, **fields})

    def text(self, q: str | list[str], **fields: Any) -> Any:
        return self.translate(q, **fields).json["translatedText"]

    def v1(self, q: str | list[str], **fields: Any) -> Answer:
        """Translate by our own endpoint."""
        return self.post("/v1/translate", {"q": q, **fields})

    def stream(self, q: str | list[str], **fields: Any) -> list[Event]:
        """The events of a translation by our own endpoint."""
        return events_of(self.v1(q, stream=True, **fields))

    def explain(self, q: str, **fields: Any) -> Answer:
        return self.post("/v1/explain", {"q": q, **fields})


def form(name: str | None, content: bytes, **fields: str) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a form with a file and other fields."""
    parts = [f'name="{key}"\r\n\r\n{value}'.encode() for key, value in fields.items()]
    if name is not None:
        parts.append(f'name="file"; filename="{name}"\r\nContent-Type: text/html\r\n\r\n'.encode() + content)
    body = b"".join(b"--limit\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts)
    return body + b"--limit--\r\n", {"Content-Type": "multipart/form-data; boundary=limit"}


class Endless:
    """Work that ends only if it is stopped at one of its checks."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.ended = threading.Event()

    def __call__(self, check: Callable[[], object]) -> None:
        self.started.set()
        try:
            while True:
                check()
                time.sleep(0.001)
        finally:
            self.ended.set()


@contextlib.contextmanager
def served(
    *translators: Translator, limits: Limits | None = None, hosts: Collection[str] = (), keys: Collection[str] = ()
) -> Iterator[Client]:
    """Serve translators on a free port, in a thread."""
    models = [LoadedModel([translator]) for translator in translators]
    api = Api(models, limits or Limits(), keys)
    with running(create_app(api, hosts)) as client:
        yield client


@contextlib.contextmanager
def running(app: Guard) -> Iterator[Client]:
    loops: list[asyncio.AbstractEventLoop] = []
    with bind("127.0.0.1", 0) as listening:
        server = new_server(app, lambda: loops.append(asyncio.get_running_loop()))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        # The server has a loop as soon as it answers.
        wait_until(lambda: loops)
        try:
            yield Client(listening.getsockname()[1], server.server_state.connections, loops[0])
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def events_of(answer: Answer) -> list[Event]:
    # Each event ends with a blank line.
    *blocks, end = answer.body.decode().split("\n\n")
    assert not end
    events = []
    for block in blocks:
        kind, data = block.removeprefix("event: ").split("\ndata: ")
        events.append(Event(kind, json.loads(data)))
    return events
