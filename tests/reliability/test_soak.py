"""A day in a minute: a run is trained, served, evaluated and translated with at once; some are killed."""

import random
import signal
import time
from collections import Counter
from pathlib import Path

from conftest import soak

from .runs import running, start_command, temps, trained, write_config
from .served import BODY, Usage, request, serving, settled, statuses

COMMANDS = [  # that use the same files; each may be repeated until it has succeeded
    "train {home}/small.yaml run={home}/run train.max_steps={n_steps} --replicas 1",
    "translate -m {home}/run -i {home}/train.zh -o {home}/hyp --engine torch",
    "eval -m {home}/run --src {home}/train.zh --ref {home}/train.en --bootstrap 0",
    "export -m {home}/run --to ctranslate2 -o {home}/export",
    "info {home}/run",
    "report {home}/run --no-evaluate",
]


def words_of_command(line: str, home: Path, n_steps: int) -> list[str]:
    return line.format(home=home, n_steps=n_steps).split()


def test_a_day_in_a_minute(tmp_path: Path) -> None:
    draw = random.Random(1)
    n_steps = 5
    counts = Counter[int]()
    usages = list[Usage]()
    config = write_config(tmp_path)
    question = request("/translate", BODY)
    trained(config, tmp_path / "run", f"train.max_steps={n_steps}")
    with serving(tmp_path, "--engine", "torch") as server:
        expected = settled(server.answer(question))
        end = time.monotonic() + soak(1, 120)
        while time.monotonic() < end:
            # 1. Start some commands.
            n_steps += 2
            started = []
            for line in draw.sample(COMMANDS, k=soak(2, 4)):
                log = tmp_path / f"{time.monotonic_ns()}.log"
                started.append(start_command(log, *words_of_command(line, tmp_path, n_steps)))
            time.sleep(draw.uniform(0, soak(1, 4)))

            # 2. The server answers as before. Every second command is killed.
            for number, command in enumerate(started):
                answer = server.answer(question)
                assert (statuses(answer), settled(answer)) == ("200", expected)
                if number % 2 == 0:
                    command.process.kill()

            # 3. The others succeed, unless they need what another one uses.
            for command in started:
                code = command.end()
                counts[code] += 1
                is_busy = "is in use by another" in command.messages
                assert is_busy or code in (0, -signal.SIGKILL), command.messages
            usages.append(server.usage())
        print(dict(counts), usages[0], usages[-1])
        check_usages(usages)
        server.send(signal.SIGTERM)
        assert server.end() == 143
    check_nothing_is_left(tmp_path, n_steps)


def check_usages(usages: list[Usage]) -> None:
    """Check that memory and descriptors of the server stay."""
    early = usages[len(usages) // 3]
    last = usages[-1]
    assert last.memory_mb <= early.memory_mb + soak(60, 10)
    assert last.n_descriptors <= early.n_descriptors + 2


def check_nothing_is_left(home: Path, n_steps: int) -> None:
    """Check that no lock is left, nor what a killed command has begun."""
    for line in COMMANDS[: soak(1, None)]:
        with running(home / "log", *words_of_command(line, home, n_steps)) as command:
            assert command.end() == 0, command.messages
    assert not temps(soak(home / "run", home))
    assert not list(home.rglob("*.old.*"))
