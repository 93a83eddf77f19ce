"""Identification of the language of a text, offline.

Two methods are combined, because each is strong where the other is weak. The first method compares the frequencies of
character n-grams on the two sides of the corpus (Cavnar & Trenkle 1994, "N-gram-based text categorization"). It tells
any two languages apart, even in short lines, but cannot identify a third language. The second method is py3langid. It
identifies 133 languages, but takes an unknown language for known ones. A line is in a third language if py3langid says
so and the n-grams of the line are rare on its side.

A third language is looked for only if py3langid knows the languages of both sides.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.languages import VARIETIES, base_language, language_code
from nmt.text.placeholders import KINDS

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

SAME_LANGUAGE = 12  # maximum distance, by CLDR, of a language from the one whose label it gets
BITS = 18  # bits of the hash of an n-gram
SMOOTHING = 0.5  # number that is added to the count of each n-gram
MAX_LLR = 5.0  # nats; limit of an n-gram's log-likelihood ratio, because one unseen n-gram proves nothing
MIN_DISTANCE = 0.5  # nats per n-gram; if the sides' typical lines differ by less, no line is judged
MIN_TOTAL = 25.0  # nats; minimum evidence that a line is clearly in the language of the other side
# A line's score is compared with the midpoint between the median scores of the two sides. If it is past the midpoint by
# `CLEAR` times the distance of the medians, the line is clearly in the other side's language. From `LEANING` times on,
# it perhaps is.
CLEAR, LEANING = 0.15, 0.03
RARE_SHARE = 0.25  # this share of a side's lines, the least probable ones, has rare n-grams
N_IDENTIFIED = 5_000  # maximum number of lines of a side from which its language is identified
N_CHUNKS = 200  # maximum number of chunks of a side that are classified
CHUNK_LETTERS = 150  # minimum number of letters in a chunk
MIN_CHUNKS = 10  # with fewer chunks, the language of a side stays unknown
MAJORITY = 0.5  # if more than this share of the chunks is in one language, the side is in this language
# py3langid knows the language of a side if it assigns at least this share of the chunks to one language.
KNOWN = 0.8
# A third language has at least the probability `LIKELY`. Each language of the two sides has less than `RULED_OUT`.
LIKELY, RULED_OUT = 0.25, 0.05
# No third language is looked for in shorter lines, where py3langid is often wrong. It takes "Hindi" for Tagalog.
MIN_LETTERS = 15
NO_LANGUAGE = "zxx"  # py3langid's label for numbers, codes and the like
NEWLINE = ord("\n")
DIGIT = re.compile(r"\d")  # a digit of any script
# Text that is in no language: placeholders, numbers, codes, units and prices.
NOT_WORDS = re.compile("|".join([*KINDS[:-1], r"(?<![A-Za-z])[A-Za-z]*\d[A-Za-z\d.,:/-]*(?: [A-Za-z]{1,2}\b)?"]))


class NGrams(NamedTuple):
    """The n-grams (1 to 3 characters) of some lines, as hashes of `BITS` bits."""

    hashes: NDArray[np.uint32]  # shape (3, N): hashes of the three n-grams that begin at each position
    starts: NDArray[np.int64]  # shape (n,): first position of each line

    @property
    def n_positions(self) -> NDArray[np.int64]:
        """Return the number of positions of each line, of shape (n,)."""
        return np.diff(np.append(self.starts, self.hashes.shape[1]))

    def means(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the mean value of the n-grams of each line, of shape (n,). `values` are indexed by hash."""
        sums_at_positions = values[self.hashes].sum(0)
        sums = np.add.reduceat(sums_at_positions, self.starts)
        return (sums / (3 * self.n_positions)).astype(np.float32)

    def quantile(self, values: NDArray[np.float32], share: float) -> float:
        """Return the quantile `share` of the means of the lines."""
        return float(np.quantile(self.means(values), share))

    def log_probs(self) -> NDArray[np.float32]:
        """Return the log-probability of each hash, of shape (2^BITS,)."""
        counts = np.bincount(self.hashes.reshape(-1), minlength=2**BITS) + SMOOTHING
        probabilities = counts / counts.sum()
        return np.asarray(np.log(probabilities), np.float32)


