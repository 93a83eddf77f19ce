"""A model converted by many processes at once, and by processes that are killed: the right text, and nothing left."""

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import SOAK, SOURCE, TARGET, FiveRun, err_lines, out_lines, run_nmt, started_nmt

N_PROCESSES, N_KILLS = 10, 40
pytestmark = pytest.mark.skipif(not SOAK, reason="make soak; tests/test_files.py tests what is made once")


def entries(cache: Path) -> list[str]:
    """The converted models in a cache, and what a conversion has left unfinished."""
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


def test_processes_share_one_conversion(five_run: FiveRun, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = ["translate", "-m", five_run.run, "--engine", "ctranslate2", SOURCE[0]]
    with ThreadPoolExecutor(N_PROCESSES) as pool:
        done = list(pool.map(lambda _: run_nmt(*command, env={"NMT_CACHE": str(cache)}), range(N_PROCESSES)))
    for one in done:
        assert (out_lines(one), err_lines(one)) == ([TARGET[0]], [])
    assert len(entries(cache)) == 1


def test_a_killed_conversion_leaves_nothing_unfinished(five_run: FiveRun, tmp_path: Path) -> None:
    draw = random.Random(1)
    command = ["translate", "-q", "-m", five_run.run, "--engine", "ctranslate2", SOURCE[0]]
    for number in range(N_KILLS):
        env = {"NMT_CACHE": str(tmp_path / f"cache{number}")}
        with started_nmt(*command, cwd=tmp_path, env=env) as process:
            time.sleep(draw.uniform(0.3, 2.5))
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert out_lines(run_nmt(*command, env=env)) == [TARGET[0]]
        (entry,) = entries(Path(env["NMT_CACHE"]))
        assert ".tmp." not in entry
