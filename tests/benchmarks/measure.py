"""Shared by the benchmarks of speed: commands with measured memory and load, turns, medians and ratios.

Reads /proc, so it needs Linux. Knows nothing of translation, and does not import torch.
"""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any

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
    epochs: int = 4


def parsed(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The options of a program; from now on, SIGTERM ends its child processes, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return vars(parser.parse_args())


# --- a command, watched -----------------------------------------------------------------------------------


class Watched:
    """A running command, the memory of its processes, and the CPU time of other programs.

    Attributes:
        process: the command, in a session of its own.
        log: its stderr.
    """

    def __init__(self, command: Sequence[object], log: Path, **streams: Any) -> None:
        self.log = log
        with log.open("w") as stderr:
            self.process: subprocess.Popen[str] = subprocess.Popen(
                [*map(str, command)], start_new_session=True, text=True, stderr=stderr, **streams
            )
        self._peak_bytes = 0
        self._over = threading.Event()
        self._looker = threading.Thread(target=self._look, daemon=True)
        self._looker.start()
        self.begin()

    def begin(self) -> None:
        """Start to measure the CPU time of other programs."""
        self._before = times(self.process.pid)

    def figures(self) -> Sample:
        """Peak anonymous memory so far, and the share of CPU time that other programs have used since `begin`."""
        return {"memory_mb": self._peak_bytes / 1e6, "foreign": foreign(self._before, times(self.process.pid))}

    def wait(self) -> None:
        """Wait until the command ends.

        Raises:
            RuntimeError: the command failed; the message has the last lines of its stderr.
        """
        if self.process.wait():
            end = "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.returncode}:\n{end}")

    def stop(self) -> None:
        """Kill all processes of the command."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        for stream in filter(None, (self.process.stdin, self.process.stdout)):
            with contextlib.suppress(OSError):  # buffered input that was never read
                stream.close()
        self._over.set()
        self._looker.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self._peak_bytes = max(self._peak_bytes, usage(self.process.pid)[0])


@contextlib.contextmanager
def started(
    command: Sequence[object],
    scratch: Path,
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[str] = subprocess.DEVNULL,
) -> Iterator[Watched]:
    """Run a command during the block and kill it afterwards; its stderr goes to a file."""
    watched = Watched(command, scratch / "stderr.log", stdin=stdin, stdout=stdout)
    try:
        yield watched
    finally:
        watched.stop()


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


# --- measurements in turn ---------------------------------------------------------------------------------


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
    """The median of every figure."""
    return {key: median(sample[key] for sample in samples) for key in samples[0]}


@dataclass(frozen=True)
class Table:
    """The results of a benchmark.

    Attributes:
        title: of the table.
        note: how to read it.
        commands: the command of each contestant.
        samples: every measurement, by contestant.
        figure: name of the figure that is compared.
        baselines: contestants by whose figure it is divided.
    """

    title: str
    note: str
    commands: Mapping[str, Sequence[object]]
    samples: dict[str, list[Sample]]
    figure: str
    baselines: Sequence[str]

    def rows(self) -> dict[str, Sample]:
        """The medians of each contestant, and the ratios of its figure to those of the baselines."""
        found = {name: medians(samples) for name, samples in self.samples.items()}
        bases = {f"× {base}": found[base][self.figure] for base in self.baselines}
        return {
            name: row | {title: row[self.figure] / base for title, base in bases.items()} for name, row in found.items()
        }

    def markdown(self) -> str:
        """The rows as a Markdown table, with title and note."""
        rows = self.rows()
        columns = list(next(iter(rows.values())))
        lines = [
            ["", *(key.replace("_", " ") for key in columns)],
            ["---", *("---:" for _ in columns)],
            *([name, *(shown(key, row[key]) for key in columns)] for name, row in rows.items()),
        ]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(line)} |" for line in lines), "", self.note])

    def as_json(self) -> dict[str, Any]:
        """All measurements and rows as a JSON value; command lines as typed in the project's root."""
        commands = {
            name: shlex.join(map(str, command)).replace(f"{ROOT}/", "") for name, command in self.commands.items()
        }
        return {**vars(self), "commands": commands, "rows": self.rows()}


def shown(key: str, value: float) -> str:
    """Format a figure: shares in per cent, others with two decimals below 100, else none."""
    if key in ("foreign", "of_peak"):
        return f"{value:.0%}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