class Identified(NamedTuple):
    """py3langid's result for a side.

    Single lines are too short for py3langid. So the lines are joined into chunks, and each chunk votes for a language.
    """

    name: str  # code of the language of most chunks, such as de; "" if no language has enough votes
    agreement: float  # share of the chunks that vote for this language; 0 without a language


@dataclass(frozen=True, eq=False)
class Languages:
    """What was learned about the languages of the two sides."""

    identified: tuple[Identified, Identified]
    # py3langid's labels of the identified and of the declared languages. Empty if py3langid does not know all of them.
    accepted: frozenset[str]
    # For each side, an array of shape (2^BITS,): the log-probability of each n-gram.
    log_probs: tuple[NDArray[np.float32], NDArray[np.float32]]
    # Shape (2^BITS,): log p(n-gram | source) - log p(n-gram | target), clipped to ±`MAX_LLR`.
    log_ratios: NDArray[np.float32]
    # For each side: the median score of its lines. A score is the mean of `log_ratios` over the n-grams of a line.
    typical: tuple[float, float]
    # For each side: the log-probability per n-gram below which the n-grams of a line count as rare.
    rare: tuple[float, float]


def learn_languages(source: Sequence[str], target: Sequence[str], declared: tuple[str, str] = ("", "")) -> Languages:
    """Learn the languages of the two sides from a sample of lines.

    `declared` are py3langid's labels of the declared languages, or "" if unknown.
    """
    # 1. Identify the languages with py3langid.
    identified = identify_side(every_nth(source, N_IDENTIFIED)), identify_side(every_nth(target, N_IDENTIFIED))
    accepted = {identified[0].name, identified[1].name, *declared} - {""}
    are_known = accepted <= {*identifier().labels} and min(side.agreement for side in identified) >= KNOWN
    # 2. Learn the n-grams of both sides.
    source_grams, target_grams = ngrams(source), ngrams(target)
    log_probs = source_grams.log_probs(), target_grams.log_probs()
    differences = log_probs[0] - log_probs[1]
    log_ratios = np.clip(differences, -MAX_LLR, MAX_LLR)
    typical = source_grams.quantile(log_ratios, 0.5), target_grams.quantile(log_ratios, 0.5)
    rare = source_grams.quantile(log_probs[0], RARE_SHARE), target_grams.quantile(log_probs[1], RARE_SHARE)
    return Languages(identified, frozenset(accepted if are_known else ()), log_probs, log_ratios, typical, rare)


def every_nth(items: Sequence[str], n_most: int) -> Sequence[str]:
    """Return at most `n_most` items, evenly spaced."""
    return items[:: math.ceil(len(items) / n_most)]


def ngrams(texts: Sequence[str]) -> NGrams:
    """Return the n-grams of the texts, in lower case and with 0 for each digit.

    The newlines before and after a line count as characters of the line.
    """
    joined = "\n".join(["", *texts, "", "", ""])
    text = DIGIT.sub("0", joined.lower())
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    newlines = np.flatnonzero(codes == NEWLINE)
    size = newlines[len(texts)]  # position after the last line
    # Take the three characters from each position on. If the second one ends the line, the third one is a newline, too.
    first, second = codes[:size], codes[1 : size + 1]
    third = np.where(second == NEWLINE, NEWLINE, codes[2 : size + 2])
    # Hash the first character, the first two and all three.
    hashes = np.empty((3, size), np.uint32)
    mixed = np.zeros(size, np.uint32)
    for n, character in enumerate((first, second, third)):
        mixed = (mixed ^ character) * np.uint32(0x9E3779B1)
        mixed ^= mixed >> 15
        multiplier = np.uint32(0x85EBCA6B + 2 * n)
        hashes[n] = (mixed * multiplier) >> (32 - BITS)
    return NGrams(hashes, newlines[: len(texts)])


