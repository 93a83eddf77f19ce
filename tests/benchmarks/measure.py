"""Shared by the benchmarks of speed: commands with measured memory and load (from /proc), turns, medians and ratios."""

import argparse
import contextlib
import os
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent
NMT = [sys.executable, "-m", "nmt"]
LOOK_EVERY_S = 0.25
MAX_FOREIGN = 0.05  # share of the machine's CPU time that other programs may use without a warning

Sample = dict[str, float]  # one measurement: its figures by name


@dataclass(frozen=True)
class Options:
    """Options of all benchmarks; `bench.py --help` says what they mean."""

    config: Path
    model: Path | None
    peers: Path | None
    scratch: Path
    rounds: int = 3
    seconds: float = 20
    minutes: float = 10


def parsed(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The options of a program; from now on, SIGTERM ends its child processes, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return vars(parser.parse_args())


@dataclass
class Watched:
    """A running command, the memory of its processes, and the CPU time of other programs."""

    process: "subprocess.Popen[str]"  # in a session of its own
    log: Path  # its stderr
    peak_bytes: int = 0  # the most anonymous memory of all its processes so far
    before: "Times" = (0.0, 0.0, 0.0)  # `times` when the measurement began

    def begin(self) -> None:
        """Start to measure the CPU time of other programs."""
        self.before = times(self.process.pid)

    def figures(self) -> Sample:
        """Peak anonymous memory so far, and the share of CPU time that other programs have used since `begin`."""
        return {"memory_mb": self.peak_bytes / 1e6, "foreign": foreign(self.before, times(self.process.pid))}

    def wait(self) -> None:
        """Wait until the command ends; if it fails, raise RuntimeError with the last lines of its stderr."""
        if self.process.wait():
            end = "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.returncode}:\n{end}")


@contextlib.contextmanager
def started(command: Sequence[object], scratch: Path, **streams: Any) -> Iterator[Watched]:
    """Run a command during the block and kill it afterwards; its stderr goes to a file."""
    log, over = scratch / "stderr.log", threading.Event()
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **streams}
    with (
        log.open("w") as stderr,
        subprocess.Popen([*map(str, command)], start_new_session=True, text=True, stderr=stderr, **streams) as process,
    ):
        run = Watched(process, log)

        def look() -> None:
            while not over.wait(LOOK_EVERY_S):
                run.peak_bytes = max(run.peak_bytes, usage(process.pid)[0])

        looker = threading.Thread(target=look, daemon=True)
        looker.start()
        run.begin()
        try:
            yield run
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            over.set()
            looker.join()


def timed(command: Sequence[object], scratch: Path) -> Sample:
    """Run a command; return its seconds, its memory and the load of other programs."""
    start = time.monotonic()
    with started(command, scratch) as run:
        run.wait()
        return {"seconds": time.monotonic() - start, **run.figures()}


def usage(session: int) -> tuple[int, float]:
    """Anonymous memory (bytes) and CPU time (s) of a session's processes; CPU time includes their ended children."""
    n_bytes, ticks = 0, 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            fields = (entry / "stat").read_text().rpartition(")")[2].split()  # the third field (state) and later ones
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
                # Proportional: a process that has just been forked shares the pages of its parent.
                n_bytes += 1024 * int((entry / "smaps_rollup").read_text().partition("Pss_Anon:")[2].split()[0])
    return n_bytes, ticks / os.sysconf("SC_CLK_TCK")


Times = tuple[float, float, float]


def times(session: int | None = None) -> Times:
    """Seconds of wall time, CPU time of all programs (with stolen time), and CPU time of this process and a session."""
    user, nice, system, _, _, *others = map(int, Path("/proc/stat").read_text().split()[1:9])
    ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own_s = sum(one.ru_utime + one.ru_stime for one in ours) + (usage(session)[1] if session else 0.0)
    return time.monotonic(), (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK"), own_s


def foreign(before: Times, after: Times) -> float:
    """The share of CPU time that other programs used between two `times`, 0-1."""
    wall_s, busy_s, own_s = (now - then for now, then in zip(after, before, strict=True))
    return min(max((busy_s - own_s) / (max(wall_s, 1e-9) * (os.cpu_count() or 1)), 0.0), 1.0)


def interleaved(measures: Mapping[str, Callable[[], Sample]], n_rounds: int) -> dict[str, list[Sample]]:
    """Measure in the order A B C, A B C, …, so that changes in the machine's load affect all contestants."""
    samples: dict[str, list[Sample]] = {name: [] for name in measures}
    for number in range(1, n_rounds + 1):
        for name, measure in measures.items():
            sample = measure()
            samples[name].append(sample)
            say(f"{number}/{n_rounds}  {name}: " + ", ".join(f"{key} {shown(key, sample[key])}" for key in sample))
            if sample.get("foreign", 0.0) > MAX_FOREIGN:
                say(f"warning: others used {sample['foreign']:.0%} of the machine meanwhile")
    return samples


def medians(samples: Sequence[Sample]) -> Sample:
    return {key: median(sample[key] for sample in samples) for key in samples[0]}


@dataclass(frozen=True)
class Table:
    """The results of a benchmark."""

    title: str
    note: str  # how to read it
    commands: Mapping[str, Sequence[object]]  # of each contestant
    samples: dict[str, list[Sample]]  # every measurement, by contestant
    figure: str  # name of the figure that is compared
    baselines: Sequence[str]  # contestants by whose figure it is divided

    def rows(self) -> dict[str, Sample]:
        """The medians of each contestant, and the ratios of its figure to those of the baselines."""
        found = {name: medians(samples) for name, samples in self.samples.items()}
        bases = {f"× {base}": found[base][self.figure] for base in self.baselines}
        return {name: row | {key: row[self.figure] / by for key, by in bases.items()} for name, row in found.items()}

    def markdown(self) -> str:
        """The rows as a Markdown table, with title and note."""
        rows = self.rows()
        columns = list(next(iter(rows.values())))
        lines = {name: [shown(key, row[key]) for key in columns] for name, row in rows.items()}
        return f"**{self.title}**\n\n{markdown_table(columns, lines)}\n\n{self.note}"

    def as_json(self) -> dict[str, Any]:
        """All measurements and rows as a JSON value; command lines as typed in the project's root."""
        commands = {name: shlex.join(map(str, one)).replace(f"{ROOT}/", "") for name, one in self.commands.items()}
        return {**vars(self), "commands": commands, "rows": self.rows()}


def markdown_table(columns: Iterable[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A Markdown table; the first column has the names of the rows."""
    head = [["", *(column.replace("_", " ") for column in columns)], ["---", *("---:" for _ in columns)]]
    return "\n".join(f"| {' | '.join(line)} |" for line in [*head, *([name, *row] for name, row in rows.items())])


def shown(key: str, value: float) -> str:
    """Format a figure: shares in per cent, others with two decimals below 100, else none."""
    if key in ("foreign", "of_peak"):
        return f"{value:.0%}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
