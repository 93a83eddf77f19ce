"""`nmt check --fix`: write cleaned copies of the files, and a list of changes with which they can be undone.

Each entry of the list contains original text: a pair that was dropped, a pair that was changed, or a line of one side
that has no partner. The original file consists of these lines and the unchanged lines of the cleaned file, in the order
of their line numbers.
"""

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

from nmt.corpus.blocks import tiled
from nmt.corpus.characters import MENDED
from nmt.corpus.check import Report
from nmt.corpus.reading import CorpusFiles, decode, side_lines
from nmt.errors import OutputError, os_errors_as
from nmt.files import atomic_writer
from nmt.text.corpus import SIDES

CHANGES = "changes.jsonl"


@dataclass(frozen=True)
class Repaired:
    """The cleaned copy of a corpus."""

    name: str
    files: tuple[Path, Path]
    n_pairs: int
    n_changed: int
    n_dropped: int  # pairs, and lines without a partner


@dataclass(frozen=True)
class Line:
    """A line of one side."""

    number: int  # from 1
    raw: bytes


def fix(report: Report, corpora: Sequence[CorpusFiles], directory: Path) -> list[Repaired]:
    """Write cleaned copies of all files, and `CHANGES`.

    Pairs of train that share a side with dev or test are dropped.

    Raises:
        OutputError: the directory exists and is not empty, or cannot be written.
    """
    with os_errors_as(OutputError, f"write {directory}", hint="choose another directory with --fix DIR"):
        if directory.exists() and any(directory.iterdir()):
            raise OutputError(f"{directory} is not empty", hint="choose another directory with --fix DIR")
        directory.mkdir(parents=True, exist_ok=True)
    held_out: tuple[set[str], set[str]] = (set(), set())
    for files in corpora[1:]:
        for texts, paths in zip(held_out, files.sides, strict=True):
            texts.update(decode(raw, number) for number, raw in enumerate(side_lines(paths), 1))
    for texts in held_out:
        texts.discard("")
    with atomic_writer(directory / CHANGES) as changes:
        none: tuple[set[str], set[str]] = (set(), set())
        return [
            _Repair(report, files, held_out if files is corpora[0] else none, changes).write(directory)
            for files in corpora
        ]


class _Repair:
    """The repair of one corpus."""

    def __init__(
        self, report: Report, files: CorpusFiles, held_out: tuple[set[str], set[str]], changes: IO[bytes]
    ) -> None:
        self.files = files
        self.held_out = held_out
        self.changes = changes
        n_pairs = next(min(one.n_source, one.n_target) for one in report.corpora if one.name == files.name)
        self.tiles = tiled(report.spans[files.name], n_pairs)
        self.kinds: dict[int, list[str]] = {}  # by number of the line to repair
        self.repairs = {"drop": set[str](), "clean": set[str](), "exchange": set[str]()}
        findings = [finding for finding in report.findings if finding.corpus == files.name]
        for finding in findings:
            if finding.kind.repair in self.repairs and finding.kind.name != "shuffled":
                self.repairs[finding.kind.repair].add(finding.kind.name)
                for line in finding.lines:
                    self.kinds.setdefault(line, []).append(finding.kind.name)
        self.is_swapped = any(finding.kind.name == "swapped" for finding in findings)
        self.n_pairs = self.n_changed = self.n_dropped = 0

    def write(self, directory: Path) -> Repaired:
        paths = output_paths(self.files, directory)
        with ExitStack() as stack:
            outputs = [stack.enter_context(atomic_writer(path)) for path in paths]
            for source, target, is_realigned in self.paired():
                if source is None or target is None:
                    self.note("dropped", ["no partner"], source, target)
                elif (texts := self.mended(source, target, is_realigned)) is not None:
                    self.n_pairs += 1
                    for output, text in zip(outputs, texts, strict=True):
                        output.write(text.encode() + b"\n")
        return Repaired(self.files.name, paths, self.n_pairs, self.n_changed, self.n_dropped)

    def paired(self) -> Iterator[tuple[Line | None, Line | None, bool]]:
        """All lines of both sides with their partners, and whether the line is in a misaligned block."""
        sources, targets = (
            (Line(number, raw) for number, raw in enumerate(side_lines(paths), 1)) for paths in self.files.sides
        )
        n_targets = 0  # read so far
        for span, following in pairwise([*self.tiles, None]):
            assert span is not None
            end = math.inf  # first target line of the next tile, which this tile must leave to it
            if following is not None and following.offset is not None:
                end = following.start + 1 + following.offset
            for source in itertools.islice(sources, span.end - span.start):
                partner = source.number + span.offset if span.offset is not None else 0
                while n_targets + 1 < min(partner, end) and (skipped := next(targets, None)) is not None:
                    n_targets += 1
                    yield None, skipped, False
                target = next(targets, None) if n_targets + 1 == partner < end else None
                n_targets += target is not None
                yield source, target, span.offset != 0
        for rest in sources:
            yield rest, None, False
        for rest in targets:
            yield None, rest, False

    def mended(self, source: Line, target: Line, is_realigned: bool) -> tuple[str, str] | None:
        """The cleaned texts of a pair; None if the pair is dropped. Adds to the list of changes."""
        texts = decode(source.raw, source.number), decode(target.raw, target.number)
        numbers = {source.number} if not is_realigned else {source.number, target.number}
        kinds = [kind for number in sorted(numbers) for kind in self.kinds.get(number, [])]
        if is_realigned:  # its other faults were due to the wrong pairing
            kinds = [kind for kind in kinds if kind in MENDED or kind in ("bom", "crlf")]
        dropped = [kind for kind in kinds if kind in self.repairs["drop"]]
        if any(text in held_out for text, held_out in zip(texts, self.held_out, strict=True)):
            dropped.append("leak")
        if dropped:
            self.note("dropped", dropped, source, target)
            return None
        new = texts
        for name, mend in MENDED.items():
            if name in kinds:
                new = mend(new[0]), mend(new[1])
        if "exchanged" in kinds or self.is_swapped:
            new = new[1], new[0]
            self.note("exchanged", [kind for kind in kinds if kind in self.repairs["exchange"]], source, target)
        elif new != texts or not {"bom", "crlf"}.isdisjoint(kinds):
            self.note("changed", [kind for kind in kinds if kind in self.repairs["clean"]], source, target)
        return new

    def note(self, action: str, kinds: list[str], source: Line | None, target: Line | None) -> None:
        self.n_dropped += action == "dropped"
        self.n_changed += action != "dropped"
        entry: dict[str, object] = {"corpus": self.files.name, "action": action, "kinds": kinds}
        for side, line in zip(SIDES, (source, target), strict=True):
            entry[f"{side}_line"] = line and line.number
            # A byte that is not UTF-8 becomes a lone surrogate, \udc80 to \udcff, from which it can be restored.
            entry[side] = line and line.raw.decode(errors="surrogateescape")
        self.changes.write(json.dumps(entry).encode() + b"\n")


def output_paths(files: CorpusFiles, directory: Path) -> tuple[Path, Path]:
    """The paths of the copies, such as train.de and train.en; if the suffixes are the same, .source and .target."""
    source, target = (Path(side[0].name.removesuffix(".gz")).suffix for side in files.sides)
    if source == target:
        source, target = ".source", ".target"
    return directory / f"{files.name}{source}", directory / f"{files.name}{target}"
