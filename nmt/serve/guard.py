"""Middleware between the network and the API: it refuses hostile requests and adds security headers.

It reads the whole body of a request, within a time limit, before a handler is called.
"""

import asyncio
import contextlib
import ipaddress
import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
FORM_PATHS = {"/translate", "/detect", "/explain"}  # for LibreTranslate's clients; for the form of our page
FILE_PATH, MAX_FILES = "/translate_file", 8  # requests at once; further ones wait, because their bodies are large
MAX_FIELDS = 32  # of a form
MAX_CONNECTIONS = 1024
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, forms of our own page would send Origin: null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def max_connections() -> int:
    """Return half of the files that this process may open, at most `MAX_CONNECTIONS`."""
    try:
        import resource
    except ImportError:  # Windows
        return MAX_CONNECTIONS
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if limit == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, limit // 2)


@dataclass(frozen=True)
class Limits:
    """The limits of a request, and of connections."""

    n_bytes: int = 65_536  # of a body, and of the text of a file
    n_file_bytes: int = 10_000_000  # of a body with a file
    n_characters: int = 5_000  # of all texts of a request
    n_lines: int = 64
    n_waiting: int = 256  # requests that wait for a model
    stall_s: float = 15.0  # to receive the headers of a request; for the client to read a part of an answer
    read_s: float = 10.0  # to receive the body
    answer_s: float = 30.0  # to answer
    n_connections: int = field(default_factory=max_connections)


class Guard:
    """ASGI middleware: refuses invalid requests itself; passes others to the app, with the body already read.

    Status of refused requests: 400 malformed form, 403 from a page of another origin, 408 too slow, 413 too large,
    415 wrong media type, 421 unknown host.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, hosts: Collection[str], on_answer: Callable[[str, int, float], None]
    ) -> None:
        """`hosts` are valid Host names besides localhost. `on_answer` is called with path, status and seconds taken."""
        self.app = app
        self.limits = limits
        self.hosts = {"localhost", *map(str.lower, hosts)}
        self.on_answer = on_answer
        self.files = asyncio.Semaphore(MAX_FILES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.files if scope["path"] == FILE_PATH else contextlib.nullcontext():
            await self._handle(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, let the app answer it, and add the security headers to each answer."""
        started, status = time.monotonic(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            body = await self._checked_body(scope, receive)
        except ClientDisconnect:
            pass
        except HTTPException as error:
            # The rest of the body is not read, so no other request can follow on this connection.
            response = JSONResponse({"error": error.detail}, error.status_code, {"Connection": "close"})
            await response(scope, receive, send_with_headers)
        else:
            try:
                await self._answer(scope, receive, send_with_headers, body)
            except asyncio.CancelledError:  # the server stops, and has waited long enough
                if not status:
                    response = JSONResponse({"error": "the server stops"}, 503, {"Connection": "close"})
                    await response(scope, receive, send_with_headers)
        finally:  # the app raises an error again after it has answered with status 500
            self.on_answer(scope["path"], status, time.monotonic() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        """Call the app; cancel the call if the client disconnects."""
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        gone = asyncio.ensure_future(receive())

        async def replay() -> Message:
            return messages.pop() if messages else await asyncio.shield(gone)

        # The body is there; the next message can only be that the client has left.
        answer = asyncio.ensure_future(self.app(scope, replay, send))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                await answer
        finally:
            answer.cancel()
            gone.cancel()

    async def _checked_body(self, scope: Scope, receive: Receive) -> bytes:
        """Check a request and return its body; that of a form as JSON, except with a file."""
        headers = MutableHeaders(scope=scope)
        # 1. The headers.
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_file = scope["path"] == FILE_PATH
        self._check_headers(scope, headers, MULTIPART if is_file else JSON, media_type)
        # 2. The size, as announced and as it arrives.
        max_bytes = self.limits.n_file_bytes if is_file else self.limits.n_bytes
        too_large = HTTPException(413, f"a request may have {max_bytes:,} bytes")
        if int(headers.get("content-length", 0)) > max_bytes:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.read_s):
                async for part in Request(scope, receive).stream():
                    body += part
                    if len(body) > max_bytes:
                        raise too_large
        except TimeoutError:
            raise HTTPException(408, f"the request did not arrive within {self.limits.read_s:g} s") from None
        # 3. The app reads only JSON, and files.
        if media_type != FORM:
            return bytes(body)
        headers["content-type"] = JSON
        return form_as_json(body)

    def _check_headers(self, scope: Scope, headers: Headers, wanted: str, media_type: str) -> None:
        """Raise HTTPException for an unknown host, a page of another origin or another media type than is wanted."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise HTTPException(421, f"this server does not answer for the host {host!r:.80}")
        # These methods change nothing, and browsers do not show their answers to other pages.
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return
        ours = (f"http://{host}", f"https://{host}")
        if headers.get("origin", ours[0]) not in ours:
            raise HTTPException(403, "pages of other origins may not send requests")
        is_form = media_type == FORM and scope["path"] in FORM_PATHS
        is_encoded = headers.get("content-encoding", "identity") != "identity"
        if is_encoded or not (is_form or media_type == wanted):
            raise HTTPException(415, f"send the request as {wanted}, without Content-Encoding")

    def _is_ours(self, host: str) -> bool:
        """Return whether the Host header is an allowed name or any IP address; DNS rebinding attacks need a name."""
        with contextlib.suppress(ValueError):
            name = urlsplit(f"//{host}").hostname or ""
            return name in self.hosts or bool(ipaddress.ip_address(name))
        return False


def form_as_json(body: bytes | bytearray) -> bytes:
    """Convert a form with URL-encoded fields. Raises HTTPException 400 if it is malformed."""
    try:
        text = body.decode("ascii")
        fields = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise HTTPException(400, "the body is not a form in UTF-8") from error
    return json.dumps(dict(fields)).encode()
