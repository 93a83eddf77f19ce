"""A static server for the page of an export to the browser, with a strict Content-Security-Policy."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'"
ENGINE = "node_modules/@browsermt/bergamot-translator/worker/translator-worker.js"


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[str]:
    """Serve a directory on a free port of this machine until the block ends. Yields the URL."""

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(directory / path.lstrip("/"))

        def end_headers(self) -> None:
            self.send_header("Content-Security-Policy", POLICY)
            super().end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
