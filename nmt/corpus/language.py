"""Tell which language a text is in, offline.

Uses two methods, because each is strong where the other is weak. Character n-grams learned from the two sides of the
corpus (Cavnar & Trenkle 1994, "N-gram-based text categorization", as a likelihood ratio) tell any two languages apart,
even in short lines, but cannot identify a third language. py3langid identifies 133 languages, but scatters lines of any
other over them. A line counts as in a third language only if, in addition, its n-grams are rare on its side.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

BITS = 18  # of the hash of an n-gram
SMOOTHING = 0.5  # added to each count
MAX_LLR = 5.0  # nats per n-gram: one unseen n-gram proves nothing
MIN_DISTANCE = 0.5  # nats per n-gram between typical lines of both sides, below which they cannot be told apart
MIN_TOTAL = 25.0  # nats, below which a text is too short to tell its language
CLEAR, LEANING = 0.15, 0.03  # how far past the midpoint of the medians of the sides, as a share of their distance
RARE_SHARE = 0.25  # the n-grams of this share of a side's lines count as rare
N_IDENTIFIED = 5_000  # lines that are enough to tell the language of a side
SURE = 0.5  # probability of the language of a side
LIKELY, RULED_OUT = 0.25, 0.05  # of a third language that a line is in, and of the languages of the sides
VARIETIES = {"ary", "arz", "hbo", "pcm", "wuu", "yue"}  # of Arabic, Hebrew, English and Chinese: short lines look alike


@dataclass(frozen=True, eq=False)
class Languages:
    """What was learned about the languages of the two sides."""

    names: tuple[str, str]  # codes such as de; "" if unknown
    log_probs: NDArray[np.float32]  # (2, 2^BITS), of each n-gram on each side
    log_ratios: NDArray[np.float32]  # (2^BITS,) log p(n-gram | source) - log p(n-gram | target), clipped to ±`MAX_LLR`
    typical: tuple[float, float]  # median log-likelihood ratio per n-gram (source against target) of each side's lines
    rare: tuple[float, float]  # log-probability per n-gram below which RARE_SHARE of each side's lines are


def learn(source: Sequence[str], target: Sequence[str]) -> Languages:
    """Learn the languages of the two sides from a sample of their lines."""
    sides = source, target
    few = [side[:: -(-len(side) // N_IDENTIFIED)] for side in sides]
    grams = [ngrams(side) for side in sides]
    counts = [np.bincount(hashes.reshape(-1), minlength=2**BITS) + SMOOTHING for hashes, _ in grams]
    log_probs = np.stack([np.log(count / count.sum()) for count in counts]).astype(np.float32)
    log_ratios = np.clip(log_probs[0] - log_probs[1], -MAX_LLR, MAX_LLR)
    ratios = [per_line(log_ratios, *of_side) for of_side in grams]
    own = [per_line(log_probs[side], *grams[side]) for side in (0, 1)]
    return Languages(
        names=(identify(few[0]), identify(few[1])),
        log_probs=log_probs,
        log_ratios=log_ratios,
        typical=(float(np.median(ratios[0])), float(np.median(ratios[1]))),
        rare=(float(np.quantile(own[0], RARE_SHARE)), float(np.quantile(own[1], RARE_SHARE))),
    )


def ngrams(texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Hashes of the n-grams (1 to 3 characters) that begin at each position: (3, N); the start of each line: (n,).

    Text is lower-cased, and all digits count as the same. The newlines before and after a line are part of n-grams.
    """
    joined = "\n".join(["", *texts, "", "", ""]).lower()
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    codes = np.where((codes >= 48) & (codes <= 57), np.uint32(48), codes)
    ends = np.flatnonzero(codes[:-2] == 10)
    size = int(ends[len(texts)])
    hashes = np.empty((3, size), np.uint32)
    mixed = np.zeros(size, np.uint32)
    third = np.where(codes[1 : size + 1] == 10, np.uint32(10), codes[2 : size + 2])  # not from the next line
    for n, character in enumerate((codes[:size], codes[1 : size + 1], third)):
        mixed = (mixed ^ character) * np.uint32(0x9E3779B1)
        mixed ^= mixed >> np.uint32(15)
        hashes[n] = (mixed * np.uint32(0x85EBCA6B + 2 * n)) >> np.uint32(32 - BITS)
    return hashes, ends[: len(texts)]


def per_line(values: NDArray[np.float32], hashes: NDArray[np.uint32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """The mean value of the n-grams of each line."""
    places = values[hashes].sum(0)
    lengths = np.diff(np.append(starts, len(places)))
    return np.asarray(np.add.reduceat(places, starts) / (3 * lengths), np.float32)


def compared(texts: Sequence[str], side: int, languages: Languages) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Whether each line is in the other side's language, and whether its n-grams are rare on its own side.

    Returns (n,): 2 for clearly, 1 for perhaps, 0 for no; and (n,).
    """
    hashes, starts = ngrams(texts)
    middle, distance = sum(languages.typical) / 2, languages.typical[0] - languages.typical[1]
    ratio = per_line(languages.log_ratios, hashes, starts) - middle
    towards_other = ratio if side else -ratio
    total = towards_other * 3 * np.diff(np.append(starts, hashes.shape[1]))
    is_clear = (towards_other > CLEAR * distance) & (total > MIN_TOTAL)
    found = is_clear.astype(np.int8) + (towards_other > LEANING * distance)
    is_rare = per_line(languages.log_probs[side], hashes, starts) < languages.rare[side]
    return np.asarray(found * (distance > MIN_DISTANCE), np.int8), is_rare


@functools.cache
def identifier() -> "LanguageIdentifier":
    """py3langid's model without `VARIETIES`: 4.6 MB on disk, 120 MB in memory. Its scores are probabilities."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    model.set_languages({*model.labels} - VARIETIES)
    model.nb_ptc = np.ascontiguousarray(model.nb_ptc)  # a third faster than the columns that are left
    return model


def identify(texts: Sequence[str]) -> str:
    """The language of many lines, as py3langid names it; "" if it is not sure."""
    name, probability = identifier().classify("\n".join(texts))
    return name if probability > SURE else ""


def probabilities(text: str) -> dict[str, float]:
    """Return the probability that a text is in each language, by py3langid's language code."""
    return {name: float(probability) for name, probability in identifier().rank(text)}


def third_language(text: str, names: tuple[str, str]) -> str:
    """The code of a line's language if it is clearly neither side's language; else ""."""
    name, probability = identifier().classify(text)
    if name in (*names, "zxx") or probability < LIKELY:  # zxx: no language, such as numbers
        return ""
    of_each = probabilities(text)
    return name if all(of_each.get(own, 0.0) < RULED_OUT for own in names) else ""
