"""`nmt serve`: errors at the start; tests/reliability/test_clients.py has what it answers, and its end."""

import socket
from pathlib import Path

import pytest
from conftest import FiveRun, one_clear_error, run_nmt


def test_what_is_wrong_is_said_at_the_start(five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, serve = tmp_path / "keys", ["serve", "-m", five_run.run]
    keys.write_text("\n")
    one_clear_error(run_nmt(*serve, "--api-keys", keys), 2, f"{keys} has no keys")
    one_clear_error(run_nmt("serve", "-m", tmp_path / "none"), 2, "no model at")
    one_clear_error(run_nmt(*serve, "-m", five_run.run), 2, "two models translate zh to en")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        reason = f"cannot listen on 127.0.0.1 port {port}: Address already in use"
        one_clear_error(run_nmt(*serve, "--port", port), 2, reason)
    monkeypatch.setattr("nmt.cli.serve.PACKAGES", ("no_such_package",))
    stderr = one_clear_error(run_nmt("serve"), 2, "nmt serve needs no_such_package")
    assert "pip install 'nmt-trainer[serve]'" in stderr
