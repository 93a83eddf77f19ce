"""`nmt check`: find the faults of parallel text.

    sample of train -> what is usual -> every pair of test, dev and train, in several processes -> runs -> findings

If the lines of train with the same number do not belong together, what is usual is learned again, from those that do.
Every file is read a few times, in chunks. Memory grows by 48 bytes per pair, five 8-byte digests and two float32
features, and by more per faulty line.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nmt.corpus import bootstrap, findings, pairing
from nmt.corpus.alignment import Evidence
from nmt.corpus.examine import Gathered, Usual, gather, learn
from nmt.corpus.findings import Draft
from nmt.corpus.kinds import KINDS, SEVERITIES, Example, Finding
from nmt.corpus.pairing import Comparison, Run
from nmt.corpus.reading import CorpusFiles, Survey, decode, lines_at, survey

N_EXAMPLES = 5
MAX_UNRELATED = 0.05  # of the lines of train; if it is more, the lexicon has learned too much from wrong pairs
# Where neighbors are alike, a lexicon learned from shifted lines may find them usual. Its contrast is then low, up to
# 1.2 nats, and that of the right pairs twice as high.
SURE_CONTRAST = 2.0  # nats; if it is less, lines that belong together are looked for
CLEARLY_MORE = 1.5  # by which factor their contrast must be higher
MIN_ERROR_LINES = 3  # from which a share of the lines counts: one line of fifty does not tell how many are faulty
OF_CORPUS = ("counts", "unrelated", "unchecked", "swapped", "declared")  # kinds without lines


@dataclass(frozen=True)
class Report:
    corpora: list[Survey]
    languages: tuple[str, str]  # of the text, "" if unknown
    findings: list[Finding]  # the worst first
    runs: dict[str, list[Run]]  # by corpus: lines that belong together
    seconds: float


def check(corpora: Sequence[CorpusFiles], declared: tuple[str, str] = ("", ""), *, quiet: bool = True) -> Report:
    """Look for all faults of a corpus and of its dev and test sets; what is usual is learned from the first corpus.

    `declared` are language codes, "" if unknown. Raises DataError if a file is missing, empty or UTF-16.
    """
    began = time.monotonic()
    surveys = [survey(files) for files in corpora]
    labels = findings.label_of(declared[0]), findings.label_of(declared[1])
    usual, train, evidence = learn_from(surveys[0], labels, quiet)
    gathered = [train, *(gather(surveyed, usual, quiet) for surveyed in surveys[1:])]
    finished = with_examples(train, findings.of_languages(usual, labels))
    runs: dict[str, list[Run]] = {}
    for i, found in enumerate(gathered):
        runs_of_corpus = runs[found.survey.files.name] = runs_of(found, usual, evidence)
        drafts = findings.of_lines(found, runs_of_corpus) + findings.of_alignment(found, runs_of_corpus, evidence)
        drafts += findings.of_repetition(found) + findings.of_overlap(found, gathered[:i])
        finished += with_examples(found, drafts)
    finished.sort(key=lambda finding: (SEVERITIES.index(finding.severity), -finding.share))
    source, target = usual.languages.identified
    languages = findings.language_of_side(source, labels[0]), findings.language_of_side(target, labels[1])
    return Report(surveys, languages, finished, runs, time.monotonic() - began)


def learn_from(train: Survey, declared: tuple[str, str], quiet: bool) -> tuple[Usual, Gathered, Evidence | None]:
    """Learn what is usual, and how to tell translations from unrelated lines (None if train cannot teach that)."""
    usual = learn(train.source, train.target, declared)
    found = gather(train, usual, quiet)
    evidence = findings.evidence_of(found)
    most_are_paired = False  # whether most lines with the same number seem to belong together
    if evidence is not None:
        n_unrelated = sum(end - start for start, end in findings.unrelated_blocks(found, evidence))
        most_are_paired = n_unrelated <= MAX_UNRELATED * train.n_pairs
        if most_are_paired and evidence.contrast >= SURE_CONTRAST:
            return usual, found, evidence
    # Perhaps most lines with the same number do not belong together: find lines that do.
    learned = bootstrap.learn_pairs(train) if train.n_pairs >= bootstrap.MIN_PAIRS else None
    if learned is None:
        return usual, found, evidence
    pairs, evidence_of_pairs = learned
    if evidence is not None and most_are_paired and evidence_of_pairs.contrast < CLEARLY_MORE * evidence.contrast:
        return usual, found, evidence
    evidence = evidence_of_pairs
    train = with_sample(train, pairs)
    usual = learn(train.source, train.target, declared)
    return usual, gather(train, usual, quiet), evidence


def with_sample(train: Survey, pairs: Sequence[tuple[int, int]]) -> Survey:
    """A survey whose sample has these pairs of lines, numbered from 0."""
    numbers = [source + 1 for source, _ in pairs], [target + 1 for _, target in pairs]
    texts = []
    for paths, wanted in zip(train.files.sides, numbers, strict=True):
        raw = lines_at(paths, wanted)
        texts.append([decode(raw[number]) for number in wanted])
    return replace(train, source=texts[0], target=texts[1])


def runs_of(found: Gathered, usual: Usual, evidence: Evidence | None) -> list[Run]:
    """The runs of a corpus; if nothing tells which lines belong together, those with the same number, or none."""
    survey = found.survey
    if evidence is not None:
        comparison = Comparison(usual.lexicon, usual.lengths, evidence)
        return pairing.find_runs(survey, findings.unrelated_blocks(found, evidence), comparison)
    if survey.n_source != survey.n_target or findings.is_unrelated(found):
        return []
    return [Run(0, survey.n_pairs)]


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
        is_error = share >= kind.error_from and (not len(draft.lines) or len(draft.lines) >= MIN_ERROR_LINES)
        severity = "error" if is_error else kind.severity
        of_kind = draft.lines.tolist()
        finished.append(Finding(found.survey.files.name, kind, severity, of_kind, share, draft.detail, examples))
    return finished
