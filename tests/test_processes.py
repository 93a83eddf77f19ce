"""Child processes import nothing from the working directory, and end with their parent."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from conftest import PATIENCE_S, SOURCE, TARGET, FiveRun, environment, out_lines, run_nmt, started_nmt, wait_until

import nmt
from nmt import processes
from nmt.cli.options import load_translator
from nmt.errors import LostRankError
from nmt.processes import child_variables, in_parallel, prepare_torch, set_environment_variables, usable_cores

# Libraries that nmt, its children and Python's own machinery for children import.
NAMES = ("sentencepiece", "uuid", "multiprocessing", "struct", "json", "numpy", "torch", "typer", "sitecustomize")


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A directory with files named like libraries; importing one writes to the file `imported`."""
    home = tmp_path / "trap"
    home.mkdir()
    for name in NAMES:
        program = f"open({str(home / 'imported')!r}, 'a').write('{name} ')\n"
        (home / f"{name}.py").write_text(program)
    return home


def test_pythonpath_has_no_empty_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}/opt/lib")
    package = str(Path(nmt.__file__).parents[1])
    result = child_variables()["PYTHONPATH"].split(os.pathsep)
    assert result == [package, "/opt/lib"]


def printed_by(program: str, env: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


LOADS_A_MODEL = """
import contextlib, os, pathlib, sys
import nmt
from nmt.translate.loading import load_torch
with contextlib.suppress(nmt.ModelError):
    load_torch([pathlib.Path("none")], "cpu", "fp32")
print(os.environ["GOMP_SPINCOUNT"], os.environ["KMP_BLOCKTIME"], "torch" in sys.modules)
"""


def test_idle_threads_sleep_before_torch_is_imported() -> None:
    """Whatever loads a model for torch sets the policy before it imports torch."""
    unset = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    env = {key: value for key, value in os.environ.items() if key not in unset}
    assert printed_by(LOADS_A_MODEL, env) == "20000 1 True\n"


def test_a_policy_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"OMP_WAIT_POLICY": "ACTIVE", "LRU_CACHE_CAPACITY": "7", "MALLOC_ARENA_MAX": "1"}
    monkeypatch.setattr(os, "environ", environment)
    prepare_torch()
    set_environment_variables(3)
    assert environment["LRU_CACHE_CAPACITY"] == "7"
    assert environment["OMP_NUM_THREADS"] == "3"
    assert "GOMP_SPINCOUNT" not in os.environ


def test_threads_may_be_more_than_cores() -> None:
    """Then three replicas can train where a run of three is resumed on two cores."""
    n = usable_cores() + 1
    program = "from nmt.processes import set_environment_variables\n"
    program += f"set_environment_variables({n})\nimport torch\nprint(torch.get_num_threads())"
    assert int(printed_by(program)) == n


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_malloc_is_tuned_for_torch_only(engine: str, five_run: FiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """CTranslate2's threads would contend for the one heap."""
    tuned: list[bool] = []
    monkeypatch.setattr("nmt.processes.keep_freed_memory", lambda: tuned.append(True))
    load_translator(five_run.run, engine=engine)  # type: ignore[arg-type]
    assert bool(tuned) == (engine == "torch")


def test_the_command_imports_nothing_from_the_working_directory(five_run: FiveRun, trap: Path, tmp_path: Path) -> None:
    """The child checks the tokenizer, because the cache is empty."""
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": ""}
    done = run_nmt("translate", "-m", five_run.run, "--", SOURCE[0], cwd=trap, env=env)
    assert out_lines(done) == [TARGET[0]]
    assert list((tmp_path / "cache" / "nmt").glob("sentencepiece-*")), "a child has loaded the tokenizer"
    assert not (trap / "imported").exists()


PREPARES = """
import sys
sys.path.remove("")  # -c puts the working directory there; the nmt command does not
from nmt.processes import MIN_ITEMS, in_parallel
if __name__ == "__main__":
    print(sum(in_parallel(abs, range(-MIN_ITEMS, 0))))
"""


def test_processes_that_prepare_a_corpus_import_nothing_from_the_working_directory(trap: Path) -> None:
    env = {**environment(), "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", PREPARES], cwd=trap, env=env, capture_output=True, check=False)
    assert done.stdout == b"21\n", done.stderr.decode()
    assert not (trap / "imported").exists()


KILLED = """
import multiprocessing, os, time
from nmt.processes import MIN_ITEMS, in_parallel
if __name__ == "__main__":
    results = in_parallel(time.sleep, [0.0] * MIN_ITEMS)
    next(results)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), 9)
"""


def test_processes_that_prepare_a_corpus_end_with_their_parent() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment(), capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert done.stdout.split()
    for pid in done.stdout.decode().split():
        wait_until(partial(has_ended, Path(f"/proc/{pid}/cmdline")))


def has_ended(command_line: Path) -> bool:
    return not command_line.exists() or command_line.read_bytes() == b""  # that of a zombie is empty


def test_sigterm_leaves_no_unfinished_output(five_run: FiveRun, tmp_path: Path) -> None:
    args = ["translate", "-m", five_run.run, "-o", tmp_path / "out"]
    with started_nmt(*args, cwd=tmp_path) as process:
        wait_until(lambda: list(tmp_path.glob("out.tmp.*")), running=process)
        process.terminate()  # while it waits for lines
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n", [0, 1, 19])
def test_results_are_in_the_order_of_items(n: int) -> None:
    expected = list(range(n, 0, -1))
    result = list(in_parallel(abs, range(-n, 0)))
    assert result == expected


def test_a_process_that_was_killed_is_an_error() -> None:
    with pytest.raises(LostRankError, match="prepared the corpus is gone") as caught:
        list(in_parallel(signal.raise_signal, [signal.SIGKILL] * 9))
    assert caught.value.hint == "was there enough memory?"


def test_items_are_not_taken_before_a_process_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "usable_cores", lambda: 1)
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    results = in_parallel(abs, items())
    assert next(results) == 0
    assert len(multiprocessing.active_children()) == 1
    assert len(taken) == processes.MIN_ITEMS
