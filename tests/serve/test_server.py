"""Clients that hold connections open, with NMT_SOAK=1 up to the limits of `nmt serve`: each is closed in time."""

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice, product
from typing import Any, NamedTuple

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


class Way(NamedTuple):
    """A way to hold a connection: what the client sends at once, and a piece every tick, again and again."""

    first: bytes
    drip: Sequence[bytes] = (b"",)


# The headers take nearly all their time; then a body begins.
SLOW_HEADERS = [b"x"] * SLOW_START + [b"\r\n" + SIZED.removeprefix(POST)] + [b" "] * 900
WAYS = {
    "nothing": Way(b""),
    "one byte": Way(b"G"),
    "headers without an end": Way(GET % b"health"),
    "dripped headers": Way(GET % b"health" + b"X: ", [b"x"]),
    "headers without a body": Way(SIZED),
    "headers without the body they expect": Way(POST + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n"),
    "dripped body": Way(SIZED, [b" "]),
    "dripped chunks": Way(POST + b"Transfer-Encoding: chunked\r\n\r\n", [b"1\r\n", b" \r\n"]),
    "dripped headers, then a dripped body": Way(POST + b"X: ", SLOW_HEADERS),
    "a request and a byte of the next": Way(HEALTH + b"G"),
    "an upgrade": Way(GET % b"health" + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    "requests whose answers it does not read": Way((GET % b"static/serve.js" + b"\r\n") * 3000),
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
        with contextlib.suppress(BlockingIOError):
            connection.send(first)
        yield connection


class Holder:
    """A client that holds a connection."""

    def __init__(self, connection: socket.socket, way: Way) -> None:
        self.connection = connection
        self.port = connection.getsockname()[1]
        self.drip = cycle(way.drip)

    def send(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.send(next(self.drip))

    def read_to_the_end(self) -> None:
        self.connection.settimeout(PATIENCE_S)
        with contextlib.suppress(ConnectionError):
            while self.connection.recv(65_536):
                pass


@pytest.mark.parametrize("is_half_closed", [False, True])
@pytest.mark.parametrize("is_later", [False, True])
def test_every_way_to_hold_a_connection_ends(translator: Translator, is_later: bool, is_half_closed: bool) -> None:
    with served(translator, limits=LIMITS) as client, contextlib.ExitStack() as stack:
        held: dict[str, Holder] = {}
        for name, way in WAYS.items():
            connection = stack.enter_context(connected(client, way.first, is_later=is_later))
            held[name] = Holder(connection, way)
            if is_half_closed:
                connection.shutdown(socket.SHUT_WR)
        # Drip until the server has closed all connections.
        waiting = dict(held)
        deadline = time.monotonic() + CLOSED_WITHIN_S
        while waiting and time.monotonic() < deadline:
            time.sleep(TICK_S)
            open_ports = {connection.client[1] for connection in list(client.connections)}
            waiting = {name: holder for name, holder in waiting.items() if holder.port in open_ports}
            for holder in held.values():
                holder.send()
        assert not waiting, "never closed"
        assert client.get("/health").status == 200
        # The clients see the end, too.
        for holder in held.values():
            holder.read_to_the_end()


def test_two_hundred_held_connections_delay_nobody(translator: Translator) -> None:
    limits = Limits(n_connections=MAX_CONNECTIONS if SOAK else 40)
    with served(translator, limits=limits) as client, contextlib.ExitStack() as stack:
        ways = cycle(product(WAYS.values(), (False, True)))
        for way, is_later in islice(ways, 200):
            stack.enter_context(connected(client, way.first, is_later=is_later))
        assert least_seconds(lambda: client.post("/translate", GOOD)) < ANSWERED_WITHIN_S
        assert least_seconds(lambda: client.get("/health")) < ANSWERED_WITHIN_S
        assert len(client.connections) <= limits.n_connections + 1  # the last one has just been accepted or closed


def least_seconds(request: Callable[[], Answer]) -> float:
    """How long a request takes: the least of three times, because other programs run beside."""
    seconds = []
    for _ in range(3):
        started = time.monotonic()
        assert request().status == 200
        seconds.append(time.monotonic() - started)
    return min(seconds)


def test_requests_in_work_keep_their_connections(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    start = translator.start

    def wait(*args: Any) -> Any:
        assert released.wait(PATIENCE_S)
        return start(*args)

    def n_in_work() -> int:
        return sum(connection.is_answered for connection in list(client.connections))

    monkeypatch.setattr(translator, "start", wait)
    with served(translator, limits=Limits(n_connections=16)) as client, ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(client.post, "/translate", GOOD) for _ in range(12)]
        wait_until(lambda: n_in_work() == 12)
        with contextlib.ExitStack() as stack:
            for _ in range(50):
                stack.enter_context(connected(client, b"G"))
            assert client.get("/health").status == 200
        released.set()
        assert {answer.result().status for answer in answers} == {200}


BIG = 4_000_000  # bytes of an answer
STALL_S = 1.0


@pytest.fixture
def slow() -> Iterator[socket.socket]:
    """A connection on which a big answer comes, with a small buffer."""

    async def big(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(BIG)})

    guard = Guard(big, Limits(stall_s=STALL_S), (), lambda *_: None)
    with running(guard) as client, connected(client, HEALTH, buffer=16_384) as connection:
        connection.settimeout(PATIENCE_S)
        yield connection


def test_an_answer_is_sent_for_as_long_as_the_client_reads(slow: socket.socket) -> None:
    n_read = 0
    slow_until = time.monotonic() + 2 * STALL_S
    while n_read < BIG:
        n_read += len(slow.recv(65_536))
        if time.monotonic() < slow_until:
            time.sleep(0.03)  # a few times as fast as the server needs


def test_an_answer_ends_if_the_client_does_not_read(slow: socket.socket) -> None:
    n_read = len(slow.recv(1000))
    # The server gives up; a part of the answer is still in the buffers.
    time.sleep(2 * STALL_S + TICK_S)
    with contextlib.suppress(ConnectionError):
        while part := slow.recv(65_536):
            n_read += len(part)
    assert n_read < BIG


@pytest.mark.parametrize(("n_files", "n_connections"), [(128, 64), (10**6, MAX_CONNECTIONS)])
def test_connections_leave_files_for_others(monkeypatch: pytest.MonkeyPatch, n_files: int, n_connections: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (n_files, n_files))
    assert max_connections() == n_connections


def test_an_answers_body_does_not_wait_for_the_acknowledgment_of_its_headers() -> None:
    with bind("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
