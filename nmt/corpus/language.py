"""Tell which language a text is in, offline.

Uses two methods, because each is strong where the other is weak. Character n-grams learned from the two sides of the
corpus (Cavnar & Trenkle 1994, "N-gram-based text categorization", as a likelihood ratio) tell any two languages apart,
even in short lines, but cannot identify a third language. py3langid identifies 133 languages, but scatters lines of any
other over them. A line counts as in a third language only if, in addition, its n-grams are rare on its side.

If py3langid does not know the language of a side, it gets a class for that side, learned from the corpus: a naive Bayes
classifier needs only the frequencies of its features. A line is then compared with the side as it is, too.
"""

import functools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.text.placeholders import KINDS

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

BITS = 18  # of the hash of an n-gram
SMOOTHING = 0.5  # added to each count of an n-gram
MAX_LLR = 5.0  # nats per n-gram: one unseen n-gram proves nothing
MIN_DISTANCE = 0.5  # nats per n-gram between typical lines of both sides, below which they cannot be told apart
MIN_TOTAL = 25.0  # nats, below which a text is too short to tell its language
CLEAR, LEANING = 0.15, 0.03  # how far past the midpoint of the medians of the sides, as a share of their distance
RARE_SHARE = 0.25  # the n-grams of this share of a side's lines count as rare
N_IDENTIFIED = 5_000  # lines that are enough to tell the language of a side
N_CHUNKS = 200  # of these lines' text, classified one by one
CHUNK_LETTERS = 150  # in a chunk
MIN_CHUNKS = 3  # with fewer, all text is classified at once, which is no proof of a wrong language
MAJORITY = 0.5  # share of the chunks from which their language is that of the side
SURE = 0.5  # probability from which a language is that of all text
KNOWN, MIN_KNOWN = 0.95, 10  # share of the chunks, and their number, from which py3langid knows the language of a side
LIKELY, RULED_OUT = 0.25, 0.05  # probability of a third language that a line is in, and of the languages of the sides
MIN_LETTERS = 15  # in a line in a third language, if it is in the script of a side: "Hindi" looks like Tagalog
MIN_SCRIPT = 0.01  # share of the letters of both sides, below which a script is foreign
VARIETIES = {"ary", "arz", "hbo", "pcm", "wuu", "yue"}  # of Arabic, Hebrew, English and Chinese: short lines look alike
NO_LANGUAGE = "zxx"  # py3langid's label for numbers, codes and the like
SIDE_LABELS = ("source side", "target side")  # labels of the classes that are learned
NEWLINE = ord("\n")
DIGIT = re.compile(r"\d")  # of any script
# What is in no language: placeholders, and numbers with the letters of codes, units and prices.
NOT_WORDS = re.compile("|".join([*KINDS[:-1], r"(?<![A-Za-z])[A-Za-z]*\d[A-Za-z\d.,:/-]*(?: [A-Za-z]{1,2}\b)?"]))


