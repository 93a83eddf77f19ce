"""The command `nmt serve`."""

import gc
import os
import re
import signal
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli import options
from nmt.cli.streams import log
from nmt.errors import InputError, os_errors_as
from nmt.files import read_capped

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from nmt.serve.guard import Guard
    from nmt.serve.models import Reloader
    from nmt.serve.server import Server
    from nmt.translate.translator import Translator

PACKAGES = (
    "fastapi",
    "language_data",
    "markdown_it",
    "mdit_py_plugins",
    "prometheus_client",
    "python_multipart",
    "uvicorn",
)
MAX_KEYS_BYTES = 10_000_000
COMMENT = re.compile(r"(?:^|\s)#.*")


def serve(
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", "-m", help=f"{options.MODEL_HELP} Several: one per pair of languages."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 is any free one.")] = 5000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name that clients call this server by, besides localhost."),
    ] = None,
    api_keys: Annotated[
        Path | None, typer.Option(help="File of API keys, one a line; clients need one of them, also for /metrics.")
    ] = None,
    max_chars: Annotated[int, typer.Option(min=1, help="Characters of a request.")] = 5000,
    max_texts: Annotated[int, typer.Option(min=1, help="Texts of a request; each line is one.")] = 64,
    max_upload: Annotated[int, typer.Option(min=1, help="Megabytes of a document; a twentieth may be text.")] = 10,
    glossary: options.GlossaryFile = None,
    memory: options.MemoryFiles = None,
    precision: options.PrecisionName = None,
    engine: options.Engine = None,
    device: options.Device = "auto",
) -> None:
    """Serve a page to translate on, and LibreTranslate's HTTP API.

    Needs the extra: pip install 'nmt-trainer[serve]'. /docs lists the API. On SIGHUP, it loads its models, keys,
    glossary and memories anew, while it answers.
    """
    # 1. Check everything that needs no model.
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise InputError(f"nmt serve needs {', '.join(missing)}", hint="pip install 'nmt-trainer[serve]'")
    keys = read_keys(api_keys) if api_keys else []
    # 2. Load the models.
    paths = options.model_paths(model)
    from nmt.serve.api import Api
    from nmt.serve.app import create_app
    from nmt.serve.guard import Limits
    from nmt.serve.models import Reloader, load_model
    from nmt.translate.loading import load

    def load_directions(path: Path) -> list["Translator"]:
        directions = load(path, device, precision, engine).directions()
        for translator in directions:
            translator.translate(["a"])  # the first search takes longer, and fails if the model is damaged
            # The glossary and the memory apply to every direction.
            terms = options.terms_of(glossary, translator, engine)
            indexes = options.indexes_of(memory, translator)
            translator.options = translator.with_options(glossary=terms, memory=indexes)
        return directions

    load_one = partial(load_model, load=load_directions)
    ignore_hangups()
    log.getChild("texts").disabled = True  # the logger of messages that quote texts, here those of clients
    limits = Limits(n_characters=max_chars, n_lines=max_texts, n_file_bytes=1_000_000 * max_upload)
    api = Api(list(map(load_one, paths)), limits, keys)
    gc.freeze()  # the garbage collector then skips the many objects of torch, which saves time
    # 3. Answer requests.
    reloader = Reloader(api, paths, load_one, partial(read_keys, api_keys) if api_keys else None)
    run_server(create_app(api, allow_host or ()), host, port, reloader)


def run_server(app: "Guard", host: str, port: int, reloader: "Reloader") -> None:
    """Answer requests until SIGTERM or Ctrl-C."""
    import asyncio  # imported here, because it would slow down the start of the other commands

    from nmt.serve.server import bind, new_server

    with bind(host, port) as listening:
        # In a URL, an IPv6 address is written in brackets.
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{listening.getsockname()[1]}"

        def start() -> None:
            reload_on_hangup(asyncio.get_running_loop(), server, reloader)
            log.info("serving on %s", url)

        server = new_server(app, on_start=start)
        reloader.api.is_stopping = lambda: server.should_exit
        server.run(sockets=[listening])


def ignore_hangups() -> None:
    """Ignore SIGHUP until the server can reload. Do nothing on Windows, which has no SIGHUP."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def reload_on_hangup(loop: "AbstractEventLoop", server: "Server", reloader: "Reloader") -> None:
    """Reload models, keys, glossary and memory on SIGHUP. If the terminal was closed, stop instead."""
    if not hasattr(signal, "SIGHUP"):
        return
    # A service never has a terminal, so SIGHUP always means reload.
    had_terminal = has_terminal()

    def on_hangup() -> None:
        if had_terminal and not has_terminal():
            server.should_exit = True
        else:
            reloader.reload()

    loop.add_signal_handler(signal.SIGHUP, on_hangup)


def has_terminal() -> bool:
    """Return whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def read_keys(path: Path) -> list[str]:
    """Return the keys in a file with one key per line.

    A comment begins with `#`, at the beginning of a line or after white space.

    Raises InputError if the file has no key or cannot be read.
    """
    with os_errors_as(InputError, f"read {path}", hint="check the path, and that you may read it"):
        # 1. Read the file.
        content = read_capped(path, MAX_KEYS_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The message does not contain the line, because keys are secret.
        n_before = content.count(b"\n", 0, error.start)
        raise InputError(f"{path} is not UTF-8 in line {n_before + 1}", hint="save it as UTF-8") from error
    # 2. Drop comments and blank lines.
    lines = [COMMENT.sub("", line).strip() for line in text.split("\n")]
    keys = [line for line in lines if line]
    if not keys:
        raise InputError(f"{path} has no keys", hint="write one key per line, or leave out --api-keys")
    return keys
