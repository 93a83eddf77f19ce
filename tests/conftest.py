"""Shared by the tests: running the command, checking its output, five sentence pairs, a run trained on them."""

import contextlib
import gc
import json
import logging
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar
from unittest import mock

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from nmt.files import atomic_write, locked
from nmt.processes import set_environment_variables

if TYPE_CHECKING:
    from served import Client

    from nmt.model.base import Seq2Seq
    from nmt.translate.translator import Translator

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # by a shell that runs the tests in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests send it, to this process and to commands
set_environment_variables(threads=1)  # before torch is imported; tests run side by side
SOAK = os.environ.get("NMT_SOAK", "") not in ("", "0")
# No time limit: a busy machine must not fail a test.
hypothesis_settings.register_profile(
    "nmt",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not SOAK,  # so that `make test` has one result; `make soak` tries new examples
)
hypothesis_settings.load_profile("nmt")

PATIENCE_S = 240.0  # for what takes seconds: the limit only ends a test that hangs
NO_PROCESS = 4_194_304  # Linux gives this id to no process
NMT = [sys.executable, "-m", "nmt"]
# A fork server that has imported torch and the modules that torch.optim imports, so that commands start quickly.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["nmt.cli", "nmt.train.session", "nmt.translate.translator", "torch._dynamo"])
Done = subprocess.CompletedProcess[bytes]
T = TypeVar("T")

# Five pairs, split into words: a model that cannot learn them has a bug.
SOURCE = [
    "我 昨天 买 了 一 本 书 。",
    "她 在 学校 教 英语 。",
    "今天 天气 很 好 。",
    "你 想 喝 茶 还是 咖啡 ？",
    "他们 明天 去 北京 。",
]
TARGET = [
    "I bought a book yesterday .",
    "She teaches English at school .",
    "The weather is very nice today .",
    "Do you want tea or coffee ?",
    "They are going to Beijing tomorrow .",
]
ARABIC = [
    "اشتريت كتابا أمس .",
    "هي تدرس اللغة الإنجليزية في المدرسة .",
    "الطقس جميل جدا اليوم .",
    "هل تريد شايا أم قهوة ؟",
    "سيذهبون إلى بكين غدا .",
]


def soak(short: T, full: T) -> T:
    """Return `full` under `make soak`, else `short`, for example a number of kills, mutations or lines."""
    return full if SOAK else short


def check_linear(work: Callable[[int], object], size: int) -> None:
    """Check that four times the size takes `work` at most ten times the CPU time. Quadratic work takes 16 times.

    One of three attempts has to hold, because a single measurement of such short times can be far off.
    """

    def cpu_s(n: int) -> float:
        start_s = time.process_time()
        work(n)
        return time.process_time() - start_s

    assert any(cpu_s(size) < 10 * cpu_s(size // 4) + 0.1 for _ in range(3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the tests of a module share; hypothesis refuses fixtures made once per test."""
    return tmp_path_factory.mktemp("folder")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replace the user's cache by a temporary directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("NMT_CACHE", raising=False)
        yield


# --- running the command ----------------------------------------------------------------------------------


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a subprocess, without the user's NMT_MODEL, NMT_DATA and NMT_MIRROR."""
    variables = {**os.environ}
    for name in ("NMT_MODEL", "NMT_DATA", "NMT_MIRROR"):
        variables.pop(name, None)
    variables.update(extra or {})
    return variables


def run_nmt(
    *args: object,
    input: bytes | None = None,  # noqa: A002 - as in subprocess.run
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE,
) -> Done:
    """Run `nmt ARGS` in an empty folder or `cwd`: in this process, or with `env` or `stdout` in one of its own."""
    words = [*map(str, args)]
    with contextlib.ExitStack() as stack:
        place = cwd or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if env or stdout != subprocess.PIPE:
            streams: dict[str, Any] = {"input": input or b"", "stdout": stdout, "stderr": subprocess.PIPE}
            limits: dict[str, Any] = {"timeout": PATIENCE_S, "check": False}
            return subprocess.run([*NMT, *words], cwd=place, env=environment(env), **streams, **limits)
        stdin, out, err = (stack.enter_context(tempfile.NamedTemporaryFile()) for _ in range(3))
        stdin.write(input or b"")
        stdin.seek(0)
        with as_command(words, place, [stdin.fileno(), out.fileno(), err.fileno()]):
            code = exit_code_of_main()
        return Done(words, code, Path(out.name).read_bytes(), Path(err.name).read_bytes())


def exit_code_of_main() -> Any:
    from nmt.__main__ import main

    try:
        main()
    except SystemExit as end:
        return end.code or 0
    return 0


@contextlib.contextmanager
def as_command(words: Sequence[str], cwd: Path, streams: Sequence[int]) -> Iterator[None]:
    """Give this process the arguments, directory, environment and open files of a command; then its own again."""
    # 1. Remember what a command changes.
    log = logging.getLogger("nmt")
    level, handlers, propagate = log.level, log.handlers, log.propagate
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with (
        pytest.MonkeyPatch.context() as patch,
        mock.patch.dict(os.environ, environment(), clear=True),
        contextlib.ExitStack() as stack,
    ):
        # 2. Put the streams in the places of this process' own.
        for fd, (name, stream) in enumerate(zip(("stdin", "stdout", "stderr"), streams, strict=True)):
            kept = os.dup(fd)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, fd)
            os.dup2(stream, fd)
            mode = "r" if name == "stdin" else "w"
            patch.setattr(sys, name, stack.enter_context(open(fd, mode, closefd=False)))
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["nmt", *words])
        try:
            yield
        finally:
            gc.unfreeze()
            log.setLevel(level)
            log.handlers, log.propagate = handlers, propagate
            log.getChild("texts").disabled = False  # `nmt serve` disables it
            for number, handler in signals.items():
                signal.signal(number, handler)


