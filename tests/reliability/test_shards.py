"""Shards of a translation are killed at random moments and restarted; merged, they equal the output of one command."""

import contextlib
import random
import signal
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from conftest import FORKS, SOURCE, FiveRun, be_nmt, environment, run_nmt

from .conftest import soak

N_SHARDS = soak(3, 10)
N_KILLS = soak(2, 100)


def start(args: Sequence[object], home: Path) -> BaseProcess:
    """Start `nmt ARGS` in its own process, which can be killed; its messages go to HOME/messages."""
    streams = [Path("/dev/null"), Path("/dev/null"), home / "messages"]
    streams[2].touch()
    process = FORKS.Process(target=be_nmt, args=([*map(str, args)], home, environment(), streams))
    process.start()
    return process


def n_lines_done(output: Path, shard: int) -> int:
    """The number of a shard's lines in its output file, finished or not."""
    file = output.with_name(f"{output.name}.shard-{shard:03}-of-{N_SHARDS:03}")
    for path in (file.with_name(f"{file.name}.part"), file):  # in this order: the part becomes the file
        with contextlib.suppress(FileNotFoundError):
            return max(0, path.read_bytes().count(b"\n") - 1)
    return 0


def test_shards_killed_at_random_and_resumed_are_the_text_of_one_run(five_run: FiveRun, tmp_path: Path) -> None:
    """Two run at a time; each is killed after a random time, or as soon as it has written some lines."""
    words, draw = " ".join(SOURCE).split(), random.Random(1)
    lines = [" ".join(draw.choices(words, k=draw.randrange(6))) for _ in range(soak(900, 20_000))]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    args = ["translate", "-q", "-m", five_run.run, "-i", "in", "--beam", 1, "--max-length", 6, "--threads", 1]
    started = time.monotonic()
    assert run_nmt(*args, "-o", "whole", cwd=tmp_path).returncode == 0
    seconds = soak(1, 2) * (time.monotonic() - started) / N_SHARDS + 1  # one second to start

    n_kills = n_partly = n_rounds = 0
    while n_kills < N_KILLS or n_rounds == 0:
        output = tmp_path / f"out{n_rounds}"
        waiting = draw.sample(range(N_SHARDS), N_SHARDS)
        while waiting:
            shards = waiting[:2]
            running = [start([*args, "-o", output.name, "--shard", f"{i}/{N_SHARDS}"], tmp_path) for i in shards]
            for shard, process in zip(shards, running, strict=True):
                before = n_lines_done(output, shard)
                if n_kills >= N_KILLS:
                    process.join(120)
                elif draw.random() < 0.5:
                    process.join(draw.uniform(0, seconds))
                else:
                    while process.exitcode is None and n_lines_done(output, shard) == before:
                        time.sleep(0.001)
                process.kill()
                process.join()
                assert process.exitcode in (0, -signal.SIGKILL), (tmp_path / "messages").read_text()
                assert n_lines_done(output, shard) >= before, "nothing is lost"
                if process.exitcode == 0:
                    waiting.remove(shard)
                else:
                    n_kills += 1
                    n_partly += n_lines_done(output, shard) > 0
            draw.shuffle(waiting)
        merged = run_nmt("merge", output.name, cwd=tmp_path)
        assert merged.returncode == 0, merged.stderr
        assert output.read_bytes() == (tmp_path / "whole").read_bytes()
        assert not list(tmp_path.glob("*.part"))
        n_rounds += 1
    assert n_partly
    print(f"{n_kills} kills in {n_rounds} rounds of {N_SHARDS} shards, {n_partly} after the first lines")
