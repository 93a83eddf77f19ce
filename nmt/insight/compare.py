"""Comparison of several systems: scores, significance, and where the translations differ. Imports no torch."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
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
    return Comparison(
        systems=list(names),
        corpus=test_set.name,
        n_lines=len(lines),
        scores=paired_scores(systems, metrics, n_trials=n_trials),
        left_out=test_set.settings.left_out,
        groups={f"words of the {'reference' if test_set.sources is None else 'source'}": by_length(lines, test_set)},
        differing=[most_differing(lines, i) for i in range(1, len(systems))],
    )


def n_words(text: str) -> int:
    """The number of words of a text, or of its characters if it has no spaces."""
    return len(text.split()) if " " in text.strip() else len(text.strip())


def compared_lines(systems: Sequence[Sequence[str]], test_set: EvaluationSet) -> list[ComparedLine]:
    """Return all lines with the sentence chrF of each translation."""
    chrf = CHRF(lowercase=test_set.settings.lowercase)
    sources = test_set.sources or [""] * len(test_set.references[0])
    lines = zip(sources, zip(*test_set.references, strict=True), zip(*systems, strict=True), strict=True)
    found = []
    for number, (source, own, texts) in enumerate(lines, 1):
        scores = [float(chrf.sentence_score(text, list(own)).score) for text in texts]
        found.append(ComparedLine(number, source, own[0], list(texts), scores))
    return found


def by_length(lines: Sequence[ComparedLine], test_set: EvaluationSet) -> list[Group]:
    """Group the lines by the number of words of the source, or of the reference if the source is unknown."""
    members: dict[int, list[ComparedLine]] = {}
    for line in lines:
        length = n_words(line.reference if test_set.sources is None else line.source)
        members.setdefault(next(most for most in GROUPS if length <= most), []).append(line)
    groups = []
    for most, own in sorted(members.items()):
        references = [[side[line.number - 1] for line in own] for side in test_set.references]
        bleu, wins = [], []
        for s, hypotheses in enumerate(zip(*(line.translations for line in own), strict=True)):
            (of_group,) = score(hypotheses, references, ("bleu",), **asdict(test_set.settings))
            bleu.append(of_group.value)
            if s:
                gains = [line.chrf[s] - line.chrf[0] for line in own]
                n_better, n_worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
                wins.append(Wins(n_better, len(gains) - n_better - n_worse, n_worse))
        groups.append(Group(GROUPS[most], len(own), bleu, wins))
    return groups


def most_differing(lines: Sequence[ComparedLine], system: int) -> dict[str, list[ComparedLine]]:
    """Return the lines in which a system is better and worse than the baseline by most, in sentence chrF."""

    def gain(line: ComparedLine) -> float:
        return line.chrf[system] - line.chrf[0]

    best, worst = sorted(lines, key=gain, reverse=True)[:N_DIFFERING], sorted(lines, key=gain)[:N_DIFFERING]
    better = [line for line in best if gain(line) > 0]
    return {"better": better, "worse": [line for line in worst if gain(line) < 0]}


def as_page(comparison: Comparison) -> str:
    from nmt.insight import pages  # imports torch

    return pages.page("compare", f"{' and '.join(comparison.systems)} – nmt compare", asdict(comparison))


def as_text(comparison: Comparison) -> list[str]:
    letters = ascii_uppercase[: len(comparison.systems)]
    lines = [
        f"{letter}  {name}{'' if i else '  (baseline)'}"
        for i, (letter, name) in enumerate(zip(letters, comparison.systems, strict=True))
    ]
    lines += [f"{comparison.n_lines} lines of {comparison.corpus}", "", *_score_table(comparison, letters)]
    others = letters[1:]
    verdicts = [title for letter in others for title in (f"{letter} better", "equal", "worse")]
    for title, groups in comparison.groups.items():
        rows = [
            [g.name, g.n_lines, *(f"{x:.2f}" for x in g.bleu), *(n for w in g.wins for n in asdict(w).values())]
            for g in groups
        ]
        lines += ["", *columns([title, "lines", *(f"BLEU {letter}" for letter in letters), *verdicts], rows)]
    for letter, differing in zip(others, comparison.differing, strict=True):
        for name, some in differing.items():
            if some:
                lines += ["", f"Lines in which {letter} is {name} than A by most (sentence chrF):"]
                lines += [text for line in some for text in _told(line, letters)]
    return lines


def _score_table(comparison: Comparison, letters: str) -> Iterator[str]:
    rows: list[list[str]] = []
    for paired in comparison.scores:
        for letter, system in zip(letters, paired.systems, strict=True):
            d = system.difference
            told = [f"{d.value:+.2f}", f"{d.low:+.2f} to {d.high:+.2f}", f"{d.p_value:.4f}"] if d else [""] * 3
            rows.append([paired.name, letter, f"{system.value:.2f}", *told])
    yield from columns(["score", "", "", "difference", "95 % interval", "p"], rows)
    if comparison.left_out:
        yield comparison.left_out
    yield "p by paired bootstrap, as sacreBLEU computes it, but ties count: 1 for equal systems; intervals by bootstrap"
    yield from (f"{paired.name}: {paired.signature}" for paired in comparison.scores)


def _told(line: ComparedLine, letters: str) -> Iterator[str]:
    if line.source:
        yield f"{line.number:>6}  source     {line.source}"
    yield f"{'' if line.source else line.number:>6}  reference  {line.reference}"
    for letter, text, chrf in zip(letters, line.translations, line.chrf, strict=True):
        yield f"{'':>6}  {letter} {chrf:7.1f}  {text}"
