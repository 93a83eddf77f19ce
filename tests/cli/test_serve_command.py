"""`nmt serve`: errors at the start; tests/reliability/test_clients.py has what it answers, and its end."""

import logging
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import FiveRun, out_lines, refused, run_in

from nmt.cli.serve import run_server
from nmt.serve.guard import Guard, Limits
from nmt.serve.models import Reloader


def test_a_file_without_keys_is_refused(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n")
    refused(tmp_path, f"serve -m {five_run.run} --api-keys keys", "keys has no keys")


def test_two_models_of_the_same_languages_are_refused(five_home: Path) -> None:
    refused(five_home, "serve -m runs/five -m runs/five", "two models translate zh to en")


def test_a_port_that_is_in_use_is_refused(five_home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(five_home, f"serve --port {port}", f"cannot listen on 127.0.0.1 port {port}: Address already in use")


def test_messages_that_quote_texts_are_not_logged(five_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.cli.serve.run_server", lambda *_: logging.getLogger("nmt.texts").warning("a text"))
    done = run_in(five_home, "serve")
    assert done.returncode == 0
    assert b"a text" not in done.stderr


def test_limits_can_be_raised(five_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[Limits] = []

    def run_server(app: Guard, *_: object) -> None:
        limits.append(app.limits)

    monkeypatch.setattr("nmt.cli.serve.run_server", run_server)
    out_lines(run_in(five_home, "serve --max-chars 70000 --max-texts 900 --max-upload 40"))
    (raised,) = limits
    result = (raised.n_characters, raised.n_lines, raised.n_file_bytes)
    assert result == (70_000, 900, 40_000_000)
    assert raised.n_bytes > 12 * 70_000, "of a text that is all escapes of JSON"
    assert raised.n_text_bytes == 2_000_000


def test_a_server_that_is_told_to_stop_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimpleNamespace(should_exit=False, run=lambda **_: None)
    monkeypatch.setattr("nmt.serve.server.new_server", lambda *_, **__: server)
    api = SimpleNamespace()
    reloader: Any = SimpleNamespace(api=api)
    app: Any = None
    run_server(app, "127.0.0.1", 0, reloader)
    assert not api.is_stopping()
    server.should_exit = True
    assert api.is_stopping()


def test_every_model_has_the_memory(five_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.csv").write_text("zh;en\n茶;tea\n", encoding="utf-8")
    monkeypatch.setattr("nmt.cli.serve.run_server", lambda *arguments: reloaders.append(arguments[-1]))
    reloaders: list[Reloader] = []
    out_lines(run_in(five_home, f"serve --memory {tmp_path}/memory.csv"))
    (model,) = reloaders[0].api.served.models
    assert model.translator.translate(["茶"]) == ["tea"]


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.cli.serve.PACKAGES", ("no_such_package",))
    stderr = refused(tmp_path, "serve", "nmt serve needs no_such_package")
    assert "pip install 'nmt-trainer[serve]'" in stderr
