"""Models that are loaded anew while the server answers; with NMT_SOAK=1 fifty times."""

import asyncio
import contextlib
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import NMT, NO_PROCESS, PATIENCE_S, SOURCE, TARGET, FiveRun, environment, soak, wait_until
from models import Parts
from served import JSON, Client, events_of, running

from nmt.cli.serve import read_keys
from nmt.decode.engines.ctranslate2_engine import CTranslate2Engine
from nmt.errors import InputError, NmtError
from nmt.files import atomic_write, hash_file
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.serve import models
from nmt.serve.api import Api
from nmt.serve.app import create_app
from nmt.serve.guard import Limits
from nmt.serve.models import Reloader, load_model
from nmt.translate.translator import load

N_RELOADS = soak(3, 50)
MAX_GROWTH_MB = 60  # of the memory after the first third of the reloads; 50 models that stay take 100 MB and more
PAIR = {"source": "zh", "target": "en"}


def with_step(model: bytes, step: int, path: Path) -> bytes:
    """The same model file, at another step of its training."""
    path.write_bytes(model)
    parts = Parts.of(path)
    parts.header["progress"]["step"] = step
    return parts.joined()


@pytest.fixture
def run(five_run: FiveRun, tmp_path: Path) -> Path:
    """A copy of the run, whose model a test may replace."""
    return five_run.copy_run(tmp_path / "run")


class Live:
    """A server in this process whose models and keys are loaded again."""

    def __init__(self, *runs: Path, keys: Path | None = None) -> None:
        self.api = Api([self.load(one) for one in runs], Limits(), read_keys(keys) if keys else ())
        self.reloader = Reloader(self.api, runs, self.load, (lambda: read_keys(keys)) if keys else None)

    def load(self, path: Path) -> models.LoadedModel:
        return load_model(path, lambda copy: load(copy, "cpu").directions())

    @contextlib.contextmanager
    def served(self) -> Iterator[Client]:
        loops: list[asyncio.AbstractEventLoop] = []
        with running(create_app(self.api), lambda: loops.append(asyncio.get_running_loop())) as client:
            wait_until(lambda: loops)
            self.loop = loops[0]
            yield client

    def reload(self) -> None:
        """Load everything again, and wait until that has ended."""
        self.loop.call_soon_threadsafe(self.reloader.reload)
        ended = asyncio.run_coroutine_threadsafe(self.ended(), self.loop)
        ended.result(PATIENCE_S)

    async def ended(self) -> None:
        assert self.reloader.task
        await self.reloader.task


def step_of(client: Client) -> Any:
    (model,) = client.get("/health").json["models"]
    return model["step"]


def everything_works(client: Client) -> None:
    """The translation, a stream and an explanation are those of the five pairs."""
    body = {"q": SOURCE[0], **PAIR}
    assert client.post("/translate", body).json == {"translatedText": TARGET[0]}
    kind, last = events_of(client.post("/v1/translate", {**body, "stream": True}))[-1]
    assert (kind, last["translations"][0]["hypotheses"][0]["text"]) == ("done", TARGET[0])
    assert client.post("/v1/explain", body).json["hypotheses"][0]["text"] == TARGET[0]


@pytest.mark.parametrize("content", [None, b"damaged"], ids=["removed", "written in place"])
def test_what_was_loaded_stays_complete_whatever_happens_to_its_file(run: Path, content: bytes | None) -> None:
    live = Live(run)
    with live.served() as client:
        file = run / "model.safetensors"
        file.unlink() if content is None else file.write_bytes(content)
        everything_works(client)


def test_health_names_the_model(run: Path) -> None:
    live = Live(run)
    with live.served() as client:
        health = client.get("/health").json
    assert health["status"] == "ok"
    (model,) = health["models"]
    assert model["sha256"] == hash_file(run / "model.safetensors")
    translator = load(run, "cpu")
    assert (model["source"], model["target"], model["run"]) == ("zh", "en", translator.config.run)
    assert model["step"] == translator.progress["step"]


def test_another_model_takes_the_place_of_the_old_one(run: Path, tmp_path: Path) -> None:
    live = Live(run)
    file = run / "model.safetensors"
    with live.served() as client:
        new = with_step(file.read_bytes(), 777, tmp_path / "new")
        atomic_write(file, new)
        assert step_of(client) != 777
        live.reload()
        assert step_of(client) == 777
        everything_works(client)


def test_an_export_is_loaded_again(run: Path, tmp_path: Path) -> None:
    export = tmp_path / "export"
    to_ctranslate2(load(run, "cpu"), export)
    live = Live(export)
    with live.served() as client:
        live.reload()
        (model,) = client.get("/health").json["models"]
        assert (model["sha256"], model["step"]) == (hash_file(export / "model.bin"), None)
        assert client.post("/translate", {"q": SOURCE[0], **PAIR}).json == {"translatedText": TARGET[0]}


