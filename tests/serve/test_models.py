"""Models that are loaded anew while the server answers; with NMT_SOAK=1 fifty times."""

import asyncio
import contextlib
import gc
import json
import os
import shutil
import signal
import tempfile
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import NMT, NO_PROCESS, PATIENCE_S, SOURCE, TARGET, FiveRun, soak, wait_until
from models import Parts, small_translator, write_run
from reliability.runs import running as started
from reliability.served import Server
from served import JSON, PAIR, Client, running

from nmt.cli.serve import ignore_hangups, read_keys, reload_on_hangup
from nmt.decode.engines.ctranslate2_engine import CTranslate2Engine
from nmt.errors import InputError
from nmt.files import atomic_write, hash_file
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.serve.api import Api
from nmt.serve.app import create_app
from nmt.serve.guard import Limits
from nmt.serve.models import LoadedModel, Reloader, load_model
from nmt.translate.loading import load
from nmt.translate.translator import Translator

N_RELOADS = soak(3, 50)
MAX_GROWTH_MB = 60  # of the memory after the first third of the reloads; 50 models that stay take 100 MB and more


def load_cpu(path: Path) -> LoadedModel:
    return load_model(path, lambda copy: load(copy, "cpu").directions())


class Live:
    """A server in this process whose models and keys are loaded again."""

    def __init__(self, client: Client, api: Api, reloader: Reloader) -> None:
        self.client = client
        self.api = api
        self.reloader = reloader
        assert client.loop
        self.loop = client.loop

    def reload(self) -> None:
        """Load everything again, and wait until that has ended."""

        async def reload() -> None:
            self.reloader.reload()
            assert self.reloader.task
            await self.reloader.task

        asyncio.run_coroutine_threadsafe(reload(), self.loop).result(PATIENCE_S)

    def translator(self) -> Translator:
        return self.api.served.models[0].translator

    def check(self) -> None:
        """The translation, a stream and an explanation are those of the five pairs."""
        result = self.client.text(SOURCE[0])
        assert result == TARGET[0]
        result = best_text(self.client.stream(SOURCE[0])[-1].data["translations"][0])
        assert result == TARGET[0]
        result = best_text(self.client.explain(SOURCE[0]).json)
        assert result == TARGET[0]


def step_of(client: Client) -> Any:
    (model,) = client.get("/health").json["models"]
    return model["step"]


def best_text(answer: Any) -> Any:
    return answer["hypotheses"][0]["text"]


@contextlib.contextmanager
def serving(*paths: Path, keys: Path | None = None) -> Iterator[Live]:
    read = partial(read_keys, keys) if keys else None
    api = Api(list(map(load_cpu, paths)), Limits(), read() if read else ())
    reloader = Reloader(api, paths, load_cpu, read)
    with running(create_app(api)) as client:
        yield Live(client, api, reloader)


@pytest.fixture
def run(five_run: FiveRun, tmp_path: Path) -> Path:
    """A copy of the run, whose model a test may replace."""
    return five_run.copy_run(tmp_path / "run")


@pytest.fixture
def file(run: Path) -> Path:
    return run / "model.safetensors"


@pytest.fixture
def live(run: Path) -> Iterator[Live]:
    with serving(run) as live:
        yield live


def with_step(model: bytes, step: int, path: Path) -> bytes:
    """The same model file, at another step of its training; `path` is for a temporary file."""
    path.write_bytes(model)
    parts = Parts.of(path)
    parts.header["progress"]["step"] = step
    return parts.joined()


def copies() -> set[Path]:
    """The private copies of model files of all servers."""
    return set(Path(tempfile.gettempdir()).glob("nmt-serve.tmp.*"))


def test_a_loaded_model_stays_complete_if_its_file_is_removed(live: Live, file: Path) -> None:
    file.unlink()
    live.check()


def test_health_names_the_model(live: Live, file: Path) -> None:
    health = live.client.get("/health").json
    translator = live.translator()
    step, name = translator.progress["step"], translator.config.run
    model = {"source": "zh", "target": "en", "sha256": hash_file(file), "run": name, "step": step}
    assert health == {"status": "ok", "models": [model]}


def test_another_model_takes_the_place_of_the_old_one(live: Live, file: Path, tmp_path: Path) -> None:
    atomic_write(file, with_step(file.read_bytes(), 777, tmp_path / "new"))
    assert step_of(live.client) != 777
    live.reload()
    assert step_of(live.client) == 777
    live.check()


