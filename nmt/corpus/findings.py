"""Findings from the results for all pairs of a corpus, or of several: lines, alignment, repeated text, languages."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.config import base_language
from nmt.corpus import alignment
from nmt.corpus.alignment import Evidence
from nmt.corpus.blocks import Span
from nmt.corpus.examine import NONE, Gathered, Usual
from nmt.corpus.language import identifier
from nmt.corpus.reading import is_utf8, lines_at
from nmt.text.corpus import SIDES, first_occurrences

SWAPPED_SHARE = 0.5  # share of exchanged lines above which the paths were probably exchanged
N_RAW = 200  # lines from which an encoding is guessed
MISMATCH = 4.0  # log-likelihood ratio in nats, unrelated against translated, above which a pair is a mismatch
MIN_PAIRS = 200  # with fewer pairs the alignment cannot be judged
MIN_CORRELATION = 0.2  # between the lengths of both sides
SIMILAR = ({"da", "no", "nb", "nn"}, {"zh", "ja"}, {"bs", "hr", "sr"}, {"id", "ms"})  # easily confused
TWO_LETTERS = {"deu": "de", "eng": "en", "fra": "fr", "ces": "cs", "zho": "zh", "cmn": "zh", "spa": "es"}


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


def of_lines(found: Gathered) -> list[Draft]:
    """The faults that were found in single pairs."""
    drafts = {name: Draft(name, found.lines_of(name)) for name in found.hits}
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


def of_alignment(found: Gathered, spans: Sequence[Span], evidence: Evidence | None) -> list[Draft]:
    """Different numbers of lines, blocks that are shifted or shuffled, and single pairs that do not belong together."""
    drafts = []
    n_source, n_target = found.survey.n_source, found.survey.n_target
    if n_source != n_target:
        detail = f"{n_source:,} source lines, {n_target:,} target lines"
        where = "the longer side goes on after the end of the other"
        if spans and spans[-1].end == found.survey.n_pairs:
            where = f"they part at about line {spans[-1].start + 1:,}"
        drafts.append(Draft("counts", NONE, f"{detail}; {where}"))
    for name, has_offset in (("shifted", True), ("shuffled", False)):
        chosen = [span for span in spans if bool(span.offset) == has_offset]
        if chosen:
            detail = "; ".join(map(str, chosen[:3])) + (f"; and {len(chosen) - 3} more" if len(chosen) > 3 else "")
            lines = np.concatenate([np.arange(span.start + 1, span.end + 1) for span in chosen])
            drafts.append(Draft(name, lines, detail))
    if evidence is None:
        return [*drafts, Draft("unrelated" if is_unrelated(found) else "unchecked", NONE)]
    is_odd = (evidence(found.paired) > MISMATCH) & ~np.isnan(found.paired[0])
    for span in spans:
        is_odd[span.start : span.end] = False
    explained = found.lines_of("exchanged", "untranslated", "language", "ratio", "copy")
    return [*drafts, Draft("mismatch", np.setdiff1d(np.flatnonzero(is_odd) + 1, explained))]


def is_unrelated(found: Gathered) -> bool:
    """Whether not even the lengths of the two sides are correlated."""
    sides = found.survey.source, found.survey.target
    source, target = (np.log1p(np.array([*map(len, side)], np.float64)) for side in sides)
    if found.survey.n_pairs < MIN_PAIRS or not source.std() or not target.std():
        return False
    return float(np.corrcoef(source, target)[0, 1]) < MIN_CORRELATION


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


def of_languages(usual: Usual, declared: tuple[str, str]) -> list[Draft]:
    """Sides of train that are not in the language that the config or the file name declares."""
    found = []
    for side, shown, said in zip(SIDES, usual.languages.names, map(base_language, declared), strict=True):
        said = TWO_LETTERS.get(said, said)
        are_similar = any({shown, said} <= group for group in SIMILAR)
        if shown and said in identifier().labels and shown != said and not are_similar:
            found.append(f"the {side} is said to be {said}, but it looks like {shown}")
    return [Draft("declared", NONE, "; ".join(found))] if found else []
