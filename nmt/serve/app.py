"""The web application and its server: routes, pages, errors as JSON, uvicorn."""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Sequence
from importlib.resources import files
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from nmt import __version__
from nmt.decode.translator import Translator
from nmt.errors import InputError, NmtError
from nmt.serve import schema
from nmt.serve.api import Api
from nmt.serve.batcher import QueueFullError
from nmt.serve.guard import Guard, Limits

log = logging.getLogger("nmt")

RETRY_AFTER_S = 1
IDLE_S = 20.0  # seconds until a connection without a request is closed
PAGES = {"/": "index.html", "/docs": "docs.html"}
ASSETS = {  # file -> package whose folder `pages` contains it
    **dict.fromkeys(("serve.css", "serve.js", "docs.js"), "nmt.serve"),
    **dict.fromkeys(("base.css", "figures.js", "search_tree.js"), "nmt.insight"),
}
MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": schema.ErrorAnswer}, "5XX": {"model": schema.ErrorAnswer}}


def create_app(
    translators: Sequence[Translator],
    limits: Limits | None = None,
    *,
    hosts: Collection[str] = (),
    keys: Collection[str] = (),
) -> Guard:
    """Create the ASGI application.

    Args:
        translators: at most one for each pair of languages.
        limits: limits of a request.
        hosts: host names that the server accepts, besides localhost and IP addresses.
        keys: valid API keys; if empty, requests need no key.
    """
    limits = limits or Limits()
    api = Api(translators, limits, keys)
    # docs_url=None: FastAPI's documentation page loads its scripts from a CDN.
    app = FastAPI(title="nmt", version=__version__, docs_url=None, redoc_url=None, responses=ERRORS)
    app.get("/health")(api.health)
    app.get("/languages")(api.languages)
    app.post("/translate", response_model=schema.LibreAnswer, response_model_exclude_none=True)(api.libre_translate)
    app.get("/v1/models")(api.list_models)
    app.post("/v1/translate", response_model=schema.TranslateAnswer)(api.translate)
    app.post("/v1/explain", response_model=None)(api.explain)
    app.post("/explain", response_model=None, include_in_schema=False)(api.explain_page)

    @app.get("/metrics", response_model=None)
    async def metrics() -> Response:
        """Counts and times for Prometheus."""
        return Response(generate_latest(api.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    for path, name in PAGES.items():
        app.get(path, response_model=None, include_in_schema=False)(asset(name, "nmt.serve"))
    for name, package in ASSETS.items():
        app.get(f"/static/{name}", response_model=None, include_in_schema=False)(asset(name, package))
    add_error_handlers(app)

    known = {route.path for route in app.routes if hasattr(route, "path")}

    def observe(path: str, status: int, seconds: float) -> None:
        label = path if path in known else "other"  # Prometheus keeps one time series per label value
        api.metrics.seconds.labels(label, str(status)).observe(seconds)

    return Guard(app, limits, hosts, observe)


def asset(name: str, package: str) -> Any:
    """Return a handler that answers with a file from a package's folder `pages`."""
    content = files(f"{package}.pages").joinpath(name).read_bytes()
    media_type = MEDIA_TYPES[name.rpartition(".")[2]]

    async def handler() -> Response:
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return handler


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error as LibreTranslate does, {"error": message}."""

    @app.exception_handler(HTTPException)
    async def of_http(_: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def of_body(_: Request, error: RequestValidationError) -> Response:
        fault = error.errors()[0]
        name = ".".join(str(part) for part in fault["loc"] if isinstance(part, str) and part != "body")
        message = f"{name}: {fault['msg']}" if name else fault["msg"]
        return JSONResponse({"error": message.encode(errors="replace").decode()}, 400)

    @app.exception_handler(QueueFullError)
    async def of_full_queue(_: Request, error: QueueFullError) -> Response:
        return JSONResponse({"error": str(error)}, 429, {"Retry-After": str(RETRY_AFTER_S)})

    @app.exception_handler(NmtError)
    async def of_nmt(_: Request, error: NmtError) -> Response:
        return JSONResponse({"error": str(error)}, 400 if isinstance(error, InputError) else 503)

    @app.exception_handler(Exception)
    async def of_bug(_: Request, __: Exception) -> Response:
        return JSONResponse({"error": "the server failed; its log says why"}, 500)


class IdleClosingProtocol(H11Protocol):
    """uvicorn's HTTP protocol with a timeout for connections that send no first request; uvicorn has none for them."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(IDLE_S, self.close_if_idle)

    def close_if_idle(self) -> None:
        if self.cycle is None:
            self.transport.close()


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises InputError if the address cannot be used."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InputError(f"cannot listen on {host} port {port}: {error.strerror}", hint="use another --port") from error


class Server(uvicorn.Server):
    """uvicorn's server. It calls `on_start` when it is ready, and reads requests that have arrived before it stops."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self.on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn would close connections whose request is still in the socket's buffer. Accepting a connection and
        # reading its request take several turns of the event loop.
        for _ in range(10):
            await asyncio.sleep(0.01)
        await super().shutdown(sockets)


def new_server(app: Guard, on_start: Callable[[], None] = lambda: None) -> Server:
    """Create a server; on SIGTERM or Ctrl-C, it answers the requests that it has received and stops.

    Args:
        app: the application.
        on_start: called when the server accepts connections and handles signals.
    """
    config = uvicorn.Config(
        app,
        http=IdleClosingProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(IDLE_S),
        timeout_graceful_shutdown=int(app.limits.answer_s) + 5,
    )
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    return Server(config, on_start)
