"""The repair of parallel text, for `nmt check --fix`: cleaned copies of the files, and a list of changes.

The original files stay unchanged. The list has an entry for each dropped or changed pair, and for each line without a
partner. An entry has the original line numbers, the action, and the kinds of fault.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

from nmt.corpus.characters import MENDED, TESTS
from nmt.corpus.check import CheckReport
from nmt.corpus.kinds import KINDS, Kind
from nmt.corpus.pairing import Run
from nmt.corpus.reading import CorpusFiles, Survey, decode, is_utf8, side_lines
from nmt.errors import DataError, OutputError, os_errors_as
from nmt.files import atomic_writer
from nmt.languages import language_of_file
from nmt.text.corpus_files import SIDES
from nmt.text.lines import is_blank, one_line

MAX_ROUNDS = 9  # maximum number of rounds of mending a line; &am\0p; becomes &amp; and then &
MAX_UNPAIRED = 0.5  # maximum share of lines without a partner
CHANGES = "changes.jsonl"  # name of the list of changes
UNUSABLE = ("blank", "encoding")  # the faults for which dev and test pairs are dropped
Texts = tuple[str, str]  # source and target of a pair
HeldOut = tuple[set[str], set[str]]  # the sources and the targets of the dev and test pairs that were written


class RawLine(NamedTuple):
    number: int  # line number, counted from 1
    raw: bytes


def fix(report: CheckReport, corpora: Sequence[CorpusFiles], directory: Path) -> list["CorpusRepair"]:
    """Write cleaned copies of all files, and the list `CHANGES`.

    - Lines without a partner are dropped.
    - Training pairs are dropped for faults with the repair "drop", and if they are leaks or duplicates.
    - Dev and test pairs are dropped only for `UNUSABLE` faults.

    Raises:
        OutputError: the directory is not empty, or cannot be written.
        DataError: most lines of a corpus have no partner. Then nothing is written.
    """
    for survey in report.corpora:
        refuse_unrelated(survey, report.runs[survey.files.name])
    with os_errors_as(OutputError, f"write {directory}", hint="choose another directory with --fix DIR"):
        if directory.exists() and any(directory.iterdir()):
            raise OutputError(f"{directory} is not empty", hint="choose another directory with --fix DIR")
        directory.mkdir(parents=True, exist_ok=True)
    train = corpora[0]
    held_out: HeldOut = (set(), set())
    with atomic_writer(directory / CHANGES) as changes:
        repairs = [CorpusRepair(report, files, held_out, changes, is_train=files is train) for files in corpora]
        # The training corpus comes last, because it must share no text with the repaired dev and test pairs.
        for repair in [*repairs[1:], repairs[0]]:
            repair.write(directory)
    return repairs


def refuse_unrelated(survey: Survey, runs: Sequence[Run]) -> None:
    """Raise DataError if most lines of a corpus have no partner."""
    n_unpaired = survey.n_pairs - sum(map(len, runs))
    if n_unpaired <= MAX_UNPAIRED * survey.n_pairs:
        return
    raise DataError(
        f"nothing is written: {n_unpaired:,} of {survey.n_pairs:,} lines of {survey.files} "
        "have no translation in the other file that --fix could find",
        hint="find the file that belongs to the other one, or mend the lines where they part by hand",
    )


class CorpusRepair:
    """The repair of one corpus.

    Dev and test corpora come first. They fill `held_out`, which the training corpus needs.
    """

    def __init__(
        self, report: CheckReport, files: CorpusFiles, held_out: HeldOut, changes: IO[bytes], *, is_train: bool
    ) -> None:
        self.files = files
        self.held_out = held_out
        self.changes = changes
        self.is_train = is_train
        self.written: set[int] = set()  # hashes of the training pairs that were written
        self.runs = report.runs[files.name]
        # The faults for which a pair is dropped or exchanged, by line number. `mend` itself finds faults to clean.
        self.kinds = defaultdict[int, list[str]](list)
        for finding in report.findings:
            if finding.corpus == files.name and self.is_wanted(finding.kind):
                for line in finding.lines:
                    self.kinds[line].append(finding.kind.name)
        self.paths: tuple[Path, ...] = ()  # source and target file of the cleaned copy
        self.counts = Counter[str]()  # number of entries in the list of changes, by action
        self.kept: set[int] = set()  # numbers of the source lines of written pairs
        self.n_realigned = 0  # written pairs with two different line numbers

    def is_wanted(self, kind: Kind) -> bool:
        """Return whether pairs with this kind of fault are dropped or exchanged.

        Duplicates do not count, because `repeated` finds them after cleaning.
        """
        if kind.repair == "drop":
            return kind.name != "duplicate" and (self.is_train or kind.name in UNUSABLE)
        return kind.repair == "exchange"

    def write(self, directory: Path) -> None:
        self.paths = output_paths(self.files, directory)
        with ExitStack() as stack:
            files = [stack.enter_context(atomic_writer(path)) for path in self.paths]
            for source, target in self.paired():
                if source is None or target is None:
                    self.note("dropped", ["no partner"], source, target)
                    continue
                texts = self.mend(source, target)
                if texts is not None:
                    self.kept.add(source.number)
                    self.n_realigned += source.number != target.number
                    for file, text in zip(files, texts, strict=True):
                        file.write(f"{text}\n".encode())

    def paired(self) -> Iterator[tuple[RawLine | None, RawLine | None]]:
        """Yield all lines of both sides in order: pairs, and lines without a partner."""
        sources, targets = numbered_lines(self.files.source), numbered_lines(self.files.target)
        n_sources = n_targets = 0  # numbers of lines read so far
        for run in self.runs:
            # The lines between the previous run and this run have no partners.
            for source in islice(sources, run.start - n_sources):
                yield source, None
            for target in islice(targets, run.target_start - n_targets):
                yield None, target
            yield from zip(islice(sources, len(run)), islice(targets, len(run)), strict=True)
            n_sources, n_targets = run.end, run.target_end
        for source in sources:
            yield source, None
        for target in targets:
            yield None, target

    def mend(self, source: RawLine, target: RawLine) -> Texts | None:
        """Return the cleaned texts of a pair, or None if the pair is dropped. List each change in `CHANGES`."""
        # 1. Clean the texts. If the sides are exchanged, exchange them back.
        texts, cleaned_kinds = cleaned((decode(source.raw), decode(target.raw)))
        kinds = [*self.known_kinds(source, target), *cleaned_kinds]
        if is_blank(texts[0]) or is_blank(texts[1]):
            kinds.append("blank")
        kinds = list(dict.fromkeys(kinds))
        is_exchanged = "exchanged" in kinds
        if is_exchanged:
            texts = texts[1], texts[0]
        # 2. Drop the pair, or list the change.
        reasons = of_repair("drop", kinds) or self.repeated(texts)
        if reasons:
            self.note("dropped", reasons, source, target)
            return None
        if is_exchanged:
            self.note("exchanged", ["exchanged"], source, target)
        elif (texts[0].encode(), texts[1].encode()) != (source.raw, target.raw):
            self.note("changed", of_repair("clean", kinds) or ["line end"], source, target)
        return texts

    def known_kinds(self, source: RawLine, target: RawLine) -> list[str]:
        """Return the faults of a pair that cannot be mended. The pair is dropped, or its sides are exchanged."""
        if source.number == target.number:
            return self.kinds.get(source.number, [])
        # The check compared these lines with other lines, so its findings do not apply. Test the encoding again.
        return [] if is_utf8(source.raw) and is_utf8(target.raw) else ["encoding"]

    def repeated(self, texts: Texts) -> list[str]:
        """Return ["leak"] or ["duplicate"] if a training pair must not be written, else [].

        A leak shares a side with a dev or test pair. A duplicate repeats an earlier training pair.
        """
        source, target = texts
        held_out_sources, held_out_targets = self.held_out
        if not self.is_train:
            held_out_sources.add(source)
            held_out_targets.add(target)
            return []
        if source in held_out_sources or target in held_out_targets:
            return ["leak"]
        key = hash(texts)
        if key in self.written:
            return ["duplicate"]
        self.written.add(key)
        return []

    def note(self, action: str, kinds: list[str], source: RawLine | None, target: RawLine | None) -> None:
        """Add an entry to the list of changes."""
        self.counts[action] += 1
        entry = {
            "corpus": self.files.name,
            "action": action,
            "kinds": kinds,
            "source_line": source and source.number,
            "target_line": target and target.number,
        }
        self.changes.write(json.dumps(entry).encode() + b"\n")


def numbered_lines(paths: Sequence[Path]) -> Iterator[RawLine]:
    for number, raw in enumerate(side_lines(paths), 1):
        yield RawLine(number, raw)


def cleaned(texts: Texts) -> tuple[Texts, list[str]]:
    """Return the cleaned texts of a pair, and the kinds of fault that were mended."""
    kinds = []
    for _ in range(MAX_ROUNDS):  # mending one fault can expose another one
        before = texts
        for kind, mend in MENDED.items():
            is_faulty = TESTS[kind]
            if is_faulty(texts[0]) or is_faulty(texts[1]):
                texts = one_line(mend(texts[0])), one_line(mend(texts[1]))  # an HTML entity may have become a line end
                kinds.append(kind)
        if texts == before:
            break
    return texts, kinds


def of_repair(repair: str, kinds: list[str]) -> list[str]:
    return [kind for kind in kinds if KINDS[kind].repair == repair]


def output_paths(files: CorpusFiles, directory: Path) -> tuple[Path, Path]:
    """Return the paths of the copies, such as train.de and train.en.

    If the languages are unknown or equal, they are train.source and train.target.
    """
    source, target = language_of_file(files.source[0]), language_of_file(files.target[0])
    if source == target or not (source and target):
        source, target = SIDES
    return directory / f"{files.name}.{source}", directory / f"{files.name}.{target}"