def compare_with_sides(
    texts: Sequence[str], side: int, languages: Languages
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Compare lines of a side with the n-grams of both sides.

    Returns:
        Two arrays of shape (n,). The first one tells whether a line is in the language of the other side: 2 is clearly,
        1 is perhaps, and 0 is no. The second one is True if the n-grams of the line are rare on its own side.
    """
    grams = ngrams(texts)
    means = grams.means(languages.log_probs[side])
    is_rare = means < languages.rare[side]
    of_source, of_target = languages.typical
    distance = of_source - of_target
    if distance <= MIN_DISTANCE:
        return np.zeros(len(texts), np.int8), is_rare
    # Compute how far each line is past the midpoint between the medians, in the direction of the other side.
    midpoint = (of_source + of_target) / 2
    ratios = grams.means(languages.log_ratios) - midpoint
    towards_other = ratios if side == 1 else -ratios
    total = towards_other * 3 * grams.n_positions
    is_clear = (towards_other > CLEAR * distance) & (total > MIN_TOTAL)
    is_leaning = towards_other > LEANING * distance
    return is_clear.astype(np.int8) + is_leaning, is_rare


@functools.cache
def identifier() -> "LanguageIdentifier":
    """Return py3langid's model without `VARIETIES`. It takes 120 MB in memory."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    model.set_languages({*model.labels} - VARIETIES)
    model.nb_ptc = np.ascontiguousarray(model.nb_ptc)  # a contiguous array makes the model a third faster
    return model


def label_of(code: str) -> str:
    """Return py3langid's label for a language code, for example `no` for `nb`. Return "" if the code is invalid.

    If py3langid does not know the language, return its code without region and script.
    """
    if not language_code(code):
        return ""
    if code in identifier().labels:
        return code
    import langcodes  # takes 40 ms, so only if it is needed

    label = langcodes.closest_supported_match(code, identifier().labels, max_distance=SAME_LANGUAGE)
    return label or base_language(code)


def identify_side(texts: Sequence[str]) -> Identified:
    """Identify the language of a side from a sample of its lines. Numbers, codes and placeholders do not count."""
    chunks = chunks_of([words_only(text) for text in texts])
    if len(chunks) < MIN_CHUNKS:
        return Identified("", 0.0)
    judged = every_nth(chunks, N_CHUNKS)
    votes = Counter(identifier().classify(chunk)[0] for chunk in judged)
    [(name, n_votes)] = votes.most_common(1)
    agreement = n_votes / len(judged)
    is_unclear = agreement <= MAJORITY or name == NO_LANGUAGE
    return Identified("", 0.0) if is_unclear else Identified(name, agreement)


def words_only(text: str) -> str:
    """Return a text without numbers, codes and placeholders. These tell nothing about the language."""
    return NOT_WORDS.sub(" ", text)


def chunks_of(texts: Sequence[str]) -> list[str]:
    """Join consecutive texts into chunks of at least `CHUNK_LETTERS` letters. A shorter last chunk is left out."""
    chunks = []
    lines = []
    size = 0
    for text in texts:
        lines.append(text)
        size += n_letters(text)
        if size >= CHUNK_LETTERS:
            chunks.append("\n".join(lines))
            lines = []
            size = 0
    return chunks


def n_letters(text: str) -> int:
    """Return the number of letters. A Chinese character tells more, so it counts as three."""
    return sum(3 if character > "\u2e7f" else 1 for character in text if character.isalpha())


def probabilities(text: str) -> dict[str, float]:
    """Return the probability of each language, by py3langid's code."""
    return {name: float(probability) for name, probability in identifier().rank(text)}


def third_language(text: str, accepted: Collection[str]) -> str:
    """Return the code of the third language that a line is in, or "" if there is none."""
    if identifier().classify(text)[0] in accepted:
        return ""  # most lines return here, before the slower tests
    text = words_only(text)
    if n_letters(text) < MIN_LETTERS:
        return ""
    probability_of = probabilities(text)
    name = max(probability_of, key=probability_of.__getitem__)
    if name == NO_LANGUAGE or probability_of[name] < LIKELY:
        return ""
    is_ruled_out = all(probability_of[label] < RULED_OUT for label in accepted)
    return name if is_ruled_out else ""
