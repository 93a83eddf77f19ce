"""Findings from the results for all pairs of a corpus, or of several: lines, alignment, repeated text, languages."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmt.config import base_language
from nmt.corpus import alignment, bootstrap
from nmt.corpus.alignment import Evidence
from nmt.corpus.bootstrap import MIN_PAIRS
from nmt.corpus.examine import NONE, Gathered, Usual
from nmt.corpus.language import Identified, identifier
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
    """How agreement and length tell translations from unrelated lines; None if train is too small, or looks unrelated.

    Estimates twice, the second time without the blocks of unrelated pairs that the first estimate finds.
    """
    if train.survey.n_pairs < MIN_PAIRS:
        return None
    evidence = alignment.weigh(train.paired, train.unrelated)
    if evidence.contrast < alignment.MIN_CONTRAST:
        return None
    is_true = np.ones(train.survey.n_pairs, bool)
    for start, end in alignment.blocks(evidence(train.paired)):
        is_true[start:end] = False
    return alignment.weigh(train.paired, train.unrelated, is_true) if is_true.sum() >= MIN_PAIRS else evidence


def unrelated_blocks(found: Gathered, evidence: Evidence) -> list[tuple[int, int]]:
    """Blocks [start, end) of lines that do not belong to the lines with the same number."""
    ratios = evidence(found.paired)
    ratios[found.lines_of("exchanged") - 1] = 0  # the lexicon has a direction
    return alignment.blocks(ratios)


def of_lines(found: Gathered, runs: Sequence[Run]) -> list[Draft]:
    """The faults that were found in single pairs; differences between sides only if the lines belong together."""
    drafts = {name: Draft(name, found.lines_of(name)) for name in found.hits}
    for name in drafts.keys() & set(OF_PAIRS):
        drafts[name] = Draft(name, np.setdiff1d(drafts[name].lines, misplaced_lines(found, runs)))
    if "encoding" in drafts:
        chosen = drafts["encoding"].lines[:N_RAW].tolist()
        raw = [line for paths in found.survey.files.sides for line in lines_at(paths, chosen).values()]
        guess = guess_encoding([line for line in raw if not is_utf8(line)])
        detail = f"perhaps {guess}: iconv -f {guess} -t utf-8 FILE > NEW" if guess else ""
        drafts["encoding"] = Draft("encoding", drafts["encoding"].lines, detail)
    if len(found.lines_of("exchanged")) > SWAPPED_SHARE * found.survey.n_pairs:
        drafts["swapped"] = Draft("swapped", NONE)
    return list(drafts.values())


def guess_encoding(lines: Sequence[bytes]) -> str:
    """Return the likely encoding of lines that are not UTF-8, by its name for iconv; empty if unknown."""
    import chardet

    found = chardet.detect(b"\n".join(lines), encoding_era=chardet.EncodingEra.MODERN_WEB)["encoding"]
    return found if found and not found.startswith(("ascii", "utf-8")) else ""


def misplaced_lines(found: Gathered, runs: Sequence[Run]) -> NDArray[np.int64]:
    """The numbers of the lines that do not belong to the line with the same number."""
    is_misplaced = np.ones(found.survey.n_pairs, bool)
    for run in runs:
        is_misplaced[run.start : run.end] = run.offset != 0
    return np.flatnonzero(is_misplaced) + 1


def gaps(runs: Sequence[Run], n_lines: int) -> list[Run]:
    """The stretches of source lines between the runs."""
    result = []
    end = 0  # of the run before
    for run in [*runs, Run(n_lines, n_lines)]:
        if end < run.start:
            result.append(Run(end, run.start))
        end = run.end
    return result


def where_they_part(runs: Sequence[Run], n_pairs: int) -> str:
    """At which source lines the offset changes, as the end of a message; "" if that is unknown."""
    if not runs:
        return ""
    changes = []  # numbers of the first lines that have no partner at the offset before
    for before, after in pairwise([Run(0, 0), *runs]):
        if before.offset != after.offset:
            changes.append(before.end + 1)
    if not changes:
        return "; the longer side goes on after the end of the other" if runs[-1].end == n_pairs else ""
    shown = " and ".join(f"{line:,}" for line in changes[:3])
    n_more = len(changes) - 3
    if n_more > 0:
        shown += f" and {n_more} more"
    return f"; they part at about line {shown}"


def of_alignment(found: Gathered, runs: Sequence[Run], evidence: Evidence | None) -> list[Draft]:
    """Different numbers of lines, blocks that are shifted or shuffled, and single pairs that do not belong together."""
    drafts = []
    survey = found.survey
    shifted = [run for run in runs if run.offset]
    if survey.n_source != survey.n_target:
        detail = f"{survey.n_source:,} source lines, {survey.n_target:,} target lines"
        drafts.append(Draft("counts", NONE, f"{detail}{where_they_part(runs, survey.n_pairs)}"))
    if evidence is None:
        return [*drafts, Draft("unrelated" if is_unrelated(found) else "unchecked", NONE)]
    drafts += of_stretches("shifted", shifted, survey.n_pairs)
    drafts += of_stretches("shuffled", gaps(runs, survey.n_source), survey.n_pairs)
    # Of the lines that belong together by their places, those whose words hardly do.
    is_odd = (evidence(found.paired) > MISMATCH) & ~np.isnan(found.paired[0])
    is_odd[misplaced_lines(found, runs) - 1] = False
    explained = found.lines_of("exchanged", "untranslated", "language", "ratio", "copy")
    return [*drafts, Draft("mismatch", np.setdiff1d(np.flatnonzero(is_odd) + 1, explained))]


def of_stretches(kind: str, stretches: Sequence[Run], n_pairs: int) -> list[Draft]:
    """A finding of all lines of some stretches, as far as there are lines with the same number on both sides."""
    numbers = [np.arange(stretch.start + 1, stretch.end + 1) for stretch in stretches]
    lines = np.concatenate([NONE, *numbers])
    lines = lines[lines <= n_pairs]
    if not len(lines):
        return []
    detail = "; ".join(str(stretch) for stretch in stretches[:3])
    if len(stretches) > 3:
        detail += f"; and {len(stretches) - 3} more"
    return [Draft(kind, lines, detail)]


def is_unrelated(found: Gathered) -> bool:
    """Whether neither the lengths nor the words of the two sides depend on each other."""
    sides = found.survey.source, found.survey.target
    source, target = (np.log1p(np.array([*map(len, side)], np.float64)) for side in sides)
    if found.survey.n_pairs < MIN_PAIRS or not source.std() or not target.std():
        return False
    if float(np.corrcoef(source, target)[0, 1]) >= MIN_CORRELATION:
        return False
    return not bootstrap.are_related(found.survey.source, found.survey.target)


def of_repetition(found: Gathered) -> list[Draft]:
    repeated = np.flatnonzero(~first_occurrences(found.digests[2])) + 1
    return [Draft("duplicate", np.setdiff1d(repeated, found.lines_of("blank")))]


def of_overlap(found: Gathered, earlier: Sequence[Gathered]) -> list[Draft]:
    """Lines with a side that is also, or almost, in an earlier corpus: train and, for test, dev."""
    drafts = []
    for other in earlier:
        explained = found.lines_of("blank")
        for kind, sides in (("leak", (0, 1)), ("near-leak", (3, 4))):
            is_shared = np.zeros(found.survey.n_pairs, bool)
            for own, theirs in ((found.digests[side], other.digests[side]) for side in sides):
                is_shared |= np.isin(own, theirs)
            shared = np.setdiff1d(np.flatnonzero(is_shared) + 1, explained)
            drafts.append(Draft(kind, shared, f"in {other.survey.files.name}"))
            explained = np.union1d(explained, shared)
    return drafts


def label_of(code: str) -> str:
    """py3langid's label of a language: de for de, de-AT and deu."""
    base = base_language(code)
    return TWO_LETTERS.get(base, base)


def language_of_side(identified: Identified, declared: str) -> str:
    """The code of a side's language; "" if py3langid does not know it, so that the votes scatter."""
    if declared in ("", identified.name):
        return identified.name
    is_declared_wrongly = declared in identifier().labels and identified.agreement >= MIN_AGREEMENT
    return identified.name if is_declared_wrongly else ""


def of_languages(usual: Usual, declared: tuple[str, str]) -> list[Draft]:
    """Sides of train that are not in the language that the config or the file name declares, as `label_of` it."""
    wrong = []
    are_exchanged = usual.languages.names == (declared[1], declared[0])  # the likeliest mistake needs less evidence
    for side, identified, said in zip(SIDES, usual.languages.identified, declared, strict=True):
        are_similar = any({identified.name, said} <= group for group in SIMILAR)
        is_ruled_out = identified.ruled_out.get(said, 0.0) >= MIN_RULED_OUT
        is_sure = is_ruled_out and (are_exchanged or identified.agreement >= MIN_AGREEMENT)
        if identified.name not in ("", said) and is_sure and not are_similar:
            wrong.append(f"the {side} is said to be {said}, but it looks like {identified.name}")
    return [Draft("declared", NONE, "; ".join(wrong))] if wrong else []
