"""The HTTP server: uvicorn, with more time limits and a maximum number of connections.

A connection is closed if its client takes too long to send the headers of a request or to read an answer. If there are
too many connections, the one that has waited longest for its client is closed. There is no limit per address, because
all clients behind a proxy share one address.
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

BACKLOG = 2048  # maximum number of connections that wait to be accepted
ACCEPTED_AT_ONCE = 8  # maximum number of connections that asyncio accepts in one turn of the event loop
PROGRESS_BYTES = 65_536  # a client must read this many bytes of an answer within `Limits.stall_s` seconds


class Connection(H11Protocol):
    """uvicorn's HTTP protocol, with time limits from the guard's `limits`."""

    config: Any
    connections: Any  # set[Connection]: the connections of all clients

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.limits: Limits = self.config.app.limits
        # The current phase of the connection, see `check_time`, and the time when it began.
        self.phase: tuple[Any, bool, int] = (None, True, 0)
        self.since = self.loop.time()
        if len(self.connections) > self.limits.n_connections:
            # Close the connection that has waited longest for its client. The new connection is one of these.
            waiting = [connection for connection in self.connections if not connection.is_answered]
            min(waiting, key=lambda connection: connection.since).abort()

    @property
    def is_answered(self) -> bool:
        """Return whether the server has to act next. Otherwise, it waits for the client."""
        is_due = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        return is_due and not self.transport.get_write_buffer_size()

    def check_time(self) -> None:
        """Close the connection if its client does nothing for too long. The server calls this ten times per second."""
        # A phase ends when a request or its answer ends, or when the client has read `PROGRESS_BYTES` of the answer.
        is_idle = self.cycle is None or self.cycle.response_complete
        n_unread = math.ceil(self.transport.get_write_buffer_size() / PROGRESS_BYTES)
        phase = (self.cycle, is_idle, n_unread)
        if phase != self.phase:
            self.phase, self.since = phase, self.loop.time()
        elif (is_idle or n_unread) and self.loop.time() - self.since > self.limits.stall_s:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once, and drop the data that the client has not read."""
        self.connections.discard(self)
        self.transport.abort()


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises InputError if the address cannot be used."""
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, TypeError, UnicodeError) as error:  # TypeError, UnicodeError: the name is too long or not UTF-8
        reason = getattr(error, "strerror", "it is no name of a host")
        raise InputError(f"cannot listen on {host} port {port}: {reason}", hint="use another --port") from error
    # Connections inherit both options from this socket. Without TCP_NODELAY, the body of an answer would wait some
    # 40 ms until the client acknowledges the headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Linux accepts new data only when a third of the send buffer is free. With a large buffer, a slow client would seem
    # to stall.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PROGRESS_BYTES)
    return listening


class Server(uvicorn.Server):
    """uvicorn's server with two changes.

    It calls `on_start` when it is ready. Before it stops, it reads the requests that have arrived.
    """

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self.on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(BACKLOG)  # asyncio has set the backlog to `ACCEPTED_AT_ONCE`
        self.on_start()

    async def on_tick(self, counter: int) -> bool:
        for connection in list(self.server_state.connections):
            connection.check_time()  # type: ignore[union-attr]
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn would close connections without reading requests that have arrived. Reading them takes several turns
        # of the event loop.
        for _ in range(10):
            await asyncio.sleep(0.01)
        await super().shutdown(sockets)


def new_server(app: Guard, on_start: Callable[[], None]) -> Server:
    """Create a server. On SIGTERM or Ctrl-C, it answers the requests that have arrived, then stops.

    `on_start` is called when the server accepts connections and handles signals.
    """
    limits = app.limits
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
        timeout_graceful_shutdown=int(limits.answer_s) + 5,
    )
    for library in ("uvicorn", "python_multipart"):  # clients could fill the log with warnings of these libraries
        logging.getLogger(library).setLevel(logging.ERROR)
    return Server(config, on_start)
