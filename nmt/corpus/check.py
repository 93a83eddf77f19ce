"""The search for faults in parallel text, for `nmt check`.

    sample of training pairs -> what is usual -> every pair of all corpora, in several processes -> runs -> findings

Every file is read a few times, in chunks. Memory grows by about 48 bytes per pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from nmt.corpus import findings, pairing
from nmt.corpus.alignment import Evidence
from nmt.corpus.examine import Gathered, Usual, gather, learn_usual
from nmt.corpus.findings import FindingDraft
from nmt.corpus.kinds import KINDS, SEVERITIES, Example, Finding
from nmt.corpus.language import label_of
from nmt.corpus.pairing import LineComparison, Run
from nmt.corpus.reading import CorpusFiles, Survey, decode, lines_at, sample, survey

N_EXAMPLES = 5  # maximum number of examples of a finding
# A finding with fewer lines is no error. In a small corpus, one faulty line says little.
MIN_ERROR_LINES = 3
OF_CORPUS = ("counts", "unrelated", "unchecked", "swapped", "declared")  # kinds that concern the whole corpus


@dataclass(frozen=True)
class CheckReport:
    corpora: list[Survey]
    findings: list[Finding]  # the most severe first
    runs: dict[str, list[Run]]  # the lines that belong together, by name of the corpus


def check(corpora: Sequence[CorpusFiles], declared: Sequence[str] = ("", ""), *, quiet: bool = True) -> CheckReport:
    """Look for all faults of the corpora. The first one is the training corpus.

    Args:
        declared: the language codes from the config or the file names, or "" if unknown.
    Raises:
        DataError: a file is missing, empty or UTF-16.
    """
    surveys = [survey(files) for files in corpora]
    labels = label_of(declared[0]), label_of(declared[1])
    # 1. Learn from the training corpus, and examine all pairs of all corpora.
    usual = learn_from(surveys[0], labels)
    all_gathered = [gather(surveyed, usual, quiet) for surveyed in surveys]
    train = all_gathered[0]
    evidence = findings.evidence_of(train, usual)  # None if translations cannot be told from unrelated lines
    # 2. Find the lines that belong together, and all faults of each corpus.
    result = with_examples(train, findings.of_languages(usual.languages, labels))
    runs = {}
    for i, gathered in enumerate(all_gathered):
        runs_of_corpus = runs_in(gathered, usual, evidence)
        runs[gathered.survey.files.name] = runs_of_corpus
        drafts = findings.of_lines(gathered, runs_of_corpus)
        drafts += findings.of_alignment(gathered, runs_of_corpus, evidence)
        drafts.append(findings.of_repetition(gathered))
        drafts += findings.of_overlap(gathered, all_gathered[:i])
        result += with_examples(gathered, drafts)
    result.sort(key=lambda finding: (SEVERITIES.index(finding.severity), -finding.share))
    return CheckReport(surveys, result, runs)


def learn_from(train: Survey, declared: tuple[str, str]) -> Usual:
    """Learn what is usual from lines with the same number, counted from the beginning or from the end.

    If lines are missing before the middle, most lines with the same number from the end belong together.
    """
    usual = learn_usual(train.source, train.target, declared)
    if train.n_source == train.n_target:
        return usual
    n_pairs = train.n_pairs
    source = sample(train.files.source, train.n_source - n_pairs, n_pairs)
    target = sample(train.files.target, train.n_target - n_pairs, n_pairs)
    from_end = learn_usual(source, target, declared)
    return max(usual, from_end, key=lambda learned: learned.evidence.contrast)


def runs_in(gathered: Gathered, usual: Usual, evidence: Evidence | None) -> list[Run]:
    """Return the runs of a corpus.

    Without evidence, runs cannot be found. Then all lines form one run, or none if the sides clearly do not fit.
    """
    surveyed = gathered.survey
    if evidence is not None:
        is_unrelated = findings.in_unrelated_blocks(gathered, evidence)
        comparison = LineComparison(usual.features, evidence)
        return pairing.find_runs(surveyed, is_unrelated, comparison)
    if surveyed.n_source != surveyed.n_target or findings.is_unrelated(gathered):
        return []
    return [Run(0, surveyed.n_pairs)]


def with_examples(gathered: Gathered, drafts: Sequence[FindingDraft]) -> list[Finding]:
    """Turn drafts into findings. The texts of their examples are read from the files again.

    Drafts without lines are left out. Only the kinds in `OF_CORPUS` need no lines.
    """
    files = gathered.survey.files
    drafts = [draft for draft in drafts if len(draft.lines) or draft.kind in OF_CORPUS]
    chosen = [example_lines(draft) for draft in drafts]
    wanted = [*chain.from_iterable(chosen)]
    source, target = lines_at(files.source, wanted), lines_at(files.target, wanted)
    result = []
    for draft, lines in zip(drafts, chosen, strict=True):
        examples = [Example(line, decode(source[line]), decode(target[line])) for line in lines]
        result.append(finished(draft, examples, gathered.survey))
    return result


def example_lines(draft: FindingDraft) -> list[int]:
    """Return at most `N_EXAMPLES` line numbers of a draft, evenly spaced."""
    n = len(draft.lines)
    indices = np.linspace(0, n - 1, min(N_EXAMPLES, n))
    return list(draft.lines[indices.astype(int)].tolist())


def finished(draft: FindingDraft, examples: list[Example], surveyed: Survey) -> Finding:
    """Turn a draft into a finding. The severity depends on the share of faulty lines."""
    kind = KINDS[draft.kind]
    lines = draft.lines.tolist()
    share = len(lines) / surveyed.n_pairs if lines else 1.0
    is_error = share >= kind.error_from and (not lines or len(lines) >= MIN_ERROR_LINES)
    severity = "error" if is_error else kind.severity
    return Finding(surveyed.files.name, kind, severity, lines, share, draft.detail, examples)