def run_in(folder: Path, command: str, input: bytes | None = None) -> Done:  # noqa: A002
    """Run a command line in a folder: `run_in(tmp_path, "check a.de a.en")`."""
    return run_nmt(*shlex.split(command), input=input, cwd=folder)


def started_nmt(
    *args: object, cwd: Path, env: Mapping[str, str] | None = None, **streams: Any
) -> contextlib.AbstractContextManager["subprocess.Popen[bytes]"]:
    """Start `nmt ARGS`, unbuffered; it is killed if it still runs after the block."""
    return started([*NMT, *map(str, args)], cwd=cwd, env=environment(env), **streams)


@contextlib.contextmanager
def started(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], **streams: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a command, unbuffered; it is killed if it still runs after the block."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    # Tests that were started in the background ignore SIGINT, and children would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, cwd=cwd, env=env, bufsize=0, **streams)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def wait_until(is_true: Callable[[], object], *, running: "subprocess.Popen[bytes] | None" = None) -> None:
    """Wait for a condition; fail if it does not come, or if the process that should bring it about has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, "it does not happen"
        if running is not None and running.poll() is not None:
            stderr = running.stderr.read() if running.stderr else b""
            pytest.fail(f"the process has ended: {stderr.decode()}")
        time.sleep(0.01)


# --- checking the output ----------------------------------------------------------------------------------


def out_lines(done: Done) -> list[str]:
    """The lines of stdout of a command that succeeded."""
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"" or done.stdout.endswith(b"\n")
    return done.stdout.decode().split("\n")[:-1]


def err_lines(done: Done) -> list[str]:
    assert done.returncode == 0, done.stderr.decode()
    return done.stderr.decode().splitlines()


def one_clear_error(done: Done, exit_code: int, *fragments: str, n_errors: int = 1) -> str:
    """Check that a command failed with `n_errors` clear errors, one with all fragments, and one hint; return stderr."""
    stderr = done.stderr.decode()
    assert done.returncode == exit_code, stderr
    assert "Traceback" not in stderr
    assert not done.stdout, "an error leaves stdout empty"
    # The errors, of which one has all fragments.
    lines = stderr.splitlines()
    errors = [line for line in lines if line.startswith("nmt: error: ")]
    assert len(errors) == n_errors, stderr
    fitting = errors
    for fragment in fragments:
        fitting = [line for line in fitting if fragment in line]
    assert fitting, stderr
    # The hint.
    hints = [line for line in lines if line.startswith("hint: ")]
    assert len(hints) == 1, stderr
    assert hints[0] != "hint: "
    return stderr


def rows_of(table: str, separator: str = "\n") -> list[str]:
    """The rows of a table of cases."""
    return table.strip(separator).split(separator)


def refused(folder: Path, command: str, message: str) -> str:
    """Check that a command line is refused with one clear error that has the message; return stderr."""
    return one_clear_error(run_in(folder, command), 2, message)


def imported_modules(done: Done) -> set[str]:
    """Return the modules that a command with PYTHONPROFILEIMPORTTIME has imported."""
    return {line.rpartition("|")[2].strip() for line in err_lines(done)}


def file_bytes(directory: Path) -> dict[str, bytes]:
    """Return the content of all files below a directory, by their relative paths."""
    contents = {}
    for path in directory.rglob("*"):
        if path.is_file():
            name = str(path.relative_to(directory))
            contents[name] = path.read_bytes()
    return contents


def model_of(translator: "Translator") -> "Seq2Seq":
    """The model that a translator searches over."""
    from nmt.decode.engines.torch_engine import TorchEngine

    engine = translator.engine.torch_engine("a test")
    assert isinstance(engine, TorchEngine)
    (model,) = engine.models
    return model


def data_of_page(page: str) -> Any:
    """The data of a page that `nmt` wrote; checks that it loads nothing."""
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)", page)
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(block)


@pytest.fixture(scope="module")  # per session, its event loop would prevent other tests from running one
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: make browser")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium: make browser")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def check_accessible(page: Any, within: str | None = None) -> None:
    """Check an opened page, or the element `within` it, with axe-core; and that it is not wider than the window."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core: make browser")
    results = axe.Axe().run(page, within)
    assert results.violations_count == 0, results.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "only figures scroll sideways"


