"""`nmt check`: find the faults of parallel text.

    sample of train -> what is usual -> every pair of test, dev and train, in several processes -> findings

Every file is read a few times, in chunks. Memory grows by 48 bytes per pair, five 8-byte digests and two float32
features, and by more per faulty line.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.corpus import blocks, findings
from nmt.corpus.blocks import Span
from nmt.corpus.examine import Gathered, gather, learn
from nmt.corpus.findings import Draft
from nmt.corpus.kinds import KINDS, SEVERITIES, Example, Finding
from nmt.corpus.reading import CorpusFiles, Survey, decode, lines_at, survey

N_EXAMPLES = 5
OF_CORPUS = ("counts", "unrelated", "unchecked", "swapped", "declared")  # kinds without lines


@dataclass(frozen=True)
class Report:
    corpora: list[Survey]
    languages: tuple[str, str]  # of the text, "" if unknown
    findings: list[Finding]  # the worst first
    spans: dict[str, list[Span]]  # by corpus: lines that are not paired with their translations
    seconds: float


def check(corpora: Sequence[CorpusFiles], declared: tuple[str, str] = ("", ""), *, quiet: bool = True) -> Report:
    """Look for all faults of a corpus and of its dev and test sets; what is usual is learned from the first corpus.

    `declared` are language codes, "" if unknown. Raises DataError if a file is missing, empty or UTF-16.
    """
    began = time.monotonic()
    surveys = [survey(files) for files in corpora]
    usual = learn(surveys[0].source, surveys[0].target)
    gathered = [gather(surveyed, usual, quiet) for surveyed in surveys]
    evidence = findings.evidence_of(gathered[0])
    finished = with_examples(gathered[0], findings.of_languages(usual, declared))
    spans: dict[str, list[Span]] = {}
    for i, found in enumerate(gathered):
        own = spans[found.survey.files.name] = blocks.find(found, usual, evidence) if evidence is not None else []
        drafts = findings.of_lines(found) + findings.of_alignment(found, own, evidence)
        drafts += findings.of_repetition(found) + findings.of_overlap(found, gathered[:i])
        finished += with_examples(found, drafts)
    finished.sort(key=lambda one: (SEVERITIES.index(one.severity), -one.share))
    return Report(surveys, usual.languages.names, finished, spans, time.monotonic() - began)


def with_examples(found: Gathered, drafts: Sequence[Draft]) -> list[Finding]:
    """Turn drafts into findings with examples, whose text is read from the files again."""
    drafts = [draft for draft in drafts if len(draft.lines) or draft.kind in OF_CORPUS]
    chosen = []  # at equal distances
    for draft in drafts:
        n = len(draft.lines)
        chosen.append(draft.lines[np.unique(np.linspace(0, n - 1, min(N_EXAMPLES, n)).astype(int))].tolist())
    wanted = [line for lines in chosen for line in lines]
    source, target = (lines_at(paths, wanted) for paths in found.survey.files.sides)
    finished = []
    for draft, lines in zip(drafts, chosen, strict=True):
        kind = KINDS[draft.kind]
        share = len(draft.lines) / found.survey.n_pairs if len(draft.lines) else 1.0
        examples = [Example(line, decode(source[line]), decode(target[line])) for line in lines]
        severity, of_kind = "error" if share >= kind.error_from else kind.severity, draft.lines.tolist()
        finished.append(Finding(found.survey.files.name, kind, severity, of_kind, share, draft.detail, examples))
    return finished
