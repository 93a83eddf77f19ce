"""The report of a run: curves of its metrics, sample translations over time, and faults of its translations."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config import Config, language
from nmt.corpus import pairs
from nmt.errors import ModelError
from nmt.evaluate import Score, bleu_tokenizer, score
from nmt.insight import pages
from nmt.insight.compare import EvaluationSet, Group, by_length, compared_lines
from nmt.insight.curves import CHARTS, Curves
from nmt.insight.sentences import n_words
from nmt.run.directory import LinesReader, RunDirectory, kind_of
from nmt.run.header import read_header

N_EXAMPLES = 5


@dataclass(frozen=True)
class Example:
    """A line of a test set and its translation."""

    source: str
    reference: str
    translation: str
    chrf: float  # sentence chrF, 0-100


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
    lengths: list[Group]  # lines whose source has about the same length
    faults: list[Fault]


@dataclass(frozen=True)
class RunReport:
    """The state of a run, which may still be training."""

    name: str
    curves: dict[str, list[float | None]]  # by name, one value per point; "step" is the x axis
    validations: list[dict[str, Any]]  # the validation lines of metrics.jsonl, without warnings
    warnings: list[tuple[int, str]]  # step and text
    is_finished: bool  # whether training has reached a limit and saved its last checkpoint
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

    def read(self, evaluation: Evaluation | None = None) -> RunReport:
        """Return the current report.

        Raises:
            ModelError: the directory is not a run.
        """
        config = self.run.read_config()
        lines, starts_over = self.metrics.new_lines()
        if starts_over:
            self.curves, self.validations = Curves(), []
        self.curves.add(lines)
        self.validations += [line for line in lines if kind_of(line) == "validation"]
        curves = self.curves.by_name()
        return RunReport(
            name=str(self.run.path),
            curves=curves,
            validations=[{key: value for key, value in line.items() if key != "warnings"} for line in self.validations],
            warnings=[(line["step"], text) for line in self.validations for text in line.get("warnings", [])],
            is_finished=is_finished(self.run, *curves["step"][-1:]),
            settings=config.model_dump(),
            manifest=self.run.read_manifest(),
            evaluation=evaluation,
        )


def is_finished(run: RunDirectory, last_step: float | None = None) -> bool:
    """Whether the checkpoint of the last step was written at the end of training."""
    with contextlib.suppress(ModelError):
        newest = run.newest_step()
        if newest is not None and newest == last_step:
            return bool(read_header(run.checkpoint_file(newest))["progress"].get("finished_at") == newest)
    return False


# --- the translations of a test set -----------------------------------------------------------------------


def evaluated(
    corpus: str, sources: Sequence[str], references: Sequence[str], translations: Sequence[str], config: Config
) -> Evaluation:
    """Score the translations of a test set and find their faults; the config names the target language."""
    target = language(config.data, "target")
    tokenize = bleu_tokenizer(target)
    test_set = EvaluationSet(corpus, list(sources), [list(references)], target, tokenize)
    compared = compared_lines([translations], test_set)
    lines = [Example(line.source, line.reference, line.translations[0], line.chrf[0]) for line in compared]
    by_score = sorted(lines, key=lambda line: line.chrf)
    return Evaluation(
        corpus=corpus,
        n_lines=len(lines),
        scores=score(translations, [references], ("bleu", "chrf", "ter"), tokenize=tokenize, n_bootstrap=1000),
        best=by_score[::-1][:N_EXAMPLES],
        worst=by_score[:N_EXAMPLES],
        lengths=by_length(compared, test_set),
        faults=find_faults(lines),
    )


def find_faults(lines: Sequence[Example]) -> list[Fault]:
    """Find translations with faults that their references lack; `nmt check` finds most of them in pairs."""
    ratio = sorted((n_words(line.reference) + 1) / (n_words(line.source) + 1) for line in lines)[len(lines) // 2]

    def usual(line: Example) -> float:
        return ratio * (n_words(line.source) + 1)

    def is_worse(test: Callable[[str, str], bool], line: Example) -> bool:
        return test(line.source, line.translation) and not test(line.source, line.reference)

    tests: dict[str, Callable[[Example], bool]] = {
        "empty": lambda line: bool(line.source.strip()) and not line.translation.strip(),
        "repetition": lambda line: pairs.repeats(line.translation) and not pairs.repeats(line.reference),
        "source copied": lambda line: is_worse(pairs.is_copy, line),
        "much too short": lambda line: n_words(line.translation) + 1 < 0.5 * usual(line),
        "much too long": lambda line: n_words(line.translation) + 1 > 2 * usual(line) + 3,
        "other numbers": lambda line: is_worse(pairs.numbers_differ, line),
    }
    hits = {name: [line for line in lines if test(line)] for name, test in tests.items()}
    return [Fault(name, len(hit), len(hit) / len(lines), hit[:N_EXAMPLES]) for name, hit in hits.items() if hit]


def as_page(reports: Iterable[RunReport]) -> str:
    """The reports of one or several runs as a self-contained page; curves of several runs share their axes."""
    found = list(reports)
    charts = [[metric, *texts] for metric, texts in CHARTS.items()]
    title = ", ".join(report.name for report in found)
    return pages.page("report", f"{title} – nmt report", pages.plain({"runs": found, "charts": charts}, pages.packed))
