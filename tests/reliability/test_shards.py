"""Shards of a translation are killed at random moments and restarted; merged, they equal the output of one command."""

import contextlib
import random
import signal
import subprocess
import time
from pathlib import Path

from conftest import SOURCE, FiveRun, run_nmt, started_nmt

from .conftest import soak

N_SHARDS = soak(3, 10)
N_KILLS = soak(2, 100)


def n_lines_done(output: Path, shard: int) -> int:
    """The number of a shard's lines in its output file, finished or not."""
    file = output.with_name(f"{output.name}.shard-{shard:03}-of-{N_SHARDS:03}")
    for path in (file.with_name(f"{file.name}.part"), file):  # in this order: the part becomes the file
        with contextlib.suppress(FileNotFoundError):
            return max(0, path.read_bytes().count(b"\n") - 1)
    return 0


def test_shards_killed_at_random_and_resumed_are_the_text_of_one_run(five_run: FiveRun, tmp_path: Path) -> None:
    """Each is killed after a random time, or as soon as it has written some lines."""
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
        waiting = [*range(N_SHARDS)]
        while waiting:
            shard = draw.choice(waiting)
            before, is_random = n_lines_done(output, shard), draw.random() < 0.5
            command = [*args, "-o", output.name, "--shard", f"{shard}/{N_SHARDS}"]
            with started_nmt(*command, cwd=tmp_path, stdin=subprocess.DEVNULL) as process:
                if n_kills < N_KILLS:
                    end = time.monotonic() + draw.uniform(0, seconds)
                    while process.poll() is None and (
                        time.monotonic() < end if is_random else n_lines_done(output, shard) == before
                    ):
                        time.sleep(0.001)
                    process.kill()
                assert process.wait() in (0, -signal.SIGKILL)
            n_lines = n_lines_done(output, shard)
            assert n_lines >= before, "nothing is lost"
            if process.returncode == 0:
                waiting.remove(shard)
            else:
                n_kills, n_partly = n_kills + 1, n_partly + (n_lines > 0)
        merged = run_nmt("merge", output.name, cwd=tmp_path)
        assert merged.returncode == 0, merged.stderr
        assert output.read_bytes() == (tmp_path / "whole").read_bytes()
        assert not list(tmp_path.glob("*.part"))
        n_rounds += 1
    assert n_partly
    print(f"{n_kills} kills in {n_rounds} rounds of {N_SHARDS} shards, {n_partly} after the first lines")
