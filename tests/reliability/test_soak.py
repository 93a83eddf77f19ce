"""A day in a minute: a run is trained, served, swept over, evaluated and translated with at once; some are killed."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import FORKS, PATIENCE_S, soak

from nmt.files import locked

from .runs import run_main, temps, trained, write_config
from .test_clients import BODY, request, serving, settled, statuses


def commands(home: Path, n_steps: int) -> list[list[str]]:
    """Command lines that use the same files; each may be repeated until it has succeeded."""
    config, run, source, target = (str(home / name) for name in ("small.yaml", "run", "train.zh", "train.en"))
    return [
        ["train", config, f"run={run}", f"train.max_steps={n_steps}", "--replicas", "1"],
        ["sweep", config, "train.lr=1e-3,3e-3", "train.max_steps=4", "--steps", "2", "-o", str(home / "sweep")],
        ["translate", "-m", run, "-i", source, "-o", str(home / "hyp"), "--engine", "torch"],
        ["eval", "-m", run, "--src", source, "--ref", target, "--bootstrap", "0"],
        ["export", "-m", run, "--to", "ctranslate2", "-o", str(home / "export")],
        ["info", run],
        ["report", run, "--no-evaluate"],
    ]


def test_a_day_in_a_minute(tmp_path: Path) -> None:
    draw, counts, sizes, n_steps = random.Random(1), Counter[str](), list[tuple[int, int]](), 5
    config, asked = write_config(tmp_path), request("/translate", BODY)
    trained(config, tmp_path / "run", f"train.max_steps={n_steps}")
    with serving(tmp_path, "--engine", "torch") as server:
        expected, end = settled(server.answer(asked)), time.monotonic() + soak(1, 120)
        while time.monotonic() < end:
            n_steps += 2
            started = []
            for words in draw.sample(commands(tmp_path, n_steps), k=soak(2, 4)):
                log = tmp_path / f"{len(counts)}-{time.monotonic_ns()}.log"
                started.append((words, log, FORKS.Process(target=run_main, args=(words, str(log)))))
                started[-1][2].start()
            time.sleep(draw.uniform(0, soak(1, 4)))
            for number, (_, _, process) in enumerate(started):
                answer = server.answer(asked)
                assert (statuses(answer), settled(answer)) == ("200", expected)
                if number % 2 == 0:
                    process.kill()
            for words, log, process in started:
                process.join(PATIENCE_S)
                text = log.read_text(encoding="utf-8") if log.exists() else ""
                assert process.exitcode in (0, -signal.SIGKILL) or "is in use by another" in text, (words, text)
                counts[f"{words[0]} {process.exitcode}"] += 1
            sizes.append(server.memory())
        print(dict(sorted(counts.items())), "MB and descriptors", sizes[0], sizes[-1])
        check_sizes(sizes)
        server.send(signal.SIGTERM)
        assert server.end() == 143
    check_nothing_is_left(tmp_path, n_steps)


def check_sizes(sizes: list[tuple[int, int]]) -> None:
    """Check that memory and descriptors of the server stay."""
    early = sizes[len(sizes) // 3]
    assert sizes[-1][0] <= early[0] + soak(60, 10)
    assert sizes[-1][1] <= early[1] + 2


def check_nothing_is_left(home: Path, n_steps: int) -> None:
    """Check that no lock is left, nor what a killed command has begun."""
    for words in commands(home, n_steps)[: soak(1, None)]:
        process = FORKS.Process(target=run_main, args=(words, str(home / "log")))
        process.start()
        process.join(PATIENCE_S)
        assert process.exitcode == 0, (words, (home / "log").read_text(encoding="utf-8"))
    assert not [*(temps(home) if soak(False, True) else temps(home / "run")), *home.rglob("*.old.*")]


def test_what_is_left_and_what_grows_is_found(tmp_path: Path) -> None:
    write_config(tmp_path)
    (tmp_path / "run").mkdir()
    lock = locked(tmp_path / "run" / "lock", holder="training", setting="")
    with lock, pytest.raises(AssertionError, match="in use by another training"):
        check_nothing_is_left(tmp_path, 1)
    (tmp_path / f"run.old.{os.getpid()}").touch()
    with pytest.raises(AssertionError, match=r"run\.old"):
        check_nothing_is_left(tmp_path, 1)
    for last in ((200, 16), (100, 20)):
        with pytest.raises(AssertionError):
            check_sizes([(100, 16), (100, 16), last])
