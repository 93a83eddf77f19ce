"""Learn from a sample what is usual in a corpus, and examine a chunk of pairs for faults. Runs in several processes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.corpus import alignment, characters, language, lengths, pairs
from nmt.corpus.alignment import BATCH, Feature, Lexicon
from nmt.corpus.leakage import Index, Keys, matches, near_keys
from nmt.corpus.lengths import Lengths
from nmt.corpus.pairs import Habits
from nmt.corpus.reading import Chunk, decode
from nmt.text.corpus import digests_of
from nmt.text.lines import BOM

SIDES = ("source", "target")
MIN_HAN = 20  # lines of the sample in one variant of Chinese; with fewer, the usual variant is unknown
# A line with the fault on the left is not reported for the faults on the right, which follow from it.
EXPLAINS = {
    "blank": ("copy", "numbers", "urls", "placeholders", "brackets", "repetition", "punctuation", "truncated", "ratio"),
    "encoding": ("replaced",),
    "copy": ("untranslated", "language", "script"),
    "script": ("language",),
    "language": ("exchanged", "untranslated"),  # knowing many languages is better evidence than n-grams
    "exchanged": ("script", "ratio"),
    "untranslated": ("script",),
    "ratio": ("punctuation",),
    "truncated": ("punctuation",),
}


@dataclass(frozen=True, eq=False)
class Usual:
    """What is usual in a corpus, learned from a sample."""

    habits: Habits
    lengths: Lengths
    lexicon: Lexicon


@dataclass(frozen=True, eq=False)
class Examined:
    """The results for a chunk of pairs."""

    hits: dict[str, NDArray[np.int64]]  # line numbers by kind
    digests: tuple[Keys, Keys, Keys]  # of source, target and pair
    true: Feature  # agreement and length ratio of the pairs
    unrelated: Feature  # the same for some source lines with target lines far away
    near: dict[str, NDArray[np.int64]]  # by other corpus: its line, and the line here that is almost the same: (n, 2)
    keys: tuple[Index, Index] | None  # of both sides, for comparison with another corpus


def learn(source: list[str], target: list[str]) -> Usual:
    """Learn from a sample of pairs what is usual."""
    sides = (source, target)
    habits = Habits(
        languages=language.learn(source, target),
        without_stop=(share_without_stop(source), share_without_stop(target)),
        han_variant=(han_variant(source), han_variant(target)),
    )
    lexicon = alignment.learn(*map(alignment.words_of, sides))
    return Usual(habits, lengths.learn(source, target), lexicon)


def share_without_stop(texts: list[str]) -> float:
    return (sum(not pairs.final(text) for text in texts) + 1) / (len(texts) + 1)


def han_variant(texts: list[str]) -> str:
    """The variant of Chinese that more lines are in; "" if it is not Chinese."""
    n_simplified = sum(characters.IS_SIMPLIFIED.search(text) is not None for text in texts)
    n_traditional = sum(characters.IS_TRADITIONAL.search(text) is not None for text in texts)
    if max(n_simplified, n_traditional) < MIN_HAN:
        return ""
    return "simplified" if n_simplified >= n_traditional else "traditional"


def examine(usual: Usual, others: dict[str, tuple[Index, Index]], keep_keys: bool, chunk: Chunk) -> Examined:
    """Look for all faults that can be found in a chunk without the rest of its corpus.

    Args:
        others: keys of both sides of the corpora that this one must not overlap with.
        keep_keys: whether to return the keys of this chunk.
    """
    raw = chunk.raw_sides()
    source, target = ([decode(line, chunk.first + i) for i, line in enumerate(side)] for side in raw)
    sides = (source, target)
    hashed = [alignment.hashed(side) for side in sides]
    words = [alignment.first_words(*side) for side in hashed]
    sizes = [np.array([*map(len, side)]) for side in sides]
    z = usual.lengths.z(sizes[0], sizes[1])
    hits = hits_of_bytes(raw, chunk.first) | hits_of_text(source, target, z, usual.habits)
    hits["ratio"] = np.flatnonzero(
        (np.abs(z) > pairs.FAR_OFF) & (usual.lengths.factor(sizes[0], sizes[1]) > pairs.MIN_FACTOR)
    )
    hits |= hits_of_language(source, target, usual.habits)
    for name, others_of in EXPLAINS.items():
        for other in others_of:
            hits[other] = np.setdiff1d(hits[other], hits[name], assume_unique=True)
    far = alignment.apart(min(BATCH, len(source)))
    keys = [near_keys(*side, chunk.first) for side in hashed] if others or keep_keys else []
    encoded = [digests_of(text.encode("utf-8", "replace") for text in side) for side in sides]
    return Examined(
        hits={name: chunk.first + found for name, found in hits.items() if len(found)},
        digests=(encoded[0], encoded[1], encoded[0] * np.uint64(0x9E3779B97F4A7C15) + encoded[1]),
        true=(alignment.agreement(words[0], words[1], usual.lexicon), z),
        unrelated=(
            alignment.agreement(words[0][: len(far)], words[1][far], usual.lexicon),
            usual.lengths.z(sizes[0][: len(far)], sizes[1][far]),
        ),
        near={name: np.concatenate([*map(matches, other, keys)]) for name, other in others.items()},
        keys=(keys[0], keys[1]) if keep_keys else None,
    )


def places(found: Iterable[object]) -> NDArray[np.int64]:
    """The indices of the true items."""
    return np.array([i for i, hit in enumerate(found) if hit], np.int64)


def hits_of_bytes(raw: tuple[list[bytes], list[bytes]], first: int) -> dict[str, NDArray[np.int64]]:
    pairs_of_lines = list(zip(*raw, strict=True))
    has_bom = first == 1 and any(side[0].startswith(BOM) for side in raw)
    return {
        "encoding": places(is_bad(source) or is_bad(target) for source, target in pairs_of_lines),
        "crlf": places(source.endswith(b"\r") or target.endswith(b"\r") for source, target in pairs_of_lines),
        "bom": np.zeros(int(has_bom), np.int64),
    }


def is_bad(raw: bytes) -> bool:
    """Whether a line is not UTF-8."""
    if raw.isascii():
        return False
    try:
        raw.decode()
    except UnicodeDecodeError:
        return True
    return False


def hits_of_text(
    source: list[str], target: list[str], z: NDArray[np.float32], habits: Habits
) -> dict[str, NDArray[np.int64]]:
    """Faults that show in the text of a pair by itself."""
    both = list(zip(source, target, strict=True))
    hits = {name: places(test(s) or test(t) for s, t in both) for name, test in characters.TESTS.items()}
    hits |= {name: places(test(s, t) for s, t in both) for name, test in pairs.TESTS.items()}
    hits["punctuation"] = places(pairs.ends_differ(s, t, habits) for s, t in both)
    short = np.flatnonzero(np.abs(z) > pairs.SHORT_PARTNER)
    hits["truncated"] = short[[pairs.cut_off(*both[i], float(z[i]), habits) for i in short]] if len(short) else short
    return hits


def hits_of_language(source: list[str], target: list[str], habits: Habits) -> dict[str, NDArray[np.int64]]:
    languages = habits.languages
    sides = (source, target)
    compared = [language.compared(texts, side, languages) for side, texts in enumerate(sides)]
    wrong, rare = [found for found, _ in compared], [is_rare for _, is_rare in compared]
    odd_script = [
        places(language.has_other_script(text, languages.scripts[side]) for text in texts)
        for side, texts in enumerate(sides)
    ]
    third = [
        places(is_rare[i] and language.third_language(text, languages.names) for i, text in enumerate(texts))
        for texts, is_rare in zip(sides, rare, strict=True)
    ]
    unlike = {"simplified": characters.IS_TRADITIONAL, "traditional": characters.IS_SIMPLIFIED}
    variants = [
        places(map(unlike[variant].search, texts)) if variant else np.zeros(0, np.int64)
        for texts, variant in zip(sides, habits.han_variant, strict=True)
    ]
    return {
        "exchanged": np.flatnonzero(np.minimum(*wrong) + np.maximum(*wrong) >= 3),
        "untranslated": np.flatnonzero((np.maximum(*wrong) == 2) & (np.minimum(*wrong) == 0)),
        "script": np.union1d(*odd_script),
        "language": np.union1d(*third),
        "han-variants": np.union1d(*variants),
    }
