"""Clients that hold connections open, with NMT_SOAK=1 up to the limits of `nmt serve`: each is closed in time."""

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import Any

import pytest
from conftest import PATIENCE_S, SOAK, wait_until
from models import small_translator
from served import Answer, Client, running, served

from nmt.serve.guard import MAX_CONNECTIONS, Guard, Limits, max_connections
from nmt.serve.server import bind
from nmt.translate.translator import Translator

LIMITS = Limits() if SOAK else Limits(stall_s=0.5, read_s=0.5)
CLOSED_WITHIN_S = 30.0 if SOAK else 15.0
ANSWERED_WITHIN_S = 1.0
TICK_S = 0.1

GOOD = {"q": "a cat", "source": "de", "target": "en"}
GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n"
HEALTH = GET % b"health" + b"\r\n"
POST = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SIZED = POST + b"Content-Length: 1000\r\n\r\n"
SLOW_START = int(0.8 * LIMITS.stall_s / TICK_S)  # ticks
# What clients send at once, and then a piece every tick, again and again.
NOTHING: tuple[bytes, ...] = ()
SLOW_HEADERS = [*[b"x"] * SLOW_START, b"\r\n" + SIZED.removeprefix(POST), *[b" "] * 900]
WAYS: dict[str, tuple[bytes, Iterable[bytes]]] = {
    "nothing": (b"", NOTHING),
    "one byte": (b"G", NOTHING),
    "headers without an end": (GET % b"health", NOTHING),
    "dripped headers": (GET % b"health" + b"X: ", [b"x"]),
    "headers without a body": (SIZED, NOTHING),
    "headers without the body they expect": (POST + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n", NOTHING),
    "dripped body": (SIZED, [b" "]),
    "dripped chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\n", [b"1\r\n", b" \r\n"]),
    "dripped headers, then a dripped body": (POST + b"X: ", SLOW_HEADERS),
    "a request and a byte of the next": (HEALTH + b"G", NOTHING),
    "an upgrade": (GET % b"health" + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", NOTHING),
    "requests whose answers it does not read": ((GET % b"static/serve.js" + b"\r\n") * 3000, NOTHING),
}


@pytest.fixture(scope="module")
def translator() -> Translator:
    return small_translator()


@contextlib.contextmanager
def connected(
    client: Client, first: bytes = b"", *, is_later: bool = False, buffer: int = 4096
) -> Iterator[socket.socket]:
    """Connect, and send what is not answered; after a request that is, if `is_later`."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.connect(("127.0.0.1", client.port))
        if is_later:
            connection.sendall(HEALTH)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        connection.setblocking(False)
        if first:
            with contextlib.suppress(BlockingIOError):
                connection.send(first)
        yield connection


@pytest.mark.parametrize("is_half_closed", [False, True])
@pytest.mark.parametrize("is_later", [False, True])
def test_every_way_to_hold_a_connection_ends(translator: Translator, is_later: bool, is_half_closed: bool) -> None:
    closed: dict[str, float] = {}
    with served(translator, limits=LIMITS) as client, contextlib.ExitStack() as stack:
        held = {
            name: (stack.enter_context(connected(client, first, is_later=is_later)), cycle(drip))
            for name, (first, drip) in WAYS.items()
        }
        if is_half_closed:
            for connection, _ in held.values():
                connection.shutdown(socket.SHUT_WR)
        started = time.monotonic()
        while len(closed) < len(held) and time.monotonic() - started < CLOSED_WITHIN_S + 1:
            time.sleep(TICK_S)
            open_ports = {one.client[1] for one in list(client.connections)}
            for name, (connection, drip) in held.items():
                if name not in closed and connection.getsockname()[1] not in open_ports:
                    closed[name] = time.monotonic() - started
                with contextlib.suppress(OSError):
                    connection.send(next(drip, b""))
        assert client.get("/health").status == 200
        for connection, _ in held.values():
            connection.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionError):
                while connection.recv(65_536):  # until the client sees the end of the connection
                    pass
    assert set(closed) == set(held), "never closed"
    assert max(closed.values()) < CLOSED_WITHIN_S


def test_two_hundred_held_connections_delay_nobody(translator: Translator) -> None:
    limits = Limits(n_connections=MAX_CONNECTIONS if SOAK else 40)
    with served(translator, limits=limits) as client, contextlib.ExitStack() as stack:
        ways = cycle((first, is_later) for first, _ in WAYS.values() for is_later in (False, True))
        for first, is_later in islice(ways, 200):
            stack.enter_context(connected(client, first, is_later=is_later))
        requests: list[Callable[[], Answer]] = [lambda: client.post("/translate", GOOD), lambda: client.get("/health")]
        for request in requests:
            times = []
            for _ in range(3):
                started = time.monotonic()
                assert request().status == 200
                times.append(time.monotonic() - started)
            assert min(times) < ANSWERED_WITHIN_S  # of three, because other programs run beside
        assert len(client.connections) <= limits.n_connections + 1  # the last one has just been accepted or closed


def test_requests_in_work_keep_their_connections(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    released, start = threading.Event(), translator.start

    def wait(*args: Any) -> Any:
        assert released.wait(PATIENCE_S)
        return start(*args)

    monkeypatch.setattr(translator, "start", wait)
    with served(translator, limits=Limits(n_connections=16)) as client, ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(client.post, "/translate", GOOD) for _ in range(12)]
        wait_until(lambda: sum(one.is_answered for one in [*client.connections]) == 12)
        with contextlib.ExitStack() as stack:
            for _ in range(50):
                stack.enter_context(connected(client, b"G"))
            assert client.get("/health").status == 200
        released.set()
        assert {answer.result().status for answer in answers} == {200}


@pytest.mark.parametrize("is_read", [True, False])
def test_an_answer_is_sent_for_as_long_as_the_client_reads(is_read: bool) -> None:
    size, limits = 4_000_000, Limits(stall_s=1.0)

    async def big(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(size)})

    with running(Guard(big, limits, (), lambda *_: None)) as client, connected(client, HEALTH, buffer=16_384) as slow:
        slow.settimeout(PATIENCE_S)
        n_read, started = len(slow.recv(1000)), time.monotonic()
        if not is_read:
            wait_until(lambda: not client.connections)
        while part := slow.recv(65_536):
            n_read += len(part)
            if time.monotonic() - started < 2 * limits.stall_s:
                time.sleep(0.03)  # a few times as fast as the server needs
            if n_read > size:  # with the headers
                break
    assert (n_read > size) == is_read


@pytest.mark.parametrize(
    ("n_files", "n_connections"), [(128, 64), (10**6, MAX_CONNECTIONS), (resource.RLIM_INFINITY, MAX_CONNECTIONS)]
)
def test_connections_leave_files_for_others(monkeypatch: pytest.MonkeyPatch, n_files: int, n_connections: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (n_files, n_files))
    assert max_connections() == n_connections


def test_an_answers_body_does_not_wait_for_the_acknowledgment_of_its_headers() -> None:
    with bind("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
