"""`nmt check --fix`: write cleaned copies of the files, and a list of changes. The original files are left alone.

An entry has the line numbers, in the original files, of a pair that was dropped or changed, or of a line of one side
that has no partner, the action, and the kinds of fault.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nmt.corpus.characters import MENDED, TESTS
from nmt.corpus.check import Report
from nmt.corpus.kinds import KINDS
from nmt.corpus.pairing import Run
from nmt.corpus.reading import CorpusFiles, Survey, decode, is_utf8, side_lines
from nmt.errors import DataError, OutputError, os_errors_as
from nmt.files import atomic_writer
from nmt.text.corpus_files import SIDES
from nmt.text.lines import is_blank, one_line

MAX_ROUNDS = 9  # of mending a line: &am\0p; becomes &amp; and then &
MIN_PAIRED = 0.5  # share of the lines of a corpus that must have a partner
CHANGES = "changes.jsonl"
UNUSABLE = ("blank", "encoding")  # the kinds of fault for which a pair is dropped from dev and test, too
Texts = tuple[set[str], set[str]]  # of both sides


@dataclass(frozen=True)
class Line:
    number: int  # from 1
    raw: bytes


def fix(report: Report, corpora: Sequence[CorpusFiles], directory: Path) -> list["Repair"]:
    """Write cleaned copies of all files, and `CHANGES`.

    What is written is compared: a pair of train is dropped if it repeats an earlier pair, or shares a side with dev or
    test. From dev and test, pairs are dropped only if they are `UNUSABLE` or have no partner.
    Raises OutputError if the directory exists and is not empty, or cannot be written; DataError, before anything is
    written, if most lines of a corpus have no partner.
    """
    for survey in report.corpora:
        refuse_unrelated(survey, report.runs[survey.files.name])
    with os_errors_as(OutputError, f"write {directory}", hint="choose another directory with --fix DIR"):
        if directory.exists() and any(directory.iterdir()):
            raise OutputError(f"{directory} is not empty", hint="choose another directory with --fix DIR")
        directory.mkdir(parents=True, exist_ok=True)
    held_out: Texts = (set(), set())
    with atomic_writer(directory / CHANGES) as changes:
        repairs = [Repair(report, files, held_out, changes, is_train=files is corpora[0]) for files in corpora]
        for repair in [*repairs[1:], repairs[0]]:  # train last, without what dev and test now contain
            repair.write(directory)
    return repairs


def refuse_unrelated(survey: Survey, runs: Sequence[Run]) -> None:
    """Raise DataError if most lines of a corpus have no partner: what would be written is no parallel text."""
    n_paired = sum(len(run) for run in runs)
    if n_paired >= MIN_PAIRED * survey.n_pairs:
        return
    source, target = (" + ".join(map(str, paths)) for paths in survey.files.sides)
    raise DataError(
        f"nothing is written: {survey.n_pairs - n_paired:,} of {survey.n_pairs:,} lines of {source} and {target} "
        "have no translation in the other file that --fix could find",
        hint="find the file that belongs to the other one, or mend the lines where they part by hand",
    )


class Repair:
    """The repair of one corpus. `held_out` are the written texts of dev and test, which are repaired before train."""

    def __init__(
        self, report: Report, files: CorpusFiles, held_out: Texts, changes: IO[bytes], *, is_train: bool
    ) -> None:
        self.files = files
        self.held_out = held_out
        self.changes = changes
        self.is_train = is_train
        self.written: set[int] = set()  # hashes of the pairs of train that were written
        self.runs = report.runs[files.name]
        self.kinds: dict[int, list[str]] = {}  # to drop or exchange, by line number; texts are cleaned if they need it
        for finding in report.findings:
            name, repair = finding.kind.name, finding.kind.repair
            is_dropped = repair == "drop" and (is_train or name in UNUSABLE) and name != "duplicate"  # found anew
            if finding.corpus == files.name and (repair == "exchange" or is_dropped):
                for line in finding.lines:
                    self.kinds.setdefault(line, []).append(name)
        self.paths: tuple[Path, ...] = ()  # of the cleaned copy
        self.n_pairs = self.n_changed = 0
        self.n_dropped = 0  # pairs, and lines without a partner
        self.n_realigned = 0  # pairs of lines with different numbers

    def write(self, directory: Path) -> None:
        self.paths = output_paths(self.files, directory)
        with ExitStack() as stack:
            outputs = [stack.enter_context(atomic_writer(path)) for path in self.paths]
            for source, target in self.paired():
                if source is None or target is None:
                    self.note("dropped", ["no partner"], source, target)
                elif (texts := self.mended(source, target)) is not None:
                    self.n_pairs += 1
                    self.n_realigned += source.number != target.number
                    for output, text in zip(outputs, texts, strict=True):
                        output.write(text.encode() + b"\n")

    def paired(self) -> Iterator[tuple[Line | None, Line | None]]:
        """All lines of both sides in order: pairs, and lines without a partner."""
        sources, targets = (itertools.starmap(Line, enumerate(side_lines(paths), 1)) for paths in self.files.sides)
        n_sources = n_targets = 0  # lines that were read
        for run in self.runs:
            yield from ((line, None) for line in itertools.islice(sources, run.start - n_sources))
            yield from ((None, line) for line in itertools.islice(targets, run.start + run.offset - n_targets))
            yield from zip(itertools.islice(sources, len(run)), itertools.islice(targets, len(run)), strict=True)
            n_sources, n_targets = run.end, run.end + run.offset
        yield from ((line, None) for line in sources)
        yield from ((None, line) for line in targets)

    def mended(self, source: Line, target: Line) -> tuple[str, str] | None:
        """The cleaned texts of a pair; None if the pair is dropped. Adds to the list of changes."""
        new = decode(source.raw), decode(target.raw)
        kinds = self.kinds.get(source.number, [])
        if source.number != target.number:  # other faults were due to the wrong pairing, or are of another target line
            kinds = [] if all(map(is_utf8, (source.raw, target.raw))) else ["encoding"]
        before, n_rounds = ("", ""), 0
        while new != before and n_rounds < MAX_ROUNDS:  # what one function leaves, another mends
            before, n_rounds = new, n_rounds + 1
            for name, mend in MENDED.items():
                if any(map(TESTS[name], new)):
                    new = one_line(mend(new[0])), one_line(mend(new[1]))  # an entity may stand for a line end
                    kinds = kinds if name in kinds else [*kinds, name]
        is_exchanged = "exchanged" in kinds
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
        self.changes.write(json.dumps(entry).encode() + b"\n")


def of_repair(repair: str, kinds: list[str]) -> list[str]:
    return [kind for kind in kinds if KINDS[kind].repair == repair]


def output_paths(files: CorpusFiles, directory: Path) -> tuple[Path, Path]:
    """The paths of the copies, such as train.de and train.en; if the suffixes are the same, .source and .target."""
    source, target = (Path(side[0].name.removesuffix(".gz")).suffix for side in files.sides)
    if source == target:
        source, target = ".source", ".target"
    return directory / f"{files.name}{source}", directory / f"{files.name}{target}"