class NGrams(NamedTuple):
    """The n-grams (1 to 3 characters) of some lines, as hashes of `BITS` bits."""

    hashes: NDArray[np.uint32]  # (3, N) of the n-grams that begin at each position
    starts: NDArray[np.int64]  # (n,) first position of each line

    @property
    def n_positions(self) -> NDArray[np.int64]:
        """How many positions each line has: (n,)."""
        return np.diff(np.append(self.starts, self.hashes.shape[1]))

    def means(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the mean value of the n-grams of each line, given the values of all hashes: (n,)."""
        sums = np.add.reduceat(values[self.hashes].sum(0), self.starts)
        return (sums / (3 * self.n_positions)).astype(np.float32)

    def quantile(self, values: NDArray[np.float32], share: float) -> float:
        """Return the value below which the means of a share of the lines are."""
        return float(np.quantile(self.means(values), share))

    def log_probs(self) -> NDArray[np.float32]:
        """Return the log-probability of each hash: (2^BITS,)."""
        counts = np.bincount(self.hashes.reshape(-1), minlength=2**BITS) + SMOOTHING
        return np.asarray(np.log(counts / counts.sum()), np.float32)


@dataclass(frozen=True, eq=False)
class Identified:
    """What py3langid makes of a side: the votes of chunks of its text, since single lines are too short."""

    name: str  # code of the language that most chunks are in, such as de; "" if there is none
    agreement: float = 0.0  # share of the chunks that are in this language; 0 if there are too few
    is_known: bool = False  # whether nearly all of many chunks are, and no other language is declared
    # By code: share of the chunks surely in another language.
    ruled_out: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Languages:
    """What was learned about the languages of the two sides."""

    identified: tuple[Identified, Identified]
    accepted: frozenset[str]  # labels that a line may have: of identified and declared languages, and of the sides
    scripts: frozenset[str]  # in which the two sides are written, see `scripts_of`
    side_columns: dict[str, NDArray[np.float16]]  # by label: log-probabilities of py3langid's features on unknown sides
    log_probs: tuple[NDArray[np.float32], NDArray[np.float32]]  # (2^BITS,) of each n-gram on each side
    log_ratios: NDArray[np.float32]  # (2^BITS,) log p(n-gram | source) - log p(n-gram | target), clipped to ±`MAX_LLR`
    typical: tuple[float, float]  # median log-likelihood ratio per n-gram (source against target) of each side's lines
    rare: tuple[float, float]  # log-probability per n-gram below which RARE_SHARE of each side's lines are

    @property
    def names(self) -> tuple[str, str]:
        """Codes such as de; "" if unknown."""
        return self.identified[0].name, self.identified[1].name


def learn_languages(source: Sequence[str], target: Sequence[str], declared: tuple[str, str] = ("", "")) -> Languages:
    """Learn the languages of the two sides from a sample of their lines. `declared` are py3langid's labels or ""."""
    # 1. What py3langid makes of both sides.
    samples = every_nth(source, N_IDENTIFIED), every_nth(target, N_IDENTIFIED)
    identified = identify_side(samples[0], declared[0]), identify_side(samples[1], declared[1])
    side_columns = {}
    for label, lines, result in zip(SIDE_LABELS, samples, identified, strict=True):
        if not result.is_known:
            side_columns[label] = side_column(lines)
    accepted = {*SIDE_LABELS, *declared, identified[0].name, identified[1].name} - {""}
    # 2. What the n-grams tell.
    source_grams, target_grams = ngrams(source), ngrams(target)
    log_probs = source_grams.log_probs(), target_grams.log_probs()
    log_ratios = np.clip(log_probs[0] - log_probs[1], -MAX_LLR, MAX_LLR)
    typical = source_grams.quantile(log_ratios, 0.5), target_grams.quantile(log_ratios, 0.5)
    rare = source_grams.quantile(log_probs[0], RARE_SHARE), target_grams.quantile(log_probs[1], RARE_SHARE)
    text = "".join([*samples[0], *samples[1]])
    return Languages(
        identified,
        frozenset(accepted),
        scripts_of(text, MIN_SCRIPT),
        side_columns,
        log_probs,
        log_ratios,
        typical,
        rare,
    )


def every_nth(items: Sequence[str], n_most: int) -> Sequence[str]:
    """Return items at equal distances, at most `n_most`."""
    return items[:: math.ceil(len(items) / n_most)]


def ngrams(texts: Sequence[str]) -> NGrams:
    """Return the n-grams of lower-cased texts, in which all digits count as the same.

    The newlines before and after a line are part of n-grams.
    """
    joined = "\n".join(["", *texts, "", "", ""])
    text = DIGIT.sub("0", joined.lower())
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    newlines = np.flatnonzero(codes == NEWLINE)
    size = newlines[len(texts)]  # the end of the last line
    # The characters of the n-grams that begin at each position, but not those of the next line.
    first, second = codes[:size], codes[1 : size + 1]
    third = np.where(second == NEWLINE, NEWLINE, codes[2 : size + 2])
    # Hash one, two and three of them.
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
    """Return whether each line is in the other side's language, and whether its n-grams are rare on its own side.

    Returns (n,): 2 for clearly, 1 for perhaps, 0 for no; and (n,).
    """
    grams = ngrams(texts)
    is_rare = grams.means(languages.log_probs[side]) < languages.rare[side]
    of_source, of_target = languages.typical
    distance = of_source - of_target
    if distance <= MIN_DISTANCE:
        return np.zeros(len(texts), np.int8), is_rare
    # How far each line is past the middle between the sides, towards the other side.
    ratios = grams.means(languages.log_ratios) - (of_source + of_target) / 2
    towards_other = ratios if side == 1 else -ratios
    total = towards_other * 3 * grams.n_positions
    is_clear = (towards_other > CLEAR * distance) & (total > MIN_TOTAL)
    is_leaning = towards_other > LEANING * distance
    return is_clear.astype(np.int8) + is_leaning, is_rare


@functools.cache
def identifier() -> "LanguageIdentifier":
    """Return py3langid's model without `VARIETIES`: 4.6 MB on disk, 120 MB in memory. Its scores are probabilities."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    model.set_languages({*model.labels} - VARIETIES)
    model.nb_ptc = np.ascontiguousarray(model.nb_ptc)  # a third faster than the columns that are left
    return model


def identify_side(texts: Sequence[str], declared: str = "") -> Identified:
    """Identify the language of a side from a sample of its lines, of which only the words count.

    `declared` is the label of the language that the side is said to be in, "" if there is none. If it is another one,
    py3langid does not know it, or the side is in the wrong language.
    """
    texts = [words_only(text) for text in texts]
    chunks = chunks_of(texts)
    if len(chunks) < MIN_CHUNKS:
        return Identified(identify(texts))
    # Each chunk votes for its likeliest language, and against all that are unlikely.
    votes, against = Counter[str](), Counter[str]()
    judged = every_nth(chunks, N_CHUNKS)
    for chunk in judged:
        result = probabilities(chunk)
        votes[max(result, key=result.__getitem__)] += 1
        against.update(name for name, probability in result.items() if probability < RULED_OUT)
    # The language of most chunks is that of the side.
    n = len(judged)
    [(name, n_votes)] = votes.most_common(1)
    agreement = n_votes / n
    if agreement <= MAJORITY or name == NO_LANGUAGE:
        name = ""
    is_as_declared = name != "" and declared in ("", name)
    is_known = is_as_declared and agreement >= KNOWN and n >= MIN_KNOWN
    ruled_out = {label: n_against / n for label, n_against in against.items()}
    return Identified(name, agreement, is_known, ruled_out)


def identify(texts: Sequence[str]) -> str:
    """Return the language of a text of some lines, as py3langid names it; "" if it is not sure."""
    name, probability = identifier().classify("\n".join(texts))
    return name if probability > SURE and name != NO_LANGUAGE else ""


def words_only(text: str) -> str:
    """Return a text without numbers, codes and placeholders, which tell nothing about its language."""
    return NOT_WORDS.sub(" ", text)


def chunks_of(texts: Sequence[str]) -> list[str]:
    """Join consecutive texts into chunks of at least `CHUNK_LETTERS` letters each; the rest is left out."""
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
    """Return the number of letters; a Chinese character, which tells more, counts as three."""
    return sum(3 if character > "\u2e7f" else 1 for character in text if character.isalpha())


def scripts_of(text: str, min_share: float = 0.0) -> frozenset[str]:
    """Return the scripts that have a share of the letters of a text, by the first word of the letters' Unicode names.

    LATIN, CYRILLIC, CJK, THAI and so on.
    """
    scripts = Counter[str]()
    for character, n in Counter(text).items():
        if character.isalpha():
            script, _, _ = unicodedata.name(character, "").partition(" ")
            scripts[script] += n
    least = min_share * scripts.total()
    return frozenset(script for script, n in scripts.items() if n >= least)


def side_column(texts: Iterable[str]) -> NDArray[np.float16]:
    """Return the log-probability of each of py3langid's features on a side, with add-one smoothing: (features,)."""
    from py3langid.langid import visit_counts

    model = identifier()
    rows = [row << 8 for row in model.tk_row]  # the automaton's rows of 256 transitions, one for each state
    counts = np.ones(len(model.nb_ptc))
    for text in texts:
        content = words_only(text).encode("utf-8", "replace")
        visits = visit_counts(model.tk_nextmove, rows, model.tk_output, content) or {}
        for feature, n in visits.items():
            counts[feature] += n
    return np.asarray(np.log(counts / counts.sum()), np.float16)


@functools.lru_cache(maxsize=1)
def identifier_of(languages: Languages) -> "LanguageIdentifier":
    """Return py3langid's model, with a class for each side whose language it does not know."""
    from py3langid.langid import LanguageIdentifier

    model = identifier()
    columns = languages.side_columns
    if not columns:
        return model
    # The classes of the sides are as probable, without knowing the text, as the most frequent language.
    log_probs = np.column_stack([model.nb_ptc, *columns.values()])
    priors = np.append(model.nb_pc, [model.nb_pc.max()] * len(columns))
    classes = [*model.nb_classes, *columns]
    automaton = model.tk_nextmove, model.tk_output
    return LanguageIdentifier(log_probs, priors, classes, *automaton, norm_probs=True, tk_row=model.tk_row)


def probabilities(text: str) -> dict[str, float]:
    """Return the probability that a text is in each language, by py3langid's language code."""
    return {name: float(probability) for name, probability in identifier().rank(text)}


def third_language(text: str, accepted: Collection[str], scripts: Collection[str], model: "LanguageIdentifier") -> str:
    """Return the code of a line's language if it is clearly neither side's language; else "".

    Args:
        accepted: the languages of the two sides.
        scripts: in which they are written; a line in one of these needs `MIN_LETTERS`.
        model: of `identifier_of`.
    """
    if model.classify(text)[0] in accepted:
        return ""  # most lines end here; what follows takes longer
    text = words_only(text)
    name, probability = model.classify(text)
    if name == NO_LANGUAGE or name in accepted or probability < LIKELY:
        return ""
    if n_letters(text) < MIN_LETTERS and scripts_of(text) <= set(scripts):
        return ""
    probability_of = dict(model.rank(text))
    is_ruled_out = all(probability_of.get(label, 0.0) < RULED_OUT for label in accepted)
    return name if is_ruled_out else ""
