"""Comparison of several systems: scores, p-values, and the lines on which the scores of the systems differ most."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from string import ascii_uppercase

from sacrebleu.metrics.chrf import CHRF

from nmt.evaluate import PairedScore, ScoreSettings, paired_score, sacrebleu_metrics
from nmt.insight import pages

MAX_SYSTEMS = len(ascii_uppercase)  # the page names each system by a letter
N_DIFFERING = 5  # `most_differing` returns up to this many better lines, and as many worse lines


@dataclass(frozen=True)
class EvaluationSet:
    """A test set: source lines, references, and the settings for scoring translations."""

    name: str
    sources: list[str]  # empty if the source lines are unknown
    references: list[list[str]]  # one or several lists with one reference per line
    settings: ScoreSettings


@dataclass(frozen=True)
class ComparedLine:
    """A line of the test set with the translations of all systems. The first one is the baseline's."""

    number: int  # line number, from 1
    source: str  # empty if unknown
    reference: str  # from the first list of references
    translations: list[str]
    chrf: list[float]  # sentence chrF of each translation, 0-100


@dataclass(frozen=True)
class Comparison:
    """The comparison of several systems on one test set. The first system is the baseline."""

    systems: list[str]
    corpus: str
    n_lines: int
    scores: list[PairedScore]
    left_out: str  # says why TER is left out; empty if TER was computed
    differing: list[dict[str, list[ComparedLine]]]  # results of `most_differing`, one for each system after the first


def compare(
    names: Sequence[str], systems: Sequence[Sequence[str]], test_set: EvaluationSet, *, n_trials: int = 1000
) -> Comparison:
    """Compare two or more systems by their translations of a test set. The first system is the baseline."""
    metrics = sacrebleu_metrics(test_set.references, test_set.settings)
    scores = [paired_score(systems, metric, n_trials) for metric in metrics.values()]
    lines = compared_lines(systems, test_set)
    differing = [most_differing(lines, system) for system in range(1, len(systems))]
    return Comparison(
        systems=list(names),
        corpus=test_set.name,
        n_lines=len(lines),
        scores=scores,
        left_out=test_set.settings.left_out,
        differing=differing,
    )


def compared_lines(systems: Sequence[Sequence[str]], test_set: EvaluationSet) -> list[ComparedLine]:
    """Return all lines of the test set. Each line has the translations of all systems, with their sentence chrF."""
    chrf = CHRF(lowercase=test_set.settings.lowercase)
    n_lines = len(test_set.references[0])
    sources = test_set.sources or [""] * n_lines
    lines = []
    for i in range(n_lines):
        references = [side[i] for side in test_set.references]
        translations = [system[i] for system in systems]
        scores = [chrf.sentence_score(text, references).score for text in translations]
        lines.append(ComparedLine(i + 1, sources[i], references[0], translations, scores))
    return lines


def most_differing(lines: Sequence[ComparedLine], system: int) -> dict[str, list[ComparedLine]]:
    """Return the lines on which a system differs most from the baseline by sentence chrF.

    The keys are "better" and "worse". Each list has up to `N_DIFFERING` lines.
    """

    def gain_of(line: ComparedLine) -> float:
        return line.chrf[system] - line.chrf[0]

    worst_first = sorted(lines, key=gain_of)
    better = [line for line in worst_first[: -N_DIFFERING - 1 : -1] if gain_of(line) > 0]
    worse = [line for line in worst_first[:N_DIFFERING] if gain_of(line) < 0]
    return {"better": better, "worse": worse}


def as_page(comparison: Comparison) -> str:
    """Return the comparison as a self-contained HTML page."""
    systems = " and ".join(comparison.systems)
    return pages.page("compare", f"{systems} – nmt compare", asdict(comparison))
