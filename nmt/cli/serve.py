"""`nmt serve`."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options, streams
from nmt.errors import InputError
from nmt.text.lines import iter_lines

PACKAGES = ("fastapi", "langcodes", "language_data", "markdown_it", "prometheus_client", "python_multipart", "uvicorn")
Models = Annotated[
    list[Path] | None, typer.Option("--model", "-m", help=f"{options.MODEL_HELP} Several: one per pair of languages.")
]
Hosts = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A name that clients call this server by, besides localhost.")
]


def serve(
    model: Models = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 is any free one.")] = 5000,
    allow_host: Hosts = None,
    api_keys: Annotated[
        Path | None, typer.Option(help="File of API keys, one a line; clients need one of them, also for /metrics.")
    ] = None,
    glossary: options.GlossaryFile = None,
    max_waiting: Annotated[int, typer.Option(min=1, help="Waiting requests; further ones get status 429.")] = 256,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
) -> None:
    """Serve a page to translate on, and LibreTranslate's HTTP API.

    Needs the extra: pip install 'nmt-trainer[serve]'. /docs lists the API.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise InputError(f"nmt serve needs {', '.join(missing)}", hint="pip install 'nmt-trainer[serve]'")
    keys = read_keys(api_keys) if api_keys else []
    named: Sequence[Path | None] = model or [None]
    loaded = [options.load_translator(one, device, precision, engine, languages=None)[1] for one in named]
    translators = [direction for one in loaded for direction in one.directions()]
    for one in translators:
        one.options = one.with_options(glossary=options.terms_of(glossary, one, engine))
    from nmt.serve.app import create_app
    from nmt.serve.guard import Limits
    from nmt.serve.server import bind, new_server

    app = create_app(translators, Limits(n_waiting=max_waiting), hosts=allow_host or (), keys=keys)
    with bind(host, port) as listening:
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{listening.getsockname()[1]}"
        new_server(app, on_start=lambda: streams.log.info("serving on %s", url)).run(sockets=[listening])


def read_keys(path: Path) -> list[str]:
    """Return the keys of a file, one a line. Raises InputError if there are none."""
    keys = [line.strip() for line in iter_lines([path]) if line.strip()]
    if not keys:
        raise InputError(f"{path} has no keys", hint="write one key per line, or leave out --api-keys")
    return keys
