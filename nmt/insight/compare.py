"""Comparison of several systems: scores, significance, and where the translations differ."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from string import ascii_uppercase

from sacrebleu.metrics.chrf import CHRF

from nmt.evaluate import PairedScore, ScoreSettings, paired_scores, sacrebleu_metrics, score
from nmt.insight import pages

# Lines are grouped by length, see `n_words`: the name of a group, and the length of its longest lines.
GROUPS = {"1 to 5": 5, "6 to 10": 10, "11 to 20": 20, "21 to 40": 40, "41 or more": sys.maxsize}
MAX_SYSTEMS = len(ascii_uppercase)
N_DIFFERING = 5


@dataclass(frozen=True)
class EvaluationSet:
    """Lines to translate, and how to score translations of them."""

    name: str
    sources: list[str] | None  # None: unknown
    references: list[list[str]]  # one or several lists
    settings: ScoreSettings


@dataclass(frozen=True)
class ComparedLine:
    """A line of the test set and its translations, the baseline's first."""

    number: int  # from 1
    source: str
    reference: str
    translations: list[str]
    chrf: list[float]  # sentence chrF of each translation, 0-100


@dataclass(frozen=True)
class Wins:
    """Numbers of lines in which a system's sentence chrF is higher than, equal to or lower than the baseline's."""

    n_better: int
    n_equal: int
    n_worse: int


@dataclass(frozen=True)
class Group:
    """A group of lines of the test set and the scores of each system on it."""

    name: str
    n_lines: int
    bleu: list[float]  # per system, 0-100
    wins: list[Wins]  # per system but the baseline


@dataclass(frozen=True)
class Comparison:
    """The comparison of systems on one test set; the first system is the baseline."""

    systems: list[str]
    corpus: str
    n_lines: int
    scores: list[PairedScore]
    left_out: str  # says that TER is left out, and why; empty if TER is there
    groups: dict[str, list[Group]]  # key: what the lines are grouped by
    differing: list[dict[str, list[ComparedLine]]]  # per system but the baseline: better and worse lines


def compare(
    names: Sequence[str], systems: Sequence[Sequence[str]], test_set: EvaluationSet, *, n_trials: int = 1000
) -> Comparison:
    """Compare two or more systems by their translations of a test set; the first is the baseline."""
    metrics = sacrebleu_metrics(test_set.references, **asdict(test_set.settings))
    scores = paired_scores(systems, metrics, n_trials=n_trials)
    lines = compared_lines(systems, test_set)
    side = "reference" if test_set.sources is None else "source"
    groups = {f"words of the {side}": by_length(lines, test_set)}
    differing = [most_differing(lines, system) for system in range(1, len(systems))]
    return Comparison(
        systems=list(names),
        corpus=test_set.name,
        n_lines=len(lines),
        scores=scores,
        left_out=test_set.settings.left_out,
        groups=groups,
        differing=differing,
    )


def n_words(text: str) -> int:
    """Return the number of words of a text, or of its characters if it has no spaces."""
    text = text.strip()
    return len(text.split() if " " in text else text)


def compared_lines(systems: Sequence[Sequence[str]], test_set: EvaluationSet) -> list[ComparedLine]:
    """Return all lines with the sentence chrF of each translation."""
    chrf = CHRF(lowercase=test_set.settings.lowercase)
    # All lists have the same length.
    n_lines = len(test_set.references[0])
    sources = test_set.sources or [""] * n_lines
    lines = []
    for i in range(n_lines):
        references = [side[i] for side in test_set.references]
        translations = [system[i] for system in systems]
        scores = [chrf.sentence_score(text, references).score for text in translations]
        lines.append(ComparedLine(i + 1, sources[i], references[0], translations, scores))
    return lines


def by_length(lines: Sequence[ComparedLine], test_set: EvaluationSet) -> list[Group]:
    """Group the lines by the number of words of the source, or of the reference if the source is unknown."""
    members: dict[str, list[ComparedLine]] = {name: [] for name in GROUPS}
    for line in lines:
        text = line.reference if test_set.sources is None else line.source
        members[group_name(n_words(text))].append(line)
    return [group_of(name, group, test_set) for name, group in members.items() if group]


def group_name(length: int) -> str:
    return next(name for name, longest in GROUPS.items() if length <= longest)


def group_of(name: str, lines: Sequence[ComparedLine], test_set: EvaluationSet) -> Group:
    """Score all systems on some lines, and count the lines that they translate better and worse than the baseline."""
    references = [lines_of(side, lines) for side in test_set.references]
    bleu = []
    wins = []
    for system in range(len(lines[0].translations)):
        hypotheses = [line.translations[system] for line in lines]
        (bleu_of_system,) = score(hypotheses, references, ("bleu",), **asdict(test_set.settings))
        bleu.append(bleu_of_system.value)
        if system > 0:  # 0 is the baseline
            wins.append(count_wins(lines, system))
    return Group(name, len(lines), bleu, wins)


def lines_of(side: Sequence[str], lines: Sequence[ComparedLine]) -> list[str]:
    return [side[line.number - 1] for line in lines]


def count_wins(lines: Sequence[ComparedLine], system: int) -> Wins:
    gains = [gain(line, system) for line in lines]
    n_better = sum(x > 0 for x in gains)
    n_worse = sum(x < 0 for x in gains)
    return Wins(n_better, len(gains) - n_better - n_worse, n_worse)


def gain(line: ComparedLine, system: int) -> float:
    """Return the sentence chrF of a system minus that of the baseline."""
    return line.chrf[system] - line.chrf[0]


def most_differing(lines: Sequence[ComparedLine], system: int) -> dict[str, list[ComparedLine]]:
    """Return the lines in which a system is better and worse than the baseline by most, in sentence chrF."""
    better = [line for line in lines if gain(line, system) > 0]
    better.sort(key=lambda line: gain(line, system), reverse=True)
    worse = [line for line in lines if gain(line, system) < 0]
    worse.sort(key=lambda line: gain(line, system))
    return {"better": better[:N_DIFFERING], "worse": worse[:N_DIFFERING]}


def as_page(comparison: Comparison) -> str:
    """Return the comparison as a self-contained HTML page."""
    systems = " and ".join(comparison.systems)
    return pages.page("compare", f"{systems} – nmt compare", asdict(comparison))