SCREENS: list[dict[str, Any]] = [  # options for `opened_page`
    {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    {"viewport": {"width": 390, "height": 900}, "color_scheme": "dark"},
]


@contextlib.contextmanager
def opened_page(browser: Any, url: str, *may_load: str, ignored: str | None = None, **options: Any) -> Iterator[Any]:
    """Open a page; at the end, it loaded only URLs that begin with `may_load`, and logged no error but `ignored`."""
    problems: list[str] = []

    def check(request_url: str) -> None:
        if request_url != url and not request_url.startswith(may_load):
            problems.append(request_url)

    def log(message: Any) -> None:
        if message.type == "error":
            problems.append(message.text)

    context = browser.new_context(**options)
    try:
        page = context.new_page()
        page.on("console", log)
        page.on("pageerror", lambda error: problems.append(str(error)))
        context.on("request", lambda request: check(request.url))
        page.goto(url)
        yield page
    finally:
        context.close()
    if ignored is not None:
        problems = [problem for problem in problems if ignored not in problem]
    assert problems == []


def opened_text(browser: Any, folder: Path, text: str, **options: Any) -> contextlib.AbstractContextManager[Any]:
    """Open a page of one file, which loads nothing."""
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    return opened_page(browser, file.as_uri(), **options)


# --- data and a run ---------------------------------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """The directory of a corpus for trainings of a second, see small_run.py."""
    from small_run import write_small_corpus

    return write_small_corpus(tmp_path)


@dataclass(frozen=True)
class FiveCorpus:
    """Five pairs, used as train, dev and test, and a config for them, which works in any directory."""

    home: Path
    config: Path
    source_file: Path
    target_file: Path

    @property
    def run(self) -> Path:
        """The run's directory; exists after training."""
        return self.home / "runs" / "five"


@dataclass(frozen=True)
class FiveRun(FiveCorpus):
    """A run that has memorized the five pairs; `training` is the finished `nmt train`."""

    training: Done

    @property
    def model_file(self) -> Path:
        return self.run / "model.safetensors"

    def copy_run(self, to: Path) -> Path:
        """A copy that a test may change; `run=COPY` resumes it."""
        return Path(shutil.copytree(self.run, to))


def write_five(home: Path, language: str = "en", targets: Sequence[str] = TARGET) -> FiveCorpus:
    """Write the five pairs and the config of a run that learns them in seconds."""
    source_file, target_file = home / "train.zh", home / f"train.{language}"
    for file, lines in ((source_file, SOURCE), (target_file, targets)):
        atomic_write(file, "\n".join(lines) + "\n")
    config = home / "five.yaml"
    atomic_write(
        config,
        f"""\
run: {home}/runs/five
data:
  root: {home}
  train: {{source: train.zh, target: train.{language}}}
  dev: {{source: train.zh, target: train.{language}}}
  test: {{source: train.zh, target: train.{language}}}
tokenizer: {{type: bpe}}  # pieces are whole words: short sequences
model: {{d_model: 64}}
train: {{max_steps: 200, validate_every: 100, precision: fp32}}
""",
    )
    return FiveCorpus(home, config, source_file, target_file)


@pytest.fixture
def five_corpus(tmp_path: Path) -> FiveCorpus:
    """The five pairs and their config in this test's own directory."""
    return write_five(tmp_path)


@pytest.fixture(scope="session")
def five_run(tmp_path_factory: pytest.TempPathFactory) -> FiveRun:
    """A run trained on the five pairs, once for all tests: change only copies of it."""
    return trained_once(tmp_path_factory, "five")


@pytest.fixture
def five_home(five_run: FiveRun) -> Path:
    """The folder of the five pairs, train.zh and train.en, with the run in runs/five: write no files there."""
    return five_run.home


@pytest.fixture(scope="module")
def translator(five_run: FiveRun) -> "Translator":
    """The model of the five pairs, as a server loads it: tests may patch it."""
    from nmt.translate.loading import load

    return load(five_run.run, device="cpu")


@pytest.fixture(scope="module")
def client(translator: "Translator") -> "Iterator[Client]":
    """A client of a server with the model of the five pairs."""
    from served import served

    with served(translator) as client:
        yield client


@pytest.fixture(scope="session")
def arabic_run(tmp_path_factory: pytest.TempPathFactory) -> FiveRun:
    """A run trained to translate the five sentences into Arabic, which is written from right to left."""
    return trained_once(tmp_path_factory, "arabic", "ar", ARABIC)


def trained_once(factory: pytest.TempPathFactory, name: str, *corpus: Any) -> FiveRun:
    """Train on five pairs (see `write_five`), or take what another process of pytest-xdist has trained."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    home = shared / name
    with locked(home.with_suffix(".lock"), wait=True):
        home.mkdir(exist_ok=True)
        five = write_five(home, *corpus)
        stdout, stderr = home / "stdout", home / "stderr"
        if not stderr.exists():
            done = run_nmt("train", five.config, cwd=home)
            assert done.returncode == 0, done.stderr.decode()
            stdout.write_bytes(done.stdout)
            stderr.write_bytes(done.stderr)  # last: it says that the training is finished
        training = Done([], 0, stdout.read_bytes(), stderr.read_bytes())
        return FiveRun(**vars(five), training=training)