def test_an_export_is_loaded_again(translator: Translator, tmp_path: Path) -> None:
    to_ctranslate2(translator, tmp_path / "export")
    with serving(tmp_path / "export") as live:
        live.reload()
        (model,) = live.client.get("/health").json["models"]
        assert model["sha256"] == hash_file(tmp_path / "export" / "model.bin")
        assert model["step"] is None
        assert live.client.text(SOURCE[0]) == TARGET[0]


def test_a_model_that_cannot_be_loaded_is_one_line_in_the_log(
    live: Live, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    step = step_of(live.client)
    file.write_bytes(file.read_bytes()[:-100])
    live.reload()
    (record,) = caplog.records
    assert record.getMessage() == f"{file}: not a model file, or damaged; the model that was loaded before stays"
    assert (record.levelname, record.exc_info) == ("ERROR", None)
    assert step_of(live.client) == step
    live.check()


def test_an_error_of_a_library_is_one_line_too(
    live: Live, run: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live.reloader, "load", lambda _: 1 // 0)
    live.reload()
    (message,) = caplog.messages
    assert message.startswith(f"cannot load {run}: ZeroDivisionError")
    live.check()


def test_a_model_for_languages_that_another_translates_is_refused(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arabic = tmp_path / "arabic"
    write_run(small_translator(source_lang="zh", target_lang="ar"), arabic)
    with serving(run, arabic) as live:
        shutil.copy(run / "model.safetensors", arabic / "model.safetensors")
        live.reload()
        models = live.client.get("/health").json["models"]
    result = [model["target"] for model in models]
    assert result == ["en", "ar"]
    assert caplog.messages == ["two models translate zh to en; the model that was loaded before stays"]


def test_a_request_in_work_ends_on_the_old_model_which_is_then_freed(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copies()
    engine = weakref.ref(live.translator().engine)
    searching, released = threading.Event(), threading.Event()
    search = CTranslate2Engine.start

    def held(*args: Any, **options: Any) -> Any:
        searching.set()
        assert released.wait(PATIENCE_S)
        return search(*args, **options)

    monkeypatch.setattr(CTranslate2Engine, "start", held)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(live.client.text, SOURCE[0])
        assert searching.wait(PATIENCE_S)
        live.reload()
        assert live.translator().engine is not engine()
        released.set()
        assert answer.result() == TARGET[0]
    wait_until(lambda: gc.collect() >= 0 and engine() is None)
    assert len(before - copies()) == 1, "the copy of the old file"


def test_copies_of_killed_servers_are_removed(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = tmp_path / f"nmt-serve.tmp.a.tmp.{NO_PROCESS}"
    running = tmp_path / f"nmt-serve.tmp.a.tmp.{os.getpid()}"
    killed.mkdir()
    running.mkdir()
    loaded = load_cpu(run)
    (copy,) = copies() - {running}
    assert copy != killed
    result = [file.name for file in copy.iterdir()]
    assert result == ["model.safetensors"]
    assert loaded.translators


# --- keys -------------------------------------------------------------------------------------------------


class WithKeys(NamedTuple):
    live: Live
    file: Path  # of the keys

    def statuses(self, *keys: str) -> list[int]:
        return [self.live.client.v1("a", api_key=key).status for key in keys]


@pytest.fixture
def with_keys(run: Path, tmp_path: Path) -> Iterator[WithKeys]:
    """A server with the keys `old` and `kept`."""
    file = tmp_path / "keys"
    file.write_text("old\nkept\n")
    with serving(run, keys=file) as live:
        yield WithKeys(live, file)


def test_keys_are_read_again(with_keys: WithKeys) -> None:
    result = with_keys.statuses("old", "kept", "new")
    assert result == [200, 200, 403]
    with_keys.file.write_text("kept\nnew\n")
    with_keys.live.reload()
    result = with_keys.statuses("old", "kept", "new")
    assert result == [403, 200, 200]


def test_without_valid_keys_the_old_ones_stay(with_keys: WithKeys, caplog: pytest.LogCaptureFixture) -> None:
    with_keys.file.write_text("# none\n")
    with_keys.live.reload()
    with_keys.file.unlink()
    with_keys.live.reload()
    no_keys, no_file = caplog.messages
    assert no_keys == f"{with_keys.file} has no keys; the keys stay as they were"
    assert no_file.startswith("cannot read")
    assert no_file.endswith("; the keys stay as they were")
    result = with_keys.statuses("old", "kept", "new")
    assert result == [200, 200, 403]


KEYS = [  # the content of a file, and its keys
    ("# our clients\nk1\n", ["k1"]),
    ("k1\n\n  \t\nk2", ["k1", "k2"]),
    ("  k1\t\r\nk2\r\n", ["k1", "k2"]),
    ("\ufeff# first\nk1", ["k1"]),
    ("k1 # of the web page\nk2\t#\n", ["k1", "k2"]),
    ("k#1\n", ["k#1"]),
]


@pytest.mark.parametrize(("content", "keys"), KEYS)
def test_comments_and_blank_lines_are_no_keys(tmp_path: Path, content: str, keys: list[str]) -> None:
    (tmp_path / "keys").write_bytes(content.encode())
    assert read_keys(tmp_path / "keys") == keys


NO_KEYS = [(b"", "has no keys"), (b"\xef\xbb\xbf# a\n\n#b", "has no keys"), (b"k1\nk\xe9\n", "is not UTF-8 in line 2")]


@pytest.mark.parametrize(("content", "problem"), NO_KEYS)
def test_a_file_without_valid_keys_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(InputError, match=problem):
        read_keys(tmp_path / "keys")


# --- the real command -------------------------------------------------------------------------------------


@pytest.fixture
def server(run: Path, tmp_path: Path) -> Iterator[Server]:
    with started(tmp_path / "log", "serve", "--port", 0, "-m", run) as command:
        server = Server(command.process, command.log)
        wait_until(lambda: server.has_ended or "serving on" in server.messages)
        yield server


@dataclass
class Asking:
    """A client that sends the same request again and again, on one connection, until it is stopped."""

    path: str
    body: dict[str, Any]
    word: str  # of the answer
    n_answers: int = 0

    def run(self, client: Client, stopped: threading.Event) -> None:
        with contextlib.closing(client.connect()) as connection:
            while not stopped.wait(0.02):
                connection.request("POST", self.path, json.dumps(self.body), JSON)
                answer = connection.getresponse()
                text = answer.read().decode()
                self.n_answers += 1
                assert answer.status == 200, text
                assert "event: error" not in text
                assert self.word in text


REQUESTS: list[tuple[str, dict[str, Any], str]] = [  # path, body, a word of the answer
    ("/translate", {"q": SOURCE[0], **PAIR}, "yesterday"),
    ("/v1/translate", {"q": SOURCE[1], "stream": True}, "school"),
    ("/v1/explain", {"q": SOURCE[2]}, "today"),
]


def wait_for_answers(asking: list[Asking]) -> None:
    """Wait until each client has got another answer."""
    for client in asking:
        n_before = client.n_answers
        wait_until(lambda: client.n_answers > n_before)  # noqa: B023 - called at once


def test_no_request_fails_during_reloads(server: Server, file: Path, tmp_path: Path) -> None:
    client = Client(server.port)
    original = file.read_bytes()
    stopped = threading.Event()
    memory_mb: list[int] = []
    asking = [Asking(*request) for request in REQUESTS]
    with ThreadPoolExecutor() as pool:
        # 1. Three clients ask.
        ended = [pool.submit(one.run, client, stopped) for one in asking]
        wait_for_answers(asking)
        # 2. The model is replaced again and again.
        for step in range(1, N_RELOADS + 1):
            new = with_step(original, step, tmp_path / "new")
            # By a rename, or in place.
            if step % 2:
                atomic_write(file, new)
            else:
                file.write_bytes(new)
            server.send(signal.SIGHUP)
            wait_until(lambda: step_of(client) == step)  # noqa: B023 - called at once
            wait_for_answers(asking)
            memory_mb.append(server.usage().memory_mb)
        stopped.set()
    # 3. No request has failed, no memory was lost, and the server has nothing to complain of.
    for one in ended:
        one.result()  # raises what a client has raised
    first_third = memory_mb[: len(memory_mb) // 3]
    outcome = max(memory_mb) - max(first_third)
    assert outcome < MAX_GROWTH_MB
    server.send(signal.SIGTERM)
    assert server.end() == 143
    assert "error" not in server.messages


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
    wait_until(lambda: os.waitpid(process, os.WNOHANG) != (0, 0))


def test_without_sighup_nothing_is_reloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGHUP")  # as on Windows
    ignore_hangups()
    reload_on_hangup(None, None, None)  # type: ignore[arg-type]
