"""Findings from the results for all pairs of a corpus, or of several: lines, alignment, repeated text, languages."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmt.config import base_language
from nmt.corpus import alignment, bootstrap
from nmt.corpus.alignment import Block, Evidence
from nmt.corpus.bootstrap import MIN_PAIRS
from nmt.corpus.examine import NONE, PAIR, SOURCE, SOURCE_KEY, TARGET, TARGET_KEY, Gathered
from nmt.corpus.language import Identified, Languages, identifier
from nmt.corpus.pairing import Run
from nmt.corpus.reading import is_utf8, lines_at
from nmt.text.corpus_files import SIDES
from nmt.text.permutation import first_occurrences

SWAPPED_SHARE = 0.5  # share of exchanged lines above which the paths were probably exchanged
N_RAW = 200  # lines from which an encoding is guessed
MISMATCH = 4.0  # log-likelihood ratio in nats, unrelated against translated, above which a pair is a mismatch
OF_PAIRS = ("copy", "numbers", "placeholders", "repetition", "truncated", "ratio")  # kinds that compare both sides
MIN_CORRELATION = 0.4  # between the lengths of both sides; unrelated lines whose lengths have a trend reach 0.36
# Shares of the chunks of a side that are in another language than declared, and in which the declared one is ruled out,
# from which the declaration is wrong: names and short texts scatter over languages.
MIN_AGREEMENT, MIN_RULED_OUT = 0.9, 0.6
TWO_LETTERS = {"deu": "de", "eng": "en", "fra": "fr", "ces": "cs", "zho": "zh", "cmn": "zh", "spa": "es"}
SIMILAR = ({"da", "no", "nb", "nn"}, {"zh", "ja"}, {"bs", "hr", "sr"}, {"id", "ms"})  # easily confused


@dataclass(frozen=True, eq=False)
class Draft:
    """A finding without its examples."""

    kind: str
    lines: NDArray[np.int64]
    detail: str = ""


def evidence_of(train: Gathered) -> Evidence | None:
    """Return how agreement and length tell translations from unrelated lines.

    Estimates twice, the second time without the blocks of unrelated pairs that the first estimate finds.
    None if train is too small, or looks unrelated.
    """
    if train.survey.n_pairs < MIN_PAIRS:
        return None
    # 1. Of all pairs.
    evidence = alignment.weigh(train.paired, train.unrelated)
    if evidence.contrast < alignment.MIN_CONTRAST:
        return None
    # 2. Of the pairs outside of blocks.
    is_related = np.ones(train.survey.n_pairs, bool)
    for start, end in alignment.blocks(evidence(train.paired)):
        is_related[start:end] = False
    if is_related.sum() < MIN_PAIRS:
        return evidence
    return alignment.weigh(train.paired[:, is_related], train.unrelated)


def unrelated_blocks(gathered: Gathered, evidence: Evidence | None) -> list[Block]:
    """Return blocks of lines that do not belong to the lines with the same number; none without evidence."""
    if evidence is None:
        return []
    ratios = evidence(gathered.paired)
    ratios[gathered.lines_of("exchanged") - 1] = 0  # the lexicon has a direction
    return alignment.blocks(ratios)


def of_lines(gathered: Gathered, runs: Sequence[Run]) -> list[Draft]:
    """Return the faults of single pairs; differences between sides count only if the lines belong together."""
    drafts = []
    misplaced = misplaced_lines(gathered, runs)
    for kind, lines in gathered.hits.items():
        if kind in OF_PAIRS:
            lines = np.setdiff1d(lines, misplaced)
        detail = encoding_detail(gathered, lines) if kind == "encoding" else ""
        drafts.append(Draft(kind, lines, detail))
    if len(gathered.lines_of("exchanged")) > SWAPPED_SHARE * gathered.survey.n_pairs:
        drafts.append(Draft("swapped", NONE))
    return drafts


def encoding_detail(gathered: Gathered, lines: NDArray[np.int64]) -> str:
    """Return how to convert a file with lines that are not UTF-8; "" if their encoding cannot be guessed."""
    chosen = lines[:N_RAW].tolist()
    raw: list[bytes] = []
    for paths in gathered.survey.files.sides:
        raw += lines_at(paths, chosen).values()
    guess = guess_encoding([line for line in raw if not is_utf8(line)])
    return f"perhaps {guess}: iconv -f {guess} -t utf-8 FILE > NEW" if guess else ""


def guess_encoding(lines: Sequence[bytes]) -> str:
    """Return the likely encoding of lines that are not UTF-8, by its name for iconv; empty if unknown."""
    import chardet

    result = chardet.detect(b"\n".join(lines), encoding_era=chardet.EncodingEra.MODERN_WEB)
    encoding = result["encoding"] or ""
    return "" if encoding.startswith(("ascii", "utf-8")) else encoding


def misplaced_lines(gathered: Gathered, runs: Sequence[Run]) -> NDArray[np.int64]:
    """Return the numbers of the lines that do not belong to the line with the same number."""
    is_misplaced = np.ones(gathered.survey.n_pairs, bool)
    for run in runs:
        is_misplaced[run.start : run.end] = run.offset != 0
    return np.flatnonzero(is_misplaced) + 1


def gaps(runs: Sequence[Run], n_lines: int) -> list[Run]:
    """Return the stretches of source lines between the runs."""
    stretches = []
    end = 0  # of the run before
    for run in [*runs, Run(n_lines, n_lines)]:
        if end < run.start:
            stretches.append(Run(end, run.start))
        end = run.end
    return stretches


def where_they_part(runs: Sequence[Run], n_pairs: int) -> str:
    """Return at which source lines the offset changes, as the end of a message; "" if that is unknown."""
    if not runs:
        return ""
    changes = []  # numbers of the first lines that have no partner at the offset before
    for before, after in pairwise([Run(0, 0), *runs]):
        if before.offset != after.offset:
            changes.append(f"{before.end + 1:,}")
    if changes:
        return f"; they part at about line {first_three(changes, ' and ', ' and ')}"
    return "; the longer side goes on after the end of the other" if runs[-1].end == n_pairs else ""


def first_three(items: Sequence[object], separator: str, last_separator: str) -> str:
    """Return the first three items, and how many more there are."""
    shown = separator.join(map(str, items[:3]))
    n_more = len(items) - 3
    return f"{shown}{last_separator}{n_more} more" if n_more > 0 else shown


def of_alignment(gathered: Gathered, runs: Sequence[Run], evidence: Evidence | None) -> list[Draft]:
    """Return different numbers of lines, blocks that are shifted or shuffled, and single pairs that do not fit."""
    drafts = []
    survey = gathered.survey
    # Say which lines are not where their translations should be.
    if survey.n_source != survey.n_target:
        numbers = f"{survey.n_source:,} source lines, {survey.n_target:,} target lines"
        drafts.append(Draft("counts", NONE, numbers + where_they_part(runs, survey.n_pairs)))
    if evidence is None:
        kind = "unrelated" if is_unrelated(gathered) else "unchecked"
        return [*drafts, Draft(kind, NONE)]
    shifted = [run for run in runs if run.offset]
    shuffled = gaps(runs, survey.n_source)
    drafts.append(of_stretches("shifted", shifted, survey.n_pairs))
    drafts.append(of_stretches("shuffled", shuffled, survey.n_pairs))
    # Of the lines that belong together by their places, find those whose words hardly do.
    has_words = ~np.isnan(gathered.paired[0])
    is_odd = has_words & (evidence(gathered.paired) > MISMATCH)
    is_odd[misplaced_lines(gathered, runs) - 1] = False
    explained = gathered.lines_of("exchanged", "untranslated", "language", "ratio", "copy")
    mismatched = np.setdiff1d(np.flatnonzero(is_odd) + 1, explained)
    return [*drafts, Draft("mismatch", mismatched)]


def of_stretches(kind: str, stretches: Sequence[Run], n_pairs: int) -> Draft:
    """Return a finding of all lines of some stretches, as far as both sides have lines with these numbers."""
    lines: list[int] = []
    for stretch in stretches:
        lines += range(stretch.start + 1, min(stretch.end, n_pairs) + 1)
    return Draft(kind, np.array(lines, np.int64), first_three(stretches, "; ", "; and "))


def is_unrelated(gathered: Gathered) -> bool:
    """Return whether neither the lengths nor the words of the two sides depend on each other."""
    survey = gathered.survey
    source_lengths = np.log1p(list(map(len, survey.source)))
    target_lengths = np.log1p(list(map(len, survey.target)))
    if survey.n_pairs < MIN_PAIRS or not source_lengths.std() or not target_lengths.std():
        return False
    correlation = np.corrcoef(source_lengths, target_lengths)[0, 1]
    if correlation >= MIN_CORRELATION:
        return False
    return not bootstrap.are_related(survey.source, survey.target)


def of_repetition(gathered: Gathered) -> Draft:
    repeated = np.flatnonzero(~first_occurrences(gathered.digests[PAIR])) + 1
    return Draft("duplicate", np.setdiff1d(repeated, gathered.lines_of("blank")))


def of_overlap(gathered: Gathered, earlier: Sequence[Gathered]) -> list[Draft]:
    """Return lines with a side that is also, or almost, in an earlier corpus: train and, for test, dev."""
    drafts = []
    blank = gathered.lines_of("blank")
    for other in earlier:
        leaks = np.setdiff1d(shared_lines(gathered, other, SOURCE, TARGET), blank)
        near_leaks = np.setdiff1d(shared_lines(gathered, other, SOURCE_KEY, TARGET_KEY), blank)
        detail = f"in {other.survey.files.name}"
        drafts.append(Draft("leak", leaks, detail))
        drafts.append(Draft("near-leak", np.setdiff1d(near_leaks, leaks), detail))
    return drafts


def shared_lines(gathered: Gathered, other: Gathered, *sides: int) -> NDArray[np.int64]:
    """Return the numbers of the lines of which one of these digests is in another corpus, too."""
    is_shared = np.zeros(gathered.survey.n_pairs, bool)
    for side in sides:
        is_shared |= np.isin(gathered.digests[side], other.digests[side])
    return np.flatnonzero(is_shared) + 1


def label_of(code: str) -> str:
    """Return py3langid's label of a language: de for de, de-AT and deu."""
    base = base_language(code)
    return TWO_LETTERS.get(base, base)


