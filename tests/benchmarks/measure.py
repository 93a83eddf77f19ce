"""Shared by the benchmarks of speed: commands with measured memory (from /proc), turns, medians and ratios."""

import argparse
import contextlib
import itertools
import os
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
    only: tuple[str, ...] = ()

    def includes(self, name: str) -> bool:
        """Whether a contestant is measured: its name begins with one of `only`, or `only` is empty."""
        return not self.only or name.startswith(self.only)


def parsed(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The options of a program; from now on, SIGTERM ends its child processes, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return vars(parser.parse_args())


def processes_of(session: int) -> dict[Path, list[str]]:
    """The processes of a session, by their directory in /proc: the fields of `stat` from the third one (state) on."""
    processes = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                processes[entry] = fields
    return processes


def memory_of(session: int) -> int:
    """Bytes of anonymous memory of the processes of a session."""
    n_bytes = 0
    for entry in processes_of(session):
        with contextlib.suppress(OSError):
            # Proportional: a process that has just been forked shares the pages of its parent.
            after_name = (entry / "smaps_rollup").read_text().partition("Pss_Anon:")[2]
            n_bytes += 1024 * int(after_name.split()[0])
    return n_bytes


def cpu_seconds_of(session: int) -> float:
    """CPU seconds of the processes of a session: user and system time, and that of their children that have ended."""
    n_ticks = 0
    for fields in processes_of(session).values():
        n_ticks += sum(map(int, fields[11:15]))
    return n_ticks / os.sysconf("SC_CLK_TCK")


class Watched:
    """A running command in a session of its own, and the memory of its processes."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process, self.log = process, log  # the log is its stderr
        self.peak_bytes = 0  # the most anonymous memory of all its processes so far

    def figures(self) -> Sample:
        """Peak anonymous memory so far."""
        return {"memory_mb": self.peak_bytes / 1e6}

    def cpu_s(self) -> float:
        """CPU seconds of its processes so far."""
        return cpu_seconds_of(self.process.pid)

    def wait(self) -> None:
        """Wait until the command ends; if it fails, raise RuntimeError with the last lines of its stderr."""
        if self.process.wait():
            lines = self.log.read_text(errors="replace").splitlines()
            end = "\n".join(lines[-8:])
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.returncode}:\n{end}")

    def look_until(self, over: threading.Event) -> None:
        while not over.wait(LOOK_EVERY_S):
            self.peak_bytes = max(self.peak_bytes, memory_of(self.process.pid))


@contextlib.contextmanager
def started(command: Sequence[object], scratch: Path, **streams: Any) -> Iterator[Watched]:
    """Run a command during the block and kill it afterwards; its stderr goes to a file."""
    log = scratch / "stderr.log"
    over = threading.Event()
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **streams}
    words = [str(word) for word in command]
    with (
        log.open("w") as stderr,
        subprocess.Popen(words, start_new_session=True, text=True, stderr=stderr, **streams) as process,
    ):
        run = Watched(process, log)
        looker = threading.Thread(target=run.look_until, args=(over,), daemon=True)
        looker.start()
        try:
            yield run
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            over.set()
            looker.join()


def timed(command: Sequence[object], scratch: Path) -> Sample:
    """Run a command; return its seconds and its memory."""
    start = time.monotonic()
    with started(command, scratch) as run:
        run.wait()
        return {"seconds": time.monotonic() - start, **run.figures()}


def interleaved(measures: Mapping[str, Callable[[], Sample]], n_rounds: int) -> dict[str, list[Sample]]:
    """Measure in the order A B C, A B C, …, so that changes in the machine's load affect all contestants."""
    samples: dict[str, list[Sample]] = {name: [] for name in measures}
    for number in range(1, n_rounds + 1):
        for name, measure in measures.items():
            sample = measure()
            samples[name].append(sample)
            figures = [f"{key} {shown(key, value)}" for key, value in sample.items()]
            say(f"{number}/{n_rounds}  {name}: {', '.join(figures)}")
    return samples


def medians(samples: Sequence[Sample]) -> Sample:
    middle = {}
    for key in samples[0]:
        middle[key] = median(sample[key] for sample in samples)
    return middle


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
        rows = {name: medians(samples) for name, samples in self.samples.items()}
        for baseline in self.baselines:
            by = rows[baseline][self.figure]
            for row in rows.values():
                row[f"× {baseline}"] = row[self.figure] / by
        return rows

    def markdown(self) -> str:
        """The rows as a Markdown table, with title and note."""
        texts = {}
        for name, row in self.rows().items():
            texts[name] = {key: shown(key, value) for key, value in row.items()}
        return f"**{self.title}**\n\n{markdown_table(texts)}\n\n{self.note}"

    def as_json(self) -> dict[str, Any]:
        """All measurements and rows as a JSON value; command lines as typed in the project's root."""
        commands = {}
        for name, words in self.commands.items():
            line = shlex.join(map(str, words))
            commands[name] = line.replace(f"{ROOT}/", "")
        return {**vars(self), "commands": commands, "rows": self.rows()}


def markdown_table(rows: Mapping[str, Mapping[str, str]]) -> str:
    """A Markdown table of rows by name; a column that a row lacks is empty there."""
    columns = list(dict.fromkeys(itertools.chain(*rows.values())))
    lines = [["", *(column.replace("_", " ") for column in columns)]]
    lines.append(["---", *["---:"] * len(columns)])
    for name, row in rows.items():
        lines.append([name, *(row.get(column, "") for column in columns)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(key: str, value: float) -> str:
    """Format a figure: shares in per cent, others with two decimals below 100, else none."""
    if key == "of_peak":
        return f"{value:.0%}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def write_lines(file: Path, lines: Iterable[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines))
