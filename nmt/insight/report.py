"""The report of a run: curves of its metrics, sample translations over time, and faults of its translations."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sacrebleu

from nmt.config import Config, language
from nmt.evaluate import Score, bleu_tokenizer, score
from nmt.insight import pages
from nmt.insight.curves import CHARTS, Curves
from nmt.insight.sentences import LENGTHS, group_index, group_names, n_words, numbers, words
from nmt.run.directory import LinesReader, RunDirectory, kind_of

N_EXAMPLES = 5


@dataclass(frozen=True)
class Example:
    """A line of a test set and its translation."""

    source: str
    reference: str
    translation: str
    chrf: float  # sentence chrF, 0-100


@dataclass(frozen=True)
class LengthGroup:
    """Lines whose source has about the same length."""

    name: str
    n_lines: int
    bleu: float  # of the group, 0-100


@dataclass(frozen=True)
class Fault:
    """Translations in which something is probably wrong."""

    name: str
    n_lines: int
    share: float  # of all lines, 0-1
    examples: list[Example]


@dataclass(frozen=True)
class Evaluation:
    """The translations of a test set: scores, the best and the worst lines, faults."""

    corpus: str  # test or dev
    n_lines: int
    scores: list[Score]
    best: list[Example]
    worst: list[Example]
    lengths: list[LengthGroup]
    faults: list[Fault]


@dataclass(frozen=True)
class RunReport:
    """The state of a run, which may still be training."""

    name: str
    curves: dict[str, list[float | None]]  # by name, one value per point; "step" is the x axis
    validations: list[dict[str, Any]]  # the validation lines of metrics.jsonl, without warnings
    warnings: list[tuple[int, str]]  # step and text
    is_finished: bool  # True after checkpoints are averaged at the end of training; otherwise unknown
    settings: dict[str, Any]
    manifest: dict[str, Any]
    evaluation: Evaluation | None


def read_report(path: Path, evaluation: Evaluation | None = None) -> RunReport:
    """Read the report of a run from its files; see `ReportReader.read`."""
    return ReportReader(path).read(evaluation)


class ReportReader:
    """Reads the report of a run repeatedly while it trains; each call parses only the new lines of metrics.jsonl."""

    def __init__(self, path: Path) -> None:
        self.run = RunDirectory(path)
        self.metrics = LinesReader(self.run.metrics_file)
        self.curves = Curves()
        self.validations: list[dict[str, Any]] = []
        self.is_finished = False

    def read(self, evaluation: Evaluation | None = None) -> RunReport:
        """Return the current report.

        Raises:
            ModelError: the directory is not a run.
        """
        config = self.run.read_config()
        lines, starts_over = self.metrics.new_lines()
        if starts_over:
            self.curves, self.validations, self.is_finished = Curves(), [], False
        for line in lines:
            self.curves.add(line)
            if kind_of(line) == "validation":
                self.validations.append(line)
            elif kind_of(line) == "average":
                self.is_finished = True
        return RunReport(
            name=str(self.run.path),
            curves=self.curves.by_name(),
            validations=[{key: value for key, value in line.items() if key != "warnings"} for line in self.validations],
            warnings=[(line["step"], text) for line in self.validations for text in line.get("warnings", [])],
            is_finished=self.is_finished,
            settings=config.model_dump(),
            manifest=self.run.read_manifest(),
            evaluation=evaluation,
        )


# --- the translations of a test set -----------------------------------------------------------------------


def evaluated(
    corpus: str, sources: Sequence[str], references: Sequence[str], translations: Sequence[str], config: Config
) -> Evaluation:
    """Score the translations of a test set and find their faults.

    Args:
        corpus: name of the test set.
        sources, references, translations: lists of the same length.
        config: config of the run, for the target language.
    """
    tokenize = bleu_tokenizer(language(config.data, "target"))
    chrf = sacrebleu.CHRF()
    lines = [
        Example(source, reference, translation, chrf.sentence_score(translation, [reference]).score)
        for source, reference, translation in zip(sources, references, translations, strict=True)
    ]
    by_score = sorted(lines, key=lambda line: line.chrf)
    groups: dict[int, list[Example]] = {}
    for line in lines:
        groups.setdefault(group_index(n_words(line.source), LENGTHS), []).append(line)

    def bleu(group: Sequence[Example]) -> float:
        hypotheses, own = [line.translation for line in group], [line.reference for line in group]
        return score(hypotheses, [own], ("bleu",), tokenize=tokenize)[0].value

    names = group_names(LENGTHS)
    return Evaluation(
        corpus=corpus,
        n_lines=len(lines),
        scores=score(translations, [references], ("bleu", "chrf", "ter"), tokenize=tokenize, n_bootstrap=1000),
        best=by_score[::-1][:N_EXAMPLES],
        worst=by_score[:N_EXAMPLES],
        lengths=[LengthGroup(names[i], len(group), bleu(group)) for i, group in sorted(groups.items())],
        faults=find_faults(lines),
    )


def find_faults(lines: Sequence[Example]) -> list[Fault]:
    """Find translations that are empty, repeat words, copy the source, have an unusual length or change numbers."""
    ratio = sorted((n_words(line.reference) + 1) / (n_words(line.source) + 1) for line in lines)[len(lines) // 2]
    tests: dict[str, Callable[[Example], bool]] = {
        "empty": lambda line: bool(line.source.strip()) and not line.translation.strip(),
        "repetition": lambda line: repeats(line.translation) and not repeats(line.reference),
        "source copied": lambda line: is_copy(line) and line.reference != line.source,
        "much too short": lambda line: n_words(line.translation) + 1 < 0.5 * ratio * (n_words(line.source) + 1),
        "much too long": lambda line: n_words(line.translation) + 1 > 2 * ratio * (n_words(line.source) + 1) + 3,
        "other numbers": lambda line: numbers(line.translation) != numbers(line.source) == numbers(line.reference),
    }
    found = []
    for name, test in tests.items():
        hit = [line for line in lines if test(line)]
        if hit:
            found.append(Fault(name, len(hit), len(hit) / len(lines), hit[:N_EXAMPLES]))
    return found


def repeats(text: str) -> bool:
    """Return whether a sequence of one to four words occurs three times in a row."""
    units = words(text)
    return any(
        units[i : i + n] == units[i + n : i + 2 * n] == units[i + 2 * n : i + 3 * n]
        for n in (1, 2, 3, 4)
        for i in range(len(units) - 3 * n + 1)
    )


def is_copy(line: Example) -> bool:
    """Return whether a translation has at least three words, more than 80 % of which are in the source."""
    own = Counter(words(line.translation))
    return own.total() >= 3 and (own & Counter(words(line.source))).total() > 0.8 * own.total()


def as_page(reports: Iterable[RunReport]) -> str:
    """The reports of one or several runs as a self-contained page; curves of several runs share their axes."""
    found = list(reports)
    charts = [[metric, *texts] for metric, texts in CHARTS.items()]
    title = ", ".join(report.name for report in found)
    return pages.page("report", f"{title} – nmt report", pages.plain({"runs": found, "charts": charts}, pages.packed))