def language_of_side(identified: Identified, declared: str) -> str:
    """Return the code of a side's language; "" if py3langid does not know it, so that the votes scatter."""
    if declared in ("", identified.name):
        return identified.name
    is_declared_wrongly = declared in identifier().labels and identified.agreement >= MIN_AGREEMENT
    return identified.name if is_declared_wrongly else ""


def of_languages(languages: Languages, declared: tuple[str, str]) -> list[Draft]:
    """Return sides of train that are not in the language that the config or the file name declares, as `label_of`."""
    wrong = []
    are_exchanged = languages.names == (declared[1], declared[0])  # the likeliest mistake needs less evidence
    for side, identified, label in zip(SIDES, languages.identified, declared, strict=True):
        name = identified.name
        # Chunks of the side must vote against the declared language, and for another one.
        is_ruled_out = identified.ruled_out.get(label, 0.0) >= MIN_RULED_OUT
        is_sure = is_ruled_out and (are_exchanged or identified.agreement >= MIN_AGREEMENT)
        if name in ("", label) or not is_sure:
            continue
        if not any({name, label} <= group for group in SIMILAR):
            wrong.append(f"the {side} is said to be {label}, but it looks like {name}")
    return [Draft("declared", NONE, "; ".join(wrong))] if wrong else []
