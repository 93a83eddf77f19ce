"""Findings on single lines, alignment, repeated text, text that corpora share, and languages."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.corpus import alignment
from nmt.corpus.alignment import Evidence
from nmt.corpus.examine import NONE, PAIR, SOURCE, SOURCE_KEY, TARGET, TARGET_KEY, Gathered, Usual
from nmt.corpus.language import Languages, identifier
from nmt.corpus.pairing import Run
from nmt.corpus.reading import is_utf8, lines_at
from nmt.languages import CONFUSED
from nmt.text.corpus_files import SIDES
from nmt.text.permutation import first_occurrences

MIN_PAIRS = 200  # with fewer pairs, too little can be learned
SWAPPED_SHARE = 0.5  # with a greater share of exchanged pairs, the user probably exchanged the two paths
N_RAW = 200  # maximum number of faulty pairs from which an encoding is guessed
N_STRETCHES = 3  # maximum number of stretches of lines in the detail of a finding
MISMATCH = 4.0  # nats; minimum log-likelihood ratio of a mismatch, unrelated against translated
# Kinds of fault that a comparison of the two texts finds.
OF_PAIRS = ("copy", "numbers", "placeholders", "repetition", "truncated", "ratio")
# If the lengths of the two sides correlate less, the sides are unrelated. Unrelated lines reach 0.36. Samples of 200
# pairs of Multi30k de-en, Tatoeba de-en and zh-en reach at least 0.69.
MIN_CORRELATION = 0.4
# A declared language is wrong if at least this share of the chunks is in another language. The share is high, because
# py3langid is often wrong for names and short texts.
MIN_AGREEMENT = 0.9


@dataclass(frozen=True, eq=False)
class FindingDraft:
    """A finding that has no severity and no examples yet."""

    kind: str
    lines: NDArray[np.int64]
    detail: str = ""


def evidence_of(train: Gathered, usual: Usual) -> Evidence | None:
    """Return the evidence that tells translations from unrelated lines.

    The result is None if the training corpus is too small, or if its sides seem to be unrelated.
    """
    if train.survey.n_pairs < MIN_PAIRS:
        return None
    # 1. Estimate from the sample.
    evidence = usual.evidence
    if evidence.contrast < alignment.MIN_CONTRAST:
        return None
    # 2. Estimate from the pairs outside of the blocks.
    is_related = ~alignment.in_blocks(evidence(train.paired))
    if is_related.sum() < MIN_PAIRS:
        return evidence
    return alignment.weigh(train.paired[:, is_related], train.unrelated)


def in_unrelated_blocks(gathered: Gathered, evidence: Evidence) -> NDArray[np.bool_]:
    """Return whether each pair is in a block of unrelated pairs."""
    ratios = evidence(gathered.paired)
    # Exchanged pairs look unrelated to the lexicon, which has a direction. Set their evidence to 0, which is neutral.
    ratios[gathered.lines_of("exchanged") - 1] = 0
    return alignment.in_blocks(ratios)


def of_lines(gathered: Gathered, runs: Sequence[Run]) -> list[FindingDraft]:
    """Return the findings about single pairs.

    A misplaced line gets no findings of the kinds in `OF_PAIRS`, because its pair is wrong anyway.
    """
    drafts = []
    misplaced = misplaced_lines(gathered, runs)
    for kind, lines in gathered.hits.items():
        if kind in OF_PAIRS:
            lines = np.setdiff1d(lines, misplaced)
        detail = encoding_detail(gathered, lines) if kind == "encoding" else ""
        drafts.append(FindingDraft(kind, lines, detail))
    if len(gathered.lines_of("exchanged")) > SWAPPED_SHARE * gathered.survey.n_pairs:
        drafts.append(FindingDraft("swapped", NONE))
    return drafts


def encoding_detail(gathered: Gathered, lines: NDArray[np.int64]) -> str:
    """Return a command that converts a file to UTF-8, or "" if the encoding is unknown."""
    raw: list[bytes] = []
    for paths in gathered.survey.files.sides:
        raw += lines_at(paths, lines[:N_RAW].tolist()).values()
    guess = guess_encoding([line for line in raw if not is_utf8(line)])
    return f"perhaps {guess}: iconv -f {guess} -t utf-8 FILE > NEW" if guess else ""


def guess_encoding(lines: Sequence[bytes]) -> str:
    """Return iconv's name of the likely encoding of lines that are not UTF-8, or ""."""
    import chardet

    result = chardet.detect(b"\n".join(lines), encoding_era=chardet.EncodingEra.MODERN_WEB)
    encoding = result["encoding"] or ""
    return "" if encoding.startswith(("ascii", "utf-8")) else encoding


def misplaced_lines(gathered: Gathered, runs: Sequence[Run]) -> NDArray[np.int64]:
    """Return the line numbers of the pairs that do not belong together."""
    is_misplaced = np.ones(gathered.survey.n_pairs, bool)
    for run in runs:
        is_misplaced[run.start : run.end] = run.offset != 0
    return np.flatnonzero(is_misplaced) + 1


def gaps(runs: Sequence[Run], n_lines: int) -> list[Run]:
    """Return the stretches of source lines that are in no run."""
    stretches = []
    end = 0  # end of the previous run
    for run in [*runs, Run(n_lines, n_lines)]:
        if end < run.start:
            stretches.append(Run(end, run.start))
        end = run.end
    return stretches


