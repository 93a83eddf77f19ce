"""The kinds of fault that `nmt check` looks for, which `kinds.tsv` lists, and the findings of a check.

An error would spoil training or a score, a warning costs quality, and a note is worth knowing. Khayrallah & Koehn
(2018, "On the impact of various types of noise on neural machine translation") measure how much quality each kind of
fault costs. Untranslated text costs by far the most; misaligned pairs and wrong languages come next.
"""

import csv
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from pydantic import TypeAdapter

Severity = Literal["error", "warning", "note"]
# What --fix does with a faulty pair: drop the pair, clean both texts, exchange the two sides, pair the two lines with
# other lines, or nothing ("").
Repair = Literal["drop", "clean", "exchange", "realign", ""]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Kind:
    name: str
    severity: Severity  # the severity if the share of faulty lines is below `error_from`
    error_from: float  # if at least this share of the lines (0-1) is faulty, the severity is error; inf: never
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

    corpus: str  # name of the corpus: "train", "dev" or "test"; "corpus" for two files without a config
    kind: Kind
    severity: Severity
    lines: list[int]  # ascending line numbers, counted from 1; empty if the whole corpus is faulty
    share: float  # share of the lines of the corpus that have the fault, 0-1
    detail: str
    examples: list[Example]


_TABLE = (resources.files("nmt.corpus") / "kinds.tsv").read_text(encoding="utf-8")
_ROWS = [*csv.DictReader(_TABLE.splitlines(), delimiter="\t")]
KINDS = {kind.name: kind for kind in TypeAdapter(list[Kind]).validate_python(_ROWS)}  # kinds by name, in table order
