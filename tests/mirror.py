"""A local HTTP server for tests of downloads, with the faults of real servers."""

import contextlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from conftest import PATIENCE_S


class Mirror:
    """The server's files, its faults, and the requests that it has received.

    Attributes:
        files: content by path; `add` adds the file of a catalog URL.
        cuts: for each of the next responses, the number of body bytes that are sent; later responses are complete.
        statuses: for each of the next requests, an error status to send instead of the file.
        has_ranges: whether a Range header has an effect.
        has_length: whether responses have a Content-Length.
        range_shift: number of bytes by which the next response to a Range header starts too late.
        pause: event that responses wait for after half of their body; None for no wait.
        requests: path and Range header of each request, in order.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.statuses: list[int] = []
        self.has_ranges = self.has_length = True
        self.range_shift = 0
        self.pause: threading.Event | None = None
        self.requests: list[tuple[str, str | None]] = []

    def add(self, url: str, content: bytes) -> None:
        """Serve `content` at `mirrored(url, self.url)`."""
        parts = urlsplit(url)
        self.files[f"/{parts.netloc}{parts.path}"] = content


class Handler(BaseHTTPRequestHandler):
    mirror: Mirror

    def do_GET(self) -> None:
        mirror, wanted = self.mirror, self.headers["Range"]
        mirror.requests.append((self.path, wanted))
        if mirror.statuses:
            self.send_error(mirror.statuses.pop(0))
            return
        content = mirror.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = 0
        if wanted and mirror.has_ranges:
            found = re.fullmatch(r"bytes=(\d+)-", wanted)
            assert found
            start = int(found[1])
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            start, mirror.range_shift = start + mirror.range_shift, 0
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        body = content[start:]
        if mirror.has_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: mirror.cuts.pop(0)] if mirror.cuts else body
        half = len(body) // 2 if mirror.pause else len(body)
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body[:half])
            if mirror.pause:
                mirror.pause.wait(PATIENCE_S)
            self.wfile.write(body[half:])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
        pass


@contextlib.contextmanager
def serving() -> Iterator[Mirror]:
    """A server on a free port of this machine, until the block ends."""
    handler = type("MirrorHandler", (Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        handler.mirror = Mirror(server.server_address[1])  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield handler.mirror  # type: ignore[attr-defined]
        finally:
            if handler.mirror.pause:  # type: ignore[attr-defined]
                handler.mirror.pause.set()  # type: ignore[attr-defined]
            server.shutdown()
            thread.join()
