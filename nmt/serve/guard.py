"""ASGI middleware that refuses hostile requests and adds security headers.

It reads the whole body of a request before it calls the application.
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
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
# At most `MAX_FILES` requests to `FILE_PATH` are processed at a time, because their bodies are large.
FILE_PATH, MAX_FILES = "/translate_file", 8
MAX_CONNECTIONS = 1024  # upper bound of the result of `max_connections`
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, our page would send Origin: null and be refused
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def max_connections() -> int:
    """Return half the number of files that this process may open, at most `MAX_CONNECTIONS`."""
    try:
        import resource
    except ImportError:  # Windows has no such module
        return MAX_CONNECTIONS
    n_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MAX_CONNECTIONS, n_files // 2)


@dataclass(frozen=True)
class Limits:
    """The limits of requests and connections."""

    n_file_bytes: int = 10_000_000  # maximum size of a body with a file
    n_characters: int = 5_000  # maximum number of characters in all texts of a request
    n_lines: int = 64  # maximum number of lines in all texts of a request
    n_waiting: int = 256  # maximum number of requests that wait for a model
    stall_s: float = 15.0  # maximum seconds to wait for headers, or for the client to read a part of an answer
    read_s: float = 10.0  # maximum seconds to receive the body of a request
    answer_s: float = 30.0  # maximum seconds to answer a request without a file
    n_connections: int = field(default_factory=max_connections)  # maximum number of open connections

    @property
    def n_bytes(self) -> int:
        """The maximum size of a body without a file. JSON may write a character in 12 bytes."""
        return 13 * self.n_characters + 536

    @property
    def n_text_bytes(self) -> int:
        """The maximum size of the text in a file, with its markup."""
        return self.n_file_bytes // 20


class Guard:
    """ASGI middleware that refuses invalid requests and passes all others to the app.

    Status codes of refused requests:
        400: the form is malformed.
        403: a page of another origin sent the request.
        408: the body took too long to arrive.
        413: the body is too large.
        421: the host is unknown.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, hosts: Collection[str], on_answer: Callable[[str, int, float], None]
    ) -> None:
        """Create the middleware.

        Args:
            app: the application that gets the valid requests.
            hosts: accepted Host names, besides localhost and IP addresses.
            on_answer: called after each request with its path, status code and duration in seconds.
        """
        self.app = app
        self.limits = limits
        self.hosts = {"localhost", *map(str.lower, hosts)}
        self.on_answer = on_answer
        self.files = asyncio.Semaphore(MAX_FILES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Clients send //translate if they are told an address that ends with a slash. HEAD is answered as GET, and
        # uvicorn leaves out the body.
        path = "/" + scope["path"].lstrip("/")
        scope = {**scope, "path": path, "method": scope["method"].replace("HEAD", "GET")}
        async with self.files if path == FILE_PATH else contextlib.nullcontext():
            await self._handle(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, pass it to the app, and add the security headers to the answer."""
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
            await self._answer(scope, receive, send_with_headers, body)
        except ClientDisconnect:
            pass
        except HTTPException as error:
            # A part of the body may be unread, so this connection cannot take another request.
            response = JSONResponse({"error": error.detail}, error.status_code, {"Connection": "close"})
            if not status:
                await response(scope, receive, send_with_headers)
        finally:  # also if the app raises an error
            self.on_answer(scope["path"], status, time.monotonic() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        """Call the app. If the client disconnects, cancel the call. Raises HTTPException 503 if the server stops."""
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        # The body has been read, so the next message says that the client has disconnected.
        gone = asyncio.ensure_future(receive())

        async def replay() -> Message:
            return messages.pop() if messages else await asyncio.shield(gone)

        answer = asyncio.ensure_future(self.app(scope, replay, send))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                await answer
        except asyncio.CancelledError:  # the server no longer waits for this answer
            raise HTTPException(503, "the server stops") from None
        finally:
            answer.cancel()
            gone.cancel()

    async def _checked_body(self, scope: Scope, receive: Receive) -> bytes:
        """Check a request and return its body. Fields of a query string and a form are returned as JSON."""
        headers = Headers(scope=scope)
        # 1. Check the headers.
        self._check_headers(scope, headers)
        is_file = scope["path"] == FILE_PATH
        # 2. Check the announced size, then read the body and check its real size.
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
        # 3. Convert fields, because the app reads only JSON and uploaded files.
        content_type = headers.get("content-type", "")
        media_type = content_type.partition(";")[0].strip().lower()
        if is_file or media_type.endswith("json"):
            return bytes(body)
        converted = await fields_as_json(scope, media_type, bytes(body))
        MutableHeaders(scope=scope)["content-type"] = "application/json"
        return converted

    def _check_headers(self, scope: Scope, headers: Headers) -> None:
        """Raise HTTPException if the host or the origin is wrong."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise HTTPException(421, f"this server does not answer for the host {host!r:.80}")
        # These requests change nothing, and browsers hide their answers from pages of other origins.
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return
        ours = (f"http://{host}", f"https://{host}")
        if headers.get("origin", ours[0]) not in ours:
            raise HTTPException(403, "pages of other origins may not send requests")

    def _is_ours(self, host: str) -> bool:
        """Return whether the Host header is an allowed name or an IP address.

        Every IP address is safe, because a DNS rebinding attack needs a name.
        """
        with contextlib.suppress(ValueError):
            name = urlsplit(f"//{host}").hostname or ""
            return name in self.hosts or bool(ipaddress.ip_address(name))
        return False


async def fields_as_json(scope: Scope, media_type: str, body: bytes) -> bytes:
    """Return the fields of a query string and a form as JSON. Of several values of a field, the first counts.

    Some clients send characters in UTF-8 as they are, without escapes.

    Raises HTTPException 400 if the fields are malformed.
    """

    async def replay() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    encoded = scope["query_string"]
    if media_type == FORM:
        encoded += b"&" + body
    try:
        fields = parse_qsl(encoded.decode(), keep_blank_values=True, errors="strict")
        if media_type == MULTIPART:
            async with Request(scope, replay).form() as form:
                texts = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
            fields += texts  # without files
    except (ValueError, MultiPartException) as error:
        raise HTTPException(400, "the fields are not a form in UTF-8") from error
    return json.dumps(dict(reversed(fields))).encode()
