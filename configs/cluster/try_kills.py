"""Kill workers of Ray and Spark while they translate, and compare the output with that of `nmt translate`.

    python configs/cluster/try_kills.py ray model.safetensors lines.txt --runs 4 --kills 5

Needs Linux, and `pip install "ray[data]"` or `pip install pyspark` with Java. Each run translates all lines on a small
cluster of this machine. Only processes that the run has started are killed.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
# Two actors, and a core to read and write; two executors, each a process of its own that Spark starts again.
RAY = "import ray, runpy; ray.init(num_cpus=3, object_store_memory=200_000_000, include_dashboard=False)"
PROGRAMS = {
    "ray": [sys.executable, "-c", f"{RAY}; runpy.run_path({str(HERE / 'ray_translate.py')!r}, run_name='__main__')"],
    "spark": ["spark-submit", "--master", "local-cluster[2,1,1024]", str(HERE / "spark_translate.py")],
}
# Words in the command line of a process that may be killed.
VICTIMS = {"ray": ["MapBatches(Translate)"], "spark": ["pyspark.daemon", "CoarseGrainedExecutorBackend"]}


def descendants(pid: int) -> list[int]:
    """Return the processes that `pid` has started, and those that they have started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


def victims(pid: int, words: str) -> list[int]:
    found = []
    for process in descendants(pid):
        if words in Path(f"/proc/{process}/cmdline").read_text():
            found.append(process)
    return found


def killed_run(engine: str, command: list[str], n_kills: int, log: Path) -> int:
    """Run the command, kill workers at random moments, and return the number of kills."""
    n_killed = 0
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        while process.poll() is None:
            time.sleep(random.uniform(1, 6))
            words = VICTIMS[engine][n_killed % len(VICTIMS[engine])]
            try:
                candidates = victims(process.pid, words)
                if candidates and n_killed < n_kills:
                    os.kill(candidates[-1], signal.SIGKILL)  # the last one: a worker, not the daemon that starts it
                    n_killed += 1
            except OSError:  # the process ended meanwhile
                continue
    if process.returncode != 0:
        sys.exit(f"exit code {process.returncode}, see {log}")
    return n_killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("engine", choices=PROGRAMS)
    parser.add_argument("model", type=lambda path: Path(path).absolute())
    parser.add_argument("lines", type=Path)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--kills", type=int, default=5, help="of each run")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())

    # 1. Write the lines as ten Parquet files, and translate them with the command line.
    lines = options.lines.read_bytes().decode().removesuffix("\n").split("\n")
    table = pa.table({"id": range(len(lines)), "text": lines})
    n_rows = -(-len(lines) // 10)
    (folder / "in").mkdir()
    for i in range(10):
        pq.write_table(table.slice(i * n_rows, n_rows), folder / "in" / f"{i}.parquet")
    translate = [sys.executable, "-m", "nmt", "translate", "--precision", "fp32", "-m", options.model]
    text = subprocess.run([*translate, "-i", options.lines], check=True, capture_output=True).stdout.decode()
    expected = dict(enumerate(text.removesuffix("\n").split("\n")))

    # 2. Translate them with workers that are killed, and compare.
    size = ["--rows", "200"] if options.engine == "ray" else ["--partitions", str(len(lines) // 200)]
    print("run  kills  lines  lost  doubled  moved  differ  seconds")
    for run in range(options.runs):
        output = folder / f"out{run}"
        command = [*PROGRAMS[options.engine], options.model, folder / "in", output, "--precision", "fp32", *size]
        start = time.monotonic()
        n_killed = killed_run(options.engine, list(map(str, command)), options.kills, folder / "log")
        seconds = time.monotonic() - start
        rows = pq.read_table(output).to_pylist()
        ids = Counter(row["id"] for row in rows)
        n_lost = len(expected.keys() - ids)
        n_doubled = ids.total() - len(ids)
        n_moved = sum(row["text"] != lines[row["id"]] for row in rows)
        n_different = sum(row["translation"] != expected[row["id"]] for row in rows)
        print(f"{run:3} {n_killed:6} {len(rows):6} {n_lost:5} {n_doubled:8} {n_moved:6} {n_different:7} {seconds:8.0f}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
