"""Comparison of several systems: scores, significance, and where the translations differ. Imports no torch."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from string import ascii_uppercase

from sacrebleu.metrics.chrf import CHRF

from nmt.evaluate import PairedScore, ScoreSettings, paired_scores, sacrebleu_metrics, score
from nmt.insight.tables import columns

# The groups of lines by length, see `n_words`: the longest line of each, and its name.
GROUPS = {5: "1 to 5", 10: "6 to 10", 20: "11 to 20", 40: "21 to 40", sys.maxsize: "41 or more"}
MAX_SYSTEMS = len(ascii_uppercase)
N_DIFFERING = 5


@dataclass(frozen=True)
class EvaluationSet:
    """Lines to translate, and how to score translations of them."""

    name: str
    sources: list[str] | None  # None if unknown
    references: list[list[str]]  # one or several lists
    settings: ScoreSettings


@dataclass(frozen=True)
class ComparedLine:
    """A line of the test set and its translations, the baseline's first."""

    number: int  # from 1
    source: str
    reference: str
    translations: list[str]
    chrf: list[float]  # sentence chrF of each, 0-100


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
    bleu: list[float]  # of each system, 0-100
    wins: list[Wins]  # of each system but the baseline


@dataclass(frozen=True)
class Comparison:
    """The comparison of systems on one test set; the first system is the baseline."""

    systems: list[str]
    corpus: str
    n_lines: int
    scores: list[PairedScore]
    left_out: str  # that TER is left out, and why; empty if it is not
    groups: dict[str, list[Group]]  # key: what the lines are grouped by
    differing: list[dict[str, list[ComparedLine]]]  # of each system but the baseline: better and worse lines


def compare(
    names: Sequence[str], systems: Sequence[Sequence[str]], test_set: EvaluationSet, *, n_trials: int = 1000
) -> Comparison:
    """Compare two or more systems by their translations of a test set; the first is the baseline."""
    metrics = sacrebleu_metrics(test_set.references, **asdict(test_set.settings))
    lines = compared_lines(systems, test_set)
    side = "reference" if test_set.sources is None else "source"
    return Comparison(
        systems=list(names),
        corpus=test_set.name,
        n_lines=len(lines),
        scores=paired_scores(systems, metrics, n_trials=n_trials),
        left_out=test_set.settings.left_out,
        groups={f"words of the {side}": by_length(lines, test_set)},
        differing=[most_differing(lines, system) for system in range(1, len(systems))],
    )


def n_words(text: str) -> int:
    """The number of words of a text, or of its characters if it has no spaces."""
    return len(text.split()) if " " in text.strip() else len(text.strip())


def compared_lines(systems: Sequence[Sequence[str]], test_set: EvaluationSet) -> list[ComparedLine]:
    """Return all lines with the sentence chrF of each translation."""
    chrf = CHRF(lowercase=test_set.settings.lowercase)
    sources = test_set.sources or [""] * len(test_set.references[0])
    lines = []
    for i, source in enumerate(sources):  # all lists have the same length
        references = [side[i] for side in test_set.references]
        translations = [system[i] for system in systems]
        scores = [float(chrf.sentence_score(text, references).score) for text in translations]
        lines.append(ComparedLine(i + 1, source, references[0], translations, scores))
    return lines


def by_length(lines: Sequence[ComparedLine], test_set: EvaluationSet) -> list[Group]:
    """Group the lines by the number of words of the source, or of the reference if the source is unknown."""
    members: dict[int, list[ComparedLine]] = {}  # by the key of `GROUPS`
    for line in lines:
        length = n_words(line.reference if test_set.sources is None else line.source)
        longest = next(most for most in GROUPS if length <= most)
        members.setdefault(longest, []).append(line)
    return [group_of(GROUPS[longest], members[longest], test_set) for longest in sorted(members)]


