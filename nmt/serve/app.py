"""The web application: endpoints, pages and error handlers."""

import mimetypes
from collections.abc import Collection
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from nmt import __version__
from nmt.errors import InputError, NmtError
from nmt.serve import schema
from nmt.serve.api import Api
from nmt.serve.batcher import QueueFullError
from nmt.serve.documents import Documents
from nmt.serve.guard import FILE_PATH, Guard
from nmt.serve.libre import LibreTranslate
from nmt.serve.v1 import V1

PAGES = Path(__file__).parent / "pages"
# Messages that replace those of pydantic, which speak of types of Python. The keys are pydantic's types of errors.
PROBLEMS = {
    "value_error": "must be a file",  # text was sent in place of a file; no other field raises it
    "dict_type": "must be an object",
    "too_long": "is too long",
    "too_short": "is empty",
}


def create_app(api: Api, hosts: Collection[str] = ()) -> Guard:
    """Create the ASGI application of an API.

    `hosts` are additional Host names. localhost and IP addresses are always accepted.
    """
    # Disable FastAPI's documentation pages, because they load scripts from a CDN.
    app = FastAPI(title="nmt", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    # 1. Endpoints and pages.
    add_endpoints(app, api)
    add_pages(app)
    add_error_handlers(app)

    # 2. Metrics. Prometheus keeps one time series per label value, so all unknown paths share the label "other".
    known = {route.path for route in app.routes if hasattr(route, "path")}

    def observe(path: str, status: int, seconds: float) -> None:
        label = path if path in known else "other"
        api.metrics.seconds.labels(label, str(status)).observe(seconds)

    # 3. The guard, which checks every request first.
    return Guard(app, api.limits, hosts, observe)


def add_endpoints(app: FastAPI, api: Api) -> None:
    """Add the endpoints of the API."""
    # LibreTranslate's endpoints.
    libre = LibreTranslate(api)
    app.get("/health")(libre.health)
    app.get("/languages")(libre.languages)
    app.post("/detect")(libre.detect)
    app.post("/suggest", response_model=None)(libre.suggest)
    app.post("/translate", response_model=schema.LibreAnswer, response_model_exclude_none=True)(libre.libre_translate)
    documents = Documents(api)
    app.post(FILE_PATH)(documents.translate_file)
    app.get("/download_file/{name}", response_class=Response)(documents.download_file)
    app.get("/frontend/settings")(documents.settings)
    # nmt's own endpoints.
    v1 = V1(api)
    app.get("/v1/models")(v1.list_models)
    app.post("/v1/translate", response_model=schema.TranslateAnswer)(v1.translate)
    app.post("/v1/explain", response_model=None)(v1.explain)
    app.post("/explain", response_model=None, include_in_schema=False)(v1.explain_page)

    # For operators.
    @app.get("/ready")
    async def ready() -> dict[str, str]:
        """Whether the server takes requests. With status 503, it stops, or too many requests wait."""
        if api.is_stopping() or api.served.n_waiting() >= api.limits.n_waiting:
            raise HTTPException(503, "the server stops, or too many requests wait")
        return {"status": "ready"}

    @app.get("/metrics", response_model=None)
    async def metrics(request: Request) -> Response:
        """Counts and times for Prometheus. If the server has API keys, send one as Authorization: Bearer KEY."""
        api.check_key(request, "")
        return Response(generate_latest(api.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def add_pages(app: FastAPI) -> None:
    """Add the pages, and the scripts and styles that they load."""
    # The registry of Windows may give scripts another type, and browsers would not run them.
    mimetypes.add_type("text/javascript", ".js")
    app.mount("/static", StaticFiles(packages=[("nmt.serve", "pages"), ("nmt.insight", "pages")]))

    @app.get("/", include_in_schema=False)
    async def index() -> FileResponse:
        return FileResponse(PAGES / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(PAGES / "docs.html")


def add_error_handlers(app: FastAPI) -> None:
    """Add handlers that answer errors in LibreTranslate's format, {"error": message}."""

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        fault = error.errors()[0]
        # A location is a tuple such as ("body", "q", "list[str]", 0). The message names only the field, such as "q".
        _, *location = fault["loc"]
        if not location or not isinstance(location[0], str):
            return JSONResponse({"error": "the body must be a JSON object"}, 400)
        problem = PROBLEMS.get(fault["type"], fault["msg"])
        return JSONResponse({"error": schema.without_surrogates(f"{location[0]}: {problem}")}, 400)

    @app.exception_handler(NmtError)
    async def unable(_: Request, error: NmtError) -> Response:
        if isinstance(error, QueueFullError):
            return JSONResponse({"error": str(error)}, 429, {"Retry-After": "1"})
        status = 400 if isinstance(error, InputError) else 503
        return JSONResponse({"error": str(error)}, status)

    @app.exception_handler(Exception)
    async def failed(_: Request, __: Exception) -> Response:
        return JSONResponse({"error": "the server failed; its log says why"}, 500)
