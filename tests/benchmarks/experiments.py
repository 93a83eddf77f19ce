"""Shared by the programs that train and compare models, from the project's root: runs, scores, tables kept row by row.

They may be interrupted: a row that is in the tables is not made again, and `nmt train` resumes a run.
"""

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
    progress = newest.checkpoint.progress
    return {
        "parameters": sum(p.numel() for p in newest.checkpoint.model().parameters()),
        "target_tokens": progress["n_tokens"],
        "minutes": progress["elapsed_s"] / 60,
        "dev_BLEU": progress["best"],
    }


def scores(*options: object) -> dict[str, Row]:
    """BLEU, chrF2 and TER as `nmt eval OPTIONS` computes them, with their signatures."""
    (line,) = run_nmt("eval", "-q", "--json", "--bootstrap", 0, *options)
    return {one["name"]: one for one in json.loads(line)["scores"]}


class Results:
    """Tables of rows by name, in FILE.json and, for readers, in FILE.md."""

    def __init__(self, file: Path) -> None:
        self.file = file.with_suffix(".json")
        self.tables: dict[str, dict[str, Row]] = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.file.parent.mkdir(parents=True, exist_ok=True)

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
        return "\n".join(markdown(title, rows) for title, rows in self.tables.items() if rows)


def markdown(title: str, rows: dict[str, Row]) -> str:
    """A Markdown table, followed by the signatures of its scores."""
    columns = dict.fromkeys(column for row in rows.values() for column in row)
    table = markdown_table(columns, {name: [shown(row.get(key)) for key in columns] for name, row in rows.items()})
    scored = [value for row in rows.values() for value in row.values() if isinstance(value, dict)]
    signatures = sorted({f"{one['name']} `{one['signature']}`" for one in scored})
    return "\n\n".join([f"**{title}**", table, *([", ".join(signatures)] if signatures else [])]) + "\n"


def shown(value: object) -> str:
    """Format a figure for a table."""
    value = value["value"] if isinstance(value, dict) else value
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value or "")