def of_alignment(gathered: Gathered, runs: Sequence[Run], evidence: Evidence | None) -> list[FindingDraft]:
    """Return the findings about misaligned text: missing lines, misplaced blocks, and single pairs that do not fit."""
    drafts = []
    survey = gathered.survey
    # Find lines that belong to a line with another number.
    if survey.n_source != survey.n_target:
        numbers = f"{survey.n_source:,} source lines, {survey.n_target:,} target lines"
        drafts.append(FindingDraft("counts", NONE, numbers))
    if evidence is None:
        kind = "unrelated" if is_unrelated(gathered) else "unchecked"
        return [*drafts, FindingDraft(kind, NONE)]
    shifted = [run for run in runs if run.offset]
    shuffled = gaps(runs, survey.n_source)
    drafts.append(of_stretches("shifted", shifted, survey.n_pairs))
    drafts.append(of_stretches("shuffled", shuffled, survey.n_pairs))
    # Find pairs that are in the right place, but look like unrelated lines.
    has_words = ~np.isnan(gathered.paired[0])
    is_odd = has_words & (evidence(gathered.paired) > MISMATCH)
    is_odd[misplaced_lines(gathered, runs) - 1] = False
    explained = gathered.lines_of("exchanged", "untranslated", "language", "ratio", "copy")
    mismatched = np.setdiff1d(np.flatnonzero(is_odd) + 1, explained)
    return [*drafts, FindingDraft("mismatch", mismatched)]


def of_stretches(kind: str, stretches: Sequence[Run], n_pairs: int) -> FindingDraft:
    """Return a draft with the lines of all stretches. Lines after the last pair are left out."""
    lines: list[int] = []
    for stretch in stretches:
        lines += range(stretch.start + 1, min(stretch.end, n_pairs) + 1)
    detail = "; ".join(map(str, stretches[:N_STRETCHES]))
    if len(stretches) > N_STRETCHES:
        detail += f"; and {len(stretches) - N_STRETCHES} more"
    return FindingDraft(kind, np.array(lines, np.int64), detail)


def is_unrelated(gathered: Gathered) -> bool:
    """Return whether the lengths of the two sides do not correlate. Then the sides are unrelated.

    For few pairs or constant lengths, return False.
    """
    survey = gathered.survey
    source_lengths = np.log1p(list(map(len, survey.source)))
    target_lengths = np.log1p(list(map(len, survey.target)))
    if survey.n_pairs < MIN_PAIRS or not source_lengths.std() or not target_lengths.std():
        return False
    return bool(np.corrcoef(source_lengths, target_lengths)[0, 1] < MIN_CORRELATION)


def of_repetition(gathered: Gathered) -> FindingDraft:
    repeated = np.flatnonzero(~first_occurrences(gathered.digests[PAIR])) + 1
    return FindingDraft("duplicate", np.setdiff1d(repeated, gathered.lines_of("blank")))


def of_overlap(gathered: Gathered, earlier: Sequence[Gathered]) -> list[FindingDraft]:
    """Return drafts on pairs that share a source or target with an earlier corpus, exactly or almost.

    Dev pairs are compared with training pairs, and test pairs with training and dev pairs.
    """
    drafts = []
    blank = gathered.lines_of("blank")
    for other in earlier:
        leaks = np.setdiff1d(shared_lines(gathered, other, SOURCE, TARGET), blank)
        near_leaks = np.setdiff1d(shared_lines(gathered, other, SOURCE_KEY, TARGET_KEY), blank)
        detail = f"in {other.survey.files.name}"
        drafts.append(FindingDraft("leak", leaks, detail))
        drafts.append(FindingDraft("near-leak", np.setdiff1d(near_leaks, leaks), detail))
    return drafts


def shared_lines(gathered: Gathered, other: Gathered, *sides: int) -> NDArray[np.int64]:
    """Return the numbers of the lines that share a digest with another corpus.

    `sides` are the rows of the digests that are compared, such as `SOURCE` and `TARGET`.
    """
    is_shared = np.zeros(gathered.survey.n_pairs, bool)
    for side in sides:
        is_shared |= np.isin(gathered.digests[side], other.digests[side])
    return np.flatnonzero(is_shared) + 1


def of_languages(languages: Languages, declared: tuple[str, str]) -> list[FindingDraft]:
    """Return a list with a draft if a side of the training corpus is not in its declared language.

    `declared` are results of `label_of`.
    """
    wrong = []
    # Exchanged sides are the likeliest mistake, so less evidence is enough.
    are_exchanged = [side.name for side in languages.identified] == [*reversed(declared)]
    for side, (name, agreement), label in zip(SIDES, languages.identified, declared, strict=True):
        # py3langid takes a language that it does not know for another one.
        if name in ("", label) or label not in identifier().labels:
            continue
        is_sure = are_exchanged or agreement >= MIN_AGREEMENT
        if is_sure and not any({name, label} <= group for group in CONFUSED):
            wrong.append(f"the {side} is said to be {label}, but it looks like {name}")
    return [FindingDraft("declared", NONE, "; ".join(wrong))] if wrong else []
