"""Shared by the programs that train and compare models, from the project's root: runs, scores, tables kept row by row.

They may be interrupted: a row that is in the tables is not made again, and `nmt train` resumes a run.
"""

import itertools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import NMT, markdown_table, say

from nmt.files import atomic_write
from nmt.run.checkpoint import read_newest
from nmt.run.directory import RunDirectory

Row = dict[str, Any]


def run_nmt(*arguments: object) -> list[str]:
    """Run `nmt ARGUMENTS`; return its output lines."""
    command = [*NMT, *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def trained(config: Path, run: Path, *overrides: str) -> Row:
    """Train until the run is finished; return its size, its cost, and its best dev figure."""
    run_nmt("train", config, f"run={run}", *overrides)
    newest = read_newest(RunDirectory(run), prefixes=("model",))
    assert newest is not None
    model = newest.checkpoint.model()
    progress = newest.checkpoint.progress
    minutes = progress["elapsed_s"] / 60
    cost = {"parameters": model.n_parameters, "target_tokens": progress["n_tokens"], "minutes": minutes}
    return cost | {"dev_BLEU": progress["best_figures"]["dev_bleu"]}


def scores(*options: object) -> dict[str, Row]:
    """BLEU, chrF2 and TER as `nmt eval OPTIONS` computes them, with their signatures."""
    (line,) = run_nmt("eval", "-q", "--json", "--bootstrap", 0, *options)
    return {score["name"]: score for score in json.loads(line)["scores"]}


class Results:
    """Tables of rows by name, in FILE.json and, for readers, in FILE.md."""

    def __init__(self, file: Path) -> None:
        self.file = file.with_suffix(".json")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.tables: dict[str, dict[str, Row]] = {}  # by title, then by name
        if self.file.exists():  # the program was interrupted, or ended
            self.tables = json.loads(self.file.read_text())

    def add(self, title: str, name: str, make: Callable[[], Row]) -> Row:
        """Make a row of a table and write all tables, unless the row is there."""
        rows = self.tables.setdefault(title, {})
        if name not in rows:
            say(f"--- {title}: {name}")
            rows[name] = make()
            atomic_write(self.file, json.dumps(self.tables, indent=1, ensure_ascii=False) + "\n")
            atomic_write(self.file.with_suffix(".md"), self.markdown())
        return rows[name]

    def markdown(self) -> str:
        return "\n".join(itertools.starmap(markdown, self.tables.items()))


def markdown(title: str, rows: dict[str, Row]) -> str:
    """A Markdown table, followed by the signatures of its scores."""
    texts = {}
    signatures = set()
    for name, row in rows.items():
        texts[name] = {key: shown(value) for key, value in row.items()}
        scores_of_row = [value for value in row.values() if isinstance(value, dict)]
        signatures |= {f"{score['name']} `{score['signature']}`" for score in scores_of_row}
    parts = [f"**{title}**", markdown_table(texts), ", ".join(sorted(signatures))]
    return "\n\n".join(part for part in parts if part) + "\n"


def shown(value: object) -> str:
    """Format a figure or a score for a table."""
    if isinstance(value, dict):
        value = value["value"]
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value or "")
