"""`nmt check --fix`: write cleaned copies of the files, and a list of changes with which they can be undone.

Each entry contains original text: a pair that was dropped, a pair that was changed, or a line of one side that has no
partner. The original files consist of these lines and the unchanged lines of the cleaned file, in the order of their
line numbers.
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
from nmt.corpus.kinds import KINDS
from nmt.corpus.reading import CorpusFiles, decode, is_utf8, side_lines
from nmt.errors import OutputError, os_errors_as
from nmt.files import atomic_writer
from nmt.text.corpus import SIDES
from nmt.text.lines import is_blank, one_line

CHANGES = "changes.jsonl"
UNUSABLE = ("blank", "encoding")  # the kinds of fault for which a pair is dropped from dev and test, too
AMONG_WRITTEN = {"shuffled", "duplicate"}  # repaired by realigned blocks, and by comparing what is written
OF_A_LINE = (*MENDED, "bom", "crlf")  # kinds that do not depend on the pairing of lines
Texts = tuple[set[str], set[str]]  # of both sides


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

    What is written is compared: a pair of train is dropped if it repeats an earlier pair, or shares a side with dev or
    test. From dev and test, pairs are dropped only if they are `UNUSABLE` or have no partner.

    Raises:
        OutputError: the directory exists and is not empty, or cannot be written.
    """
    with os_errors_as(OutputError, f"write {directory}", hint="choose another directory with --fix DIR"):
        if directory.exists() and any(directory.iterdir()):
            raise OutputError(f"{directory} is not empty", hint="choose another directory with --fix DIR")
        directory.mkdir(parents=True, exist_ok=True)
    held_out: Texts = (set(), set())
    with atomic_writer(directory / CHANGES) as changes:
        others = [_Repair(report, files, held_out, changes, is_train=False).write(directory) for files in corpora[1:]]
        return [_Repair(report, corpora[0], held_out, changes, is_train=True).write(directory), *others]


class _Repair:
    """The repair of one corpus. `held_out` are the written texts of dev and test, which are repaired before train."""

    def __init__(
        self, report: Report, files: CorpusFiles, held_out: Texts, changes: IO[bytes], *, is_train: bool
    ) -> None:
        self.files = files
        self.held_out = held_out
        self.changes = changes
        self.is_train = is_train
        self.written: set[int] = set()  # hashes of the pairs of train that were written
        n_pairs = next(one.n_pairs for one in report.corpora if one.files == files)
        self.tiles = tiled(report.spans[files.name], n_pairs)
        self.kinds: dict[int, list[str]] = {}  # by number of the line to repair
        findings = {finding.kind.name: finding for finding in report.findings if finding.corpus == files.name}
        self.is_swapped = "swapped" in findings
        for name, finding in findings.items():
            repair = "" if name in AMONG_WRITTEN else finding.kind.repair
            if repair in ("clean", "exchange") or (repair == "drop" and (is_train or name in UNUSABLE)):
                for line in finding.lines:
                    self.kinds.setdefault(line, []).append(name)
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
        sources, targets = (itertools.starmap(Line, enumerate(side_lines(paths), 1)) for paths in self.files.sides)
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
        yield from ((rest, None, False) for rest in sources)
        yield from ((None, rest, False) for rest in targets)

    def mended(self, source: Line, target: Line, is_realigned: bool) -> tuple[str, str] | None:
        """The cleaned texts of a pair; None if the pair is dropped. Adds to the list of changes."""
        texts = decode(source.raw, source.number), decode(target.raw, target.number)
        kinds = self.kinds.get(source.number, [])
        if is_realigned:  # its other faults were due to the wrong pairing, or are those of another target line
            both = dict.fromkeys([*kinds, *self.kinds.get(target.number, [])])
            kinds = [kind for kind in both if kind in OF_A_LINE]
            kinds += [] if all(map(is_utf8, (source.raw, target.raw))) else ["encoding"]
        new = texts
        for name, mend in MENDED.items():
            if name in kinds:
                new = one_line(mend(new[0])), one_line(mend(new[1]))  # an entity may stand for a line end
        is_exchanged = "exchanged" in kinds or self.is_swapped
        if is_exchanged:
            new = new[1], new[0]
        kinds = [*kinds, "blank"] if any(map(is_blank, new)) and "blank" not in kinds else kinds
        if dropped := of_repair("drop", kinds) or self.repeated(new):
            self.note("dropped", dropped, source, target)
            return None
        if is_exchanged:
            self.note("exchanged", of_repair("exchange", kinds), source, target)
        elif tuple(text.encode() for text in new) != (source.raw, target.raw):
            self.note("changed", of_repair("clean", kinds), source, target)
        return new

    def repeated(self, pair: tuple[str, str]) -> list[str]:
        """What a pair that would be written repeats, as kinds of fault; remembers the pair."""
        if not self.is_train:
            for text, held_out in zip(pair, self.held_out, strict=True):
                held_out.add(text)
            return []
        if any(text in held_out for text, held_out in zip(pair, self.held_out, strict=True)):
            return ["leak"]
        if (key := hash(pair)) in self.written:
            return ["duplicate"]
        self.written.add(key)
        return []

    def note(self, action: str, kinds: list[str], source: Line | None, target: Line | None) -> None:
        self.n_dropped += action == "dropped"
        self.n_changed += action != "dropped"
        entry: dict[str, object] = {"corpus": self.files.name, "action": action, "kinds": kinds}
        for side, line in zip(SIDES, (source, target), strict=True):
            entry[f"{side}_line"] = line and line.number
            # A byte that is not UTF-8 becomes a lone surrogate, \udc80 to \udcff, from which it can be restored.
            entry[side] = line and line.raw.decode(errors="surrogateescape")
        self.changes.write(json.dumps(entry).encode() + b"\n")


def of_repair(repair: str, kinds: list[str]) -> list[str]:
    return [kind for kind in kinds if KINDS[kind].repair == repair]


def output_paths(files: CorpusFiles, directory: Path) -> tuple[Path, Path]:
    """The paths of the copies, such as train.de and train.en; if the suffixes are the same, .source and .target."""
    source, target = (Path(side[0].name.removesuffix(".gz")).suffix for side in files.sides)
    if source == target:
        source, target = ".source", ".target"
    return directory / f"{files.name}{source}", directory / f"{files.name}{target}"
