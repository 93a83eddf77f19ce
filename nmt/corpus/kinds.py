"""The kinds of fault that `nmt check` looks for, listed in `kinds.tsv`, and its findings.

An error would spoil training or a score, a warning costs quality, a note is worth knowing. Khayrallah & Koehn (2018,
"On the impact of various types of noise on neural machine translation") measure what faults cost: untranslated text
most by far, then misaligned pairs and wrong languages.
"""

import csv
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from pydantic import TypeAdapter

Severity = Literal["error", "warning", "note"]
# What --fix does with a line: drop the pair, clean its text, exchange its sides, pair it with another line, or nothing.
Repair = Literal["drop", "clean", "exchange", "realign", ""]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Kind:
    name: str
    severity: Severity  # of a fault whose share is below error_from
    error_from: float  # share of the lines, 0-1, from which the severity is error; inf for never
    repair: Repair
    title: str
    advice: str


@dataclass(frozen=True)
class Example:
    line: int  # from 1
    source: str
    target: str


@dataclass(frozen=True)
class Finding:
    """All lines of a corpus with the same kind of fault."""

    corpus: str  # train, dev or test; "corpus" if two files were checked without a config
    kind: Kind
    severity: Severity
    lines: list[int]  # ascending, from 1; empty if the fault concerns the whole corpus
    share: float  # of the lines of the corpus, 0-1
    detail: str
    examples: list[Example]


_TABLE = (resources.files("nmt.corpus") / "kinds.tsv").read_text(encoding="utf-8")
_ROWS = [*csv.DictReader(_TABLE.splitlines(), delimiter="\t")]
KINDS = {kind.name: kind for kind in TypeAdapter(list[Kind]).validate_python(_ROWS)}  # in the order of the table