def group_of(name: str, lines: Sequence[ComparedLine], test_set: EvaluationSet) -> Group:
    """Score each system on some lines, and count the lines that it translates better and worse than the baseline."""
    references = [[side[line.number - 1] for line in lines] for side in test_set.references]
    bleu, wins = [], []
    for system in range(len(lines[0].translations)):
        hypotheses = [line.translations[system] for line in lines]
        (score_of_group,) = score(hypotheses, references, ("bleu",), **asdict(test_set.settings))
        bleu.append(score_of_group.value)
        if system > 0:  # 0 is the baseline
            gains = [gain(line, system) for line in lines]
            n_better = sum(x > 0 for x in gains)
            n_worse = sum(x < 0 for x in gains)
            wins.append(Wins(n_better, len(gains) - n_better - n_worse, n_worse))
    return Group(name, len(lines), bleu, wins)


def gain(line: ComparedLine, system: int) -> float:
    """The sentence chrF of a system minus that of the baseline."""
    return line.chrf[system] - line.chrf[0]


def most_differing(lines: Sequence[ComparedLine], system: int) -> dict[str, list[ComparedLine]]:
    """Return the lines in which a system is better and worse than the baseline by most, in sentence chrF."""
    better = [line for line in lines if gain(line, system) > 0]
    worse = [line for line in lines if gain(line, system) < 0]
    better.sort(key=lambda line: gain(line, system), reverse=True)
    worse.sort(key=lambda line: gain(line, system))
    return {"better": better[:N_DIFFERING], "worse": worse[:N_DIFFERING]}


def as_page(comparison: Comparison) -> str:
    from nmt.insight import pages  # imports torch

    return pages.page("compare", f"{' and '.join(comparison.systems)} – nmt compare", asdict(comparison))


def as_text(comparison: Comparison) -> list[str]:
    letters = ascii_uppercase[: len(comparison.systems)]
    lines = []
    for letter, name in zip(letters, comparison.systems, strict=True):
        baseline = "  (baseline)" if letter == "A" else ""
        lines.append(f"{letter}  {name}{baseline}")
    lines.append(f"{comparison.n_lines} lines of {comparison.corpus}")
    lines += ["", *_score_table(comparison, letters)]
    for title, groups in comparison.groups.items():
        lines += ["", *_group_table(title, groups, letters)]
    for letter, differing in zip(letters[1:], comparison.differing, strict=True):
        for name, some in differing.items():
            if some:
                lines += ["", f"Lines in which {letter} is {name} than A by most (sentence chrF):"]
            for line in some:
                lines += _told(line, letters)
    return lines


def _score_table(comparison: Comparison, letters: str) -> Iterator[str]:
    rows: list[list[str]] = []
    for paired in comparison.scores:
        for letter, system in zip(letters, paired.systems, strict=True):
            row = [paired.name, letter, f"{system.value:.2f}", "", "", ""]  # the baseline has no difference
            difference = system.difference
            if difference is not None:
                interval = f"{difference.low:+.2f} to {difference.high:+.2f}"
                row[3:] = [f"{difference.value:+.2f}", interval, f"{difference.p_value:.4f}"]
            rows.append(row)
    yield from columns(["score", "", "", "difference", "95 % interval", "p"], rows)
    if comparison.left_out:
        yield comparison.left_out
    yield "p by paired bootstrap, as sacreBLEU computes it, but ties count: 1 for equal systems; intervals by bootstrap"
    yield from (f"{paired.name}: {paired.signature}" for paired in comparison.scores)


def _group_table(title: str, groups: Sequence[Group], letters: str) -> list[str]:
    names = [title, "lines", *(f"BLEU {letter}" for letter in letters)]
    for letter in letters[1:]:
        names += [f"{letter} better", "equal", "worse"]
    rows = []
    for group in groups:
        row = [group.name, str(group.n_lines), *(f"{value:.2f}" for value in group.bleu)]
        for wins in group.wins:
            row += map(str, astuple(wins))
        rows.append(row)
    return columns(names, rows)


def _told(line: ComparedLine, letters: str) -> Iterator[str]:
    if line.source:
        yield f"{line.number:>6}  source     {line.source}"
    yield f"{'' if line.source else line.number:>6}  reference  {line.reference}"
    for letter, text, chrf in zip(letters, line.translations, line.chrf, strict=True):
        yield f"{'':>6}  {letter} {chrf:7.1f}  {text}"
