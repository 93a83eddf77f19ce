"""What a run has learned: curves of its figures, samples as they changed, and the faults of its translations."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sacrebleu

from nmt.config import Config, language
from nmt.evaluate import Score, bleu_tokenizer, score
from nmt.insight import pages
from nmt.insight.sentences import LENGTHS, group_index, group_names, n_words, numbers, words
from nmt.run.directory import RunDirectory

MAX_POINTS = 500  # of a curve; more steps are averaged
N_EXAMPLES = 5
MEANS = ("loss", "nll", "lr", "grad_norm")  # per step, weighted by its tokens


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
    """A run, as far as its training has come."""

    name: str
    curves: dict[str, list[float | None]]  # by name, one value per point; "step" is the x axis
    validations: list[dict[str, Any]]  # lines of metrics.jsonl
    warnings: list[tuple[int, str]]  # step and text
    is_finished: bool  # known only of runs that average checkpoints at their end
    settings: dict[str, Any]
    manifest: dict[str, Any]
    evaluation: Evaluation | None


def read_report(path: Path, evaluation: Evaluation | None = None) -> RunReport:
    """The report of a run from its files.

    Raises:
        ModelError: this is not a run.
    """
    run = RunDirectory(path)
    config, lines = run.read_config(), run.read_metrics()
    validations = [line for line in lines if "dev_loss" in line and "n_averaged" not in line]
    return RunReport(
        name=str(path),
        curves=curves([line for line in lines if "grad_norm" in line]),
        validations=[{key: value for key, value in line.items() if key != "warnings"} for line in validations],
        warnings=[(line["step"], text) for line in validations for text in line.get("warnings", [])],
        is_finished=any("n_averaged" in line for line in lines),
        settings=config.model_dump(),
        manifest=run.read_manifest(),
        evaluation=evaluation,
    )


def curves(steps: Sequence[dict[str, Any]]) -> dict[str, list[float | None]]:
    """Figures of all steps as at most `MAX_POINTS` points, each the mean of some steps in a row."""
    size = max(1, -(-len(steps) // MAX_POINTS))
    groups = [steps[i : i + size] for i in range(0, len(steps), size)]
    found: dict[str, list[float | None]] = {"step": [group[-1]["step"] for group in groups]}
    for name in MEANS:
        found[name] = [_mean(group, name) for group in groups]
    found["non_padding"] = [
        sum(line["n_real"] for line in group) / max(sum(line["n_positions"] for line in group), 1) for group in groups
    ]
    found["elapsed_s"] = [group[-1].get("elapsed_s") for group in groups]
    found["tokens_per_s"] = []
    before: float | None = 0.0
    for group, now in zip(groups, found["elapsed_s"], strict=True):
        seconds = None if now is None or before is None else now - before
        found["tokens_per_s"].append(sum(line["n_tokens"] for line in group) / seconds if seconds else None)
        before = now
    return found


def _mean(steps: Sequence[dict[str, Any]], name: str) -> float:
    n_tokens = max(sum(line["n_tokens"] for line in steps), 1)
    return float(sum(line[name] * line["n_tokens"] for line in steps) / n_tokens)


# --- the translations of a test set -----------------------------------------------------------------------


def evaluated(
    corpus: str, sources: Sequence[str], references: Sequence[str], translations: Sequence[str], config: Config
) -> Evaluation:
    """Scores and faults of translations.

    Args:
        corpus: its name.
        sources, references, translations: as many lines each.
        config: of the run, for the target language.
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
    """Translations that repeat themselves, copy the source, have an odd length or other numbers, or are empty."""
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
    """Whether a sequence of one to four words follows itself twice."""
    units = words(text)
    return any(
        units[i : i + n] == units[i + n : i + 2 * n] == units[i + 2 * n : i + 3 * n]
        for n in (1, 2, 3, 4)
        for i in range(len(units) - 3 * n + 1)
    )


def is_copy(line: Example) -> bool:
    """Whether most words of a translation of three or more are those of the source."""
    own = Counter(words(line.translation))
    return own.total() >= 3 and (own & Counter(words(line.source))).total() > 0.8 * own.total()


def as_page(reports: Iterable[RunReport]) -> str:
    """The reports of one or several runs as a self-contained page; curves of several runs share their axes."""
    found = list(reports)
    title = ", ".join(report.name for report in found)
    return pages.page("report", f"{title} – nmt report", pages.plain({"runs": found}, pages.packed))