def test_a_model_that_cannot_be_loaded_is_one_line_in_the_log(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    live = Live(run)
    file = run / "model.safetensors"
    with live.served() as client:
        step = step_of(client)
        file.write_bytes(file.read_bytes()[:-100])
        live.reload()
        (record,) = caplog.records
        assert record.getMessage() == f"{file}: not a model file, or damaged; the model that was loaded before stays"
        assert (record.levelname, record.exc_info) == ("ERROR", None)
        assert step_of(client) == step
        everything_works(client)


def test_a_failure_that_is_no_error_of_ours_is_one_line_too(
    run: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Live(run)
    with live.served() as client:
        monkeypatch.setattr(live.reloader, "load", lambda _: 1 // 0)
        live.reload()
        (record,) = caplog.records
        assert record.getMessage().startswith(f"cannot load {run}: ZeroDivisionError")
        everything_works(client)


def test_a_model_for_languages_that_another_translates_is_refused(
    run: Path, arabic_run: FiveRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arabic = arabic_run.copy_run(tmp_path / "arabic")
    live = Live(run, arabic)
    with live.served() as client:
        shutil.copy(run / "model.safetensors", arabic / "model.safetensors")
        live.reload()
        assert [model["target"] for model in client.get("/health").json["models"]] == ["en", "ar"]
    assert caplog.messages == ["two models translate zh to en; the model that was loaded before stays"]


def test_a_request_in_work_ends_on_the_old_model_which_is_then_freed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Live(run)
    copies = set(Path(tempfile.gettempdir()).glob("nmt-serve.tmp.*"))
    engine = weakref.ref(live.api.served.loaded[0].translators[0].engine)
    searching, released = threading.Event(), threading.Event()
    search = CTranslate2Engine.start

    def held(*args: Any, **options: Any) -> Any:
        searching.set()
        assert released.wait(PATIENCE_S)
        return search(*args, **options)

    monkeypatch.setattr(CTranslate2Engine, "start", held)
    with live.served() as client, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.post, "/translate", {"q": SOURCE[0], **PAIR})
        assert searching.wait(PATIENCE_S)
        live.reload()
        assert live.api.served.loaded[0].translators[0].engine is not engine()
        released.set()
        assert answer.result().json == {"translatedText": TARGET[0]}
        wait_until(lambda: gc.collect() >= 0 and engine() is None)
        assert len(copies - set(Path(tempfile.gettempdir()).glob("nmt-serve.tmp.*"))) == 1, "the copy of the old file"


def test_copies_of_killed_servers_are_removed(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for process in (NO_PROCESS, os.getpid()):
        (tmp_path / f"nmt-serve.tmp.a.tmp.{process}").mkdir()
    live = Live(run)
    copy, kept = sorted(
        tmp_path.glob("nmt-serve.tmp.*"), key=lambda folder: folder.name == f"nmt-serve.tmp.a.tmp.{os.getpid()}"
    )
    assert [file.name for file in copy.iterdir()] == ["model.safetensors"]
    assert kept.exists()
    assert live.api.served.models


def test_a_file_is_watched(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, live = run / "model.safetensors", Live(run)
    new = with_step(file.read_bytes(), 777, tmp_path / "new")
    with pytest.MonkeyPatch.context() as patch, live.served() as client:
        patch.setattr(models, "LOOK_S", 0.02)
        watching = asyncio.run_coroutine_threadsafe(live.reloader.watch(), live.loop)
        file.write_bytes(new[: len(new) // 2])  # a copy has begun
        time.sleep(0.5)
        everything_works(client)
        assert not caplog.records
        file.write_bytes(new)
        wait_until(lambda: step_of(client) == 777)
        patch.setattr(models, "WHOLE_WITHIN_S", 0.1)
        file.write_bytes(b"damaged")
        wait_until(lambda: caplog.records)
        time.sleep(0.3)
        assert len(caplog.records) == 1, "once, not at every look"
        everything_works(client)
        watching.cancel()


def test_keys_are_read_again(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = tmp_path / "keys"
    keys.write_text("old\nkept\n")
    live = Live(run, keys=keys)

    def status(key: str) -> int:
        return client.post("/v1/translate", {"q": SOURCE[0], "api_key": key}).status

    with live.served() as client:
        assert [status(key) for key in ("old", "kept", "new")] == [200, 200, 403]
        keys.write_text("kept\nnew\n")
        live.reload()
        assert [status(key) for key in ("old", "kept", "new")] == [403, 200, 200]
        for content, problem in (("# none\n", "has no keys"), (None, "cannot read")):
            keys.unlink() if content is None else keys.write_text(content)
            caplog.clear()
            live.reload()
            (message,) = caplog.messages
            assert problem in message
            assert message.endswith("; the keys stay as they were")
            assert [status(key) for key in ("old", "kept", "new")] == [403, 200, 200]


# --- the real command -------------------------------------------------------------------------------------


class Command:
    """A running `nmt serve`."""

    def __init__(self, log: Path, *words: object) -> None:
        self.log = log
        with log.open("w") as stderr:
            command = [*NMT, "serve", "--port", "0", *map(str, words)]
            self.process = subprocess.Popen(command, stderr=stderr, env=environment())
        wait_until(lambda: "serving on" in self.said() or self.process.poll() is not None)
        (port,) = re.findall(r"serving on http://127.0.0.1:(\d+)", self.said())
        self.client = Client(int(port))

    def said(self) -> str:
        return self.log.read_text()

    def memory_mb(self) -> float:
        (kilobytes,) = re.findall(r"\nPss:\s+(\d+)", Path(f"/proc/{self.process.pid}/smaps_rollup").read_text())
        return int(kilobytes) / 1024


@contextlib.contextmanager
def command(tmp_path: Path, *words: object) -> Iterator[Command]:
    server = Command(tmp_path / "log", *words)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def test_no_request_fails_during_reloads(run: Path, tmp_path: Path) -> None:
    file, stop, failed = run / "model.safetensors", threading.Event(), list[str]()
    original = file.read_bytes()
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/translate", {"q": SOURCE[0], **PAIR}),
        ("/v1/translate", {"q": SOURCE[1], "stream": True}),
        ("/v1/explain", {"q": SOURCE[2]}),
    ]
    n_answers = [0] * len(bodies)
    with command(tmp_path, "-m", run) as server:

        def ask(kind: int) -> None:
            path, body = bodies[kind]
            with contextlib.closing(server.client.connect()) as connection:  # keep-alive
                while not stop.is_set():
                    connection.request("POST", path, json.dumps(body), JSON)
                    answer = connection.getresponse()
                    text = answer.read().decode()
                    n_answers[kind] += 1
                    if answer.status != 200 or "event: error" in text or TARGET[kind].split()[-2] not in text:
                        failed.append(f"{path}: {answer.status} {text:.200}")

        clients = [threading.Thread(target=ask, args=(kind,)) for kind in range(len(bodies))]
        for client in clients:
            client.start()
        wait_until(lambda: all(n_answers))
        memory: list[float] = []
        for step in range(1, N_RELOADS + 1):
            new = with_step(original, step, tmp_path / "new")
            atomic_write(file, new) if step % 2 else file.write_bytes(new)
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: step_of(server.client) == step)  # noqa: B023 - called at once
            n_before = n_answers[:]
            wait_until(lambda: all(now > then for now, then in zip(n_answers, n_before, strict=True)))  # noqa: B023
            memory.append(server.memory_mb())
        stop.set()
        for client in clients:
            client.join(PATIENCE_S)
        assert failed == []
        assert max(memory) - max(memory[: len(memory) // 3]) < MAX_GROWTH_MB
        server.process.terminate()
        assert server.process.wait(PATIENCE_S) == 143
    assert "error" not in server.said()


def test_a_server_whose_terminal_is_closed_ends(run: Path, tmp_path: Path) -> None:
    """The shell's children get SIGHUP then; without a terminal it is the signal to reload."""
    pty = pytest.importorskip("pty")
    log = tmp_path / "log"
    process, terminal = pty.fork()
    if not process:  # in the child, which has a terminal of its own
        words = [*NMT, "serve", "-m", str(run), "--port", "0"]
        with log.open("w") as stderr:
            os.dup2(stderr.fileno(), 2)
        os.execv(words[0], words)
    wait_until(lambda: log.exists() and "serving on" in log.read_text())
    os.close(terminal)
    ended: Callable[[], bool] = lambda: os.waitpid(process, os.WNOHANG) != (0, 0)  # noqa: E731
    wait_until(ended)


def test_without_sighup_nothing_is_reloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    from nmt.cli import serve

    monkeypatch.delattr(signal, "SIGHUP")  # as on Windows
    serve.ignore_hangups()
    serve.reload_on_hangup(None, None, None)  # type: ignore[arg-type]


# --- keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ("# our clients\nk1\n", ["k1"]),
        ("k1\n\n  \t\nk2", ["k1", "k2"]),
        ("  k1\t\r\nk2\r\n", ["k1", "k2"]),
        ("\ufeffk1\n", ["k1"]),
        ("\ufeff# first\nk1", ["k1"]),
        ("\t # not at the beginning\nk1", ["k1"]),
        ("k1 # of the web page\nk2\t#\n", ["k1", "k2"]),
        ("k#1\n", ["k#1"]),
    ],
)
def test_comments_and_blank_lines_are_no_keys(tmp_path: Path, content: str, keys: list[str]) -> None:
    (tmp_path / "keys").write_bytes(content.encode())
    assert read_keys(tmp_path / "keys") == keys


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "has no keys"),
        (b"\xef\xbb\xbf# a\n\n#b", "has no keys"),
        (b"k1\nk\xe9\n", "is not UTF-8 in line 2"),
    ],
)
def test_a_file_without_valid_keys_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(InputError, match=problem):
        read_keys(tmp_path / "keys")
    with pytest.raises(NmtError, match="cannot read"):
        read_keys(tmp_path / "none")
