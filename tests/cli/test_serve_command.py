"""`nmt serve` as a process: address, keys, signals, and errors at the start."""

import http.client
import json
import signal
import socket
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S, SOURCE, TARGET, FiveRun, one_clear_error, run_nmt, started_nmt

HEADERS = {"Content-Type": "application/json"}


def test_it_serves_and_answers_what_it_has_before_it_ends(five_run: FiveRun, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\n\nsecond\n")
    command = ["serve", "-m", five_run.run, "--port", "0", "--device", "cpu", "--api-keys", keys]
    with started_nmt(*command, cwd=tmp_path) as process:
        assert process.stderr is not None
        ready = next(line for line in process.stderr if line.startswith(b"serving on http://"))
        host, _, port = ready.decode().split("//")[1].strip().rpartition(":")
        assert host == "127.0.0.1"
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
        body = {"q": SOURCE[:1] * 64, "source": "zh", "target": "en", "api_key": "second"}
        connection.request("POST", "/translate", json.dumps(body), HEADERS)
        time.sleep(0.05)  # the server has accepted the request or will: in both cases it must answer
        process.send_signal(signal.SIGTERM)
        answer = connection.getresponse()
        assert answer.status == 200
        assert json.load(answer)["translatedText"] == TARGET[:1] * 64
        connection.close()
        assert process.wait(PATIENCE_S) == 143
        assert process.stdout is not None
        assert process.stdout.read() == b""


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
