"""The HTTP server: uvicorn with time limits for clients and a limit of connections, which uvicorn lacks.

uvicorn's only time limit is for silence after an answer; one byte ends it. Here a connection is closed if its client
takes too long to send the headers of a request or to read an answer; `Guard` limits the time for bodies. A connection
beyond the limit is accepted, and another one that waits for its client is closed. No address has a limit of its own,
because a proxy is one address for many clients.
"""

import asyncio
import logging
import math
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from nmt.errors import InputError
from nmt.serve.guard import Guard, Limits

BACKLOG = 2048  # connections that wait to be accepted
ACCEPTED_AT_ONCE = 8  # connections
PROGRESS_BYTES = 65_536  # of an answer; a client that reads as much within `Limits.stall_s` may go on


class Connection(H11Protocol):
    """uvicorn's HTTP protocol, with the limits of `Guard`."""

    config: Any
    connections: Any  # set[Connection], of all clients

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.limits: Limits = self.config.app.limits
        # What the connection does, and since when: see `check_time`.
        self.phase: tuple[Any, bool, int] = (None, True, 0)
        self.since = self.loop.time()
        if len(self.connections) > self.limits.n_connections:
            # Close the one that has waited longest for its client; this one waits, at least.
            waiting = [connection for connection in self.connections if not connection.is_answered]
            longest = min(waiting, key=lambda connection: connection.since)
            longest.abort()

    @property
    def is_answered(self) -> bool:
        """Return whether the server owes the client an answer, or its rest, and the client has read what was sent."""
        is_due = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        return is_due and not self.transport.get_write_buffer_size()

    def check_time(self) -> None:
        """Close the connection if its client does nothing for too long. Called several times per second."""
        # A phase ends when a request begins or ends, or when the client has read a part of the answer.
        is_idle = self.cycle is None or self.cycle.response_complete
        n_unread = math.ceil(self.transport.get_write_buffer_size() / PROGRESS_BYTES)
        phase = (self.cycle, is_idle, n_unread)
        if phase != self.phase:
            self.phase, self.since = phase, self.loop.time()
        elif (is_idle or n_unread) and self.loop.time() - self.since > self.limits.stall_s:
            self.abort()

    def abort(self) -> None:
        """Close the connection without waiting for the client to read what was sent."""
        self.connections.discard(self)
        self.transport.abort()


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises InputError if the address cannot be used."""
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, TypeError, UnicodeError) as error:  # TypeError, UnicodeError: the name is too long or not UTF-8
        reason = getattr(error, "strerror", "it is no name of a host")
        raise InputError(f"cannot listen on {host} port {port}: {reason}", hint="use another --port") from error
    # Connections inherit both options. asyncio does not set TCP_NODELAY for sockets of `create_server`: the body of an
    # answer, sent after its headers, would wait some 40 ms for the client's delayed acknowledgment.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Linux takes new data when a third of the buffer is free: with its largest buffer, a slow client seems to stall.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PROGRESS_BYTES)
    return listening


class Server(uvicorn.Server):
    """uvicorn's server. It calls `on_start` when it is ready, and reads requests that have arrived before it stops."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self.on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(BACKLOG)  # asyncio has one argument for this and for what it accepts at once
        self.on_start()

    async def on_tick(self, counter: int) -> bool:
        for connection in list(self.server_state.connections):
            connection.check_time()  # type: ignore[union-attr]
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn would close connections whose request is still in the socket's buffer. Accepting a connection and
        # reading its request take several turns of the event loop.
        for _ in range(10):
            await asyncio.sleep(0.01)
        await super().shutdown(sockets)


def new_server(app: Guard, on_start: Callable[[], None] = lambda: None) -> Server:
    """Create a server; on SIGTERM or Ctrl-C, it answers the requests that it has received and stops.

    `on_start` is called when it accepts connections and handles signals.
    """
    limits = app.limits
    answer_s = int(limits.answer_s)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=math.ceil(limits.stall_s),
        timeout_graceful_shutdown=answer_s + 5,
    )
    for library in ("uvicorn", "python_multipart"):  # the latter warns of bytes that a client sends
        logging.getLogger(library).setLevel(logging.ERROR)
    return Server(config, on_start)
