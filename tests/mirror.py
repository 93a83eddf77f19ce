"""A local HTTP server for tests of downloads."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from conftest import PATIENCE_S

from nmt.corpus.download import mirrored


class Mirror:
    """The server's files, its faults, and the requests that it has received."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.files: dict[str, bytes] = {}  # content by path
        self.n_sent: int | None = None  # number of body bytes after which the connection ends
        self.pause: threading.Event | None = None  # that responses wait for after half of their body
        self.requests: list[str] = []  # paths

    def add(self, url: str, content: bytes) -> None:  # of a URL of the catalog
        self.files[mirrored(url, self.url).removeprefix(self.url)] = content


class Handler(BaseHTTPRequestHandler):
    mirror: Mirror

    def do_GET(self) -> None:
        mirror = self.mirror
        mirror.requests.append(self.path)
        content = mirror.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = len(content) // 2 if mirror.pause else 0
        with contextlib.suppress(ConnectionError):
            self.wfile.write(content[:half])
            if mirror.pause:
                mirror.pause.wait(PATIENCE_S)
            self.wfile.write(content[half : mirror.n_sent])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
        pass


@contextlib.contextmanager
def serving() -> Iterator[Mirror]:
    """A server on a free port of this machine, until the block ends."""
    handler = type("MirrorHandler", (Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        mirror = handler.mirror = Mirror(server.server_address[1])  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield mirror
        finally:
            if mirror.pause:
                mirror.pause.set()
            server.shutdown()
            thread.join()
