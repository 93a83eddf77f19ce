"""The kinds of fault that `nmt check` looks for, read from `kinds.tsv`, and the findings of a check.

An error spoils training or a score, a warning costs quality, and a note is worth knowing. Khayrallah & Koehn (2018, "On
the impact of various types of noise on neural machine translation") measure what such faults cost. Untranslated text
costs by far the most.
"""

import csv
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from pydantic import TypeAdapter

Severity = Literal["error", "warning", "note"]
# What --fix does with a faulty pair. For "realign", it pairs the lines with other lines. For "", it does nothing.
Repair = Literal["drop", "clean", "exchange", "realign", ""]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Kind:
    name: str
    severity: Severity  # severity if the share of faulty lines is below `error_from`
    error_from: float  # the fault is an error if at least this share of the lines has it, 0-1; inf: never
    repair: Repair
    title: str
    advice: str


@dataclass(frozen=True)
class Example:
    line: int  # line number, counted from 1
    source: str
    target: str


@dataclass(frozen=True)
class Finding:
    """All lines of a corpus with the same kind of fault."""

    corpus: str  # "train", "dev" or "test"; "corpus" for two files without a config
    kind: Kind
    severity: Severity
    lines: list[int]  # ascending line numbers, counted from 1; empty if the whole corpus is faulty
    share: float  # share of the lines of the corpus, 0-1
    detail: str
    examples: list[Example]


_TABLE = (resources.files("nmt.corpus") / "kinds.tsv").read_text(encoding="utf-8")
_ROWS = [*csv.DictReader(_TABLE.splitlines(), delimiter="\t")]
KINDS = {kind.name: kind for kind in TypeAdapter(list[Kind]).validate_python(_ROWS)}  # kinds by name, in table order
