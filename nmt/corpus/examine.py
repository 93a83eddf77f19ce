"""Learn from a sample what is usual in a corpus, and examine all pairs in chunks, in several processes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nmt.corpus import alignment, characters, language, lengths, pairs
from nmt.corpus.alignment import Feature, Lexicon, Words
from nmt.corpus.language import Languages
from nmt.corpus.lengths import Lengths
from nmt.corpus.reading import CHUNK, Chunk, Survey, chunks, decode, is_utf8
from nmt.corpus.split import key_of
from nmt.processes import in_parallel
from nmt.text.corpus_files import digests_of

N_UNRELATED = 2_000  # lines of a chunk that are compared with unrelated lines
NONE = np.zeros(0, np.int64)
Hits = dict[str, NDArray[np.int64]]  # indices of lines by kind of fault
# A line with the fault on the left is not reported for the faults on the right, which follow from it.
EXPLAINS = {
    "blank": ("copy", "numbers", "placeholders", "repetition", "truncated", "ratio"),
    "encoding": ("replaced",),
    "copy": ("untranslated", "language"),
    "language": ("exchanged", "untranslated"),  # knowing many languages is better evidence than n-grams
    "exchanged": ("ratio",),
}


@dataclass(frozen=True, eq=False)
class Usual:
    """What is usual in a corpus, learned from a sample."""

    languages: Languages
    without_stop: tuple[float, float]  # share of the lines of a side that do not end with punctuation, above 0
    lengths: Lengths
    lexicon: Lexicon

    def compare(self, words: Sequence[Words], sizes: Sequence[NDArray[np.int64]]) -> Feature:
        """Agreement and length ratio of pairs, given the words and the lengths of both sides."""
        return np.stack([alignment.agreement(words[0], words[1], self.lexicon), self.lengths.z(sizes[0], sizes[1])])


@dataclass(frozen=True, eq=False)
class Examined:
    """The results for a chunk of pairs, or for all chunks of a corpus."""

    hits: Hits  # line numbers
    digests: NDArray[np.uint64]  # (5, n), of source, target and pair, and of what `split.key_of` makes of both sides
    paired: Feature  # agreement and length ratio of the pairs
    unrelated: Feature  # the same for some source lines with target lines far away


def learn(source: list[str], target: list[str], declared: tuple[str, str] = ("", "")) -> Usual:
    return Usual(
        languages=language.learn(source, target, declared),
        without_stop=(share_without_stop(source), share_without_stop(target)),
        lengths=lengths.learn(*(np.array([len(text) for text in side], np.int64) for side in (source, target))),
        lexicon=alignment.learn(alignment.words_of(source), alignment.words_of(target)),
    )


def share_without_stop(texts: list[str]) -> float:
    return (sum(not pairs.final(text) for text in texts) + 1) / (len(texts) + 1)


def examine(usual: Usual, chunk: Chunk) -> Examined:
    """Look for all faults that can be found in a chunk without the rest of its corpus."""
    raw = chunk.source, chunk.target
    source, target = ([*map(decode, side)] for side in raw)
    sides = (source, target)
    words = [alignment.words_of(side) for side in sides]
    sizes = [np.array([*map(len, side)]) for side in sides]
    paired = usual.compare(words, sizes)
    z = paired[1]
    hits = hits_of_text(source, target, z, usual) | hits_of_language(sides, usual)
    hits["encoding"] = indices_of_true(not (is_utf8(s) and is_utf8(t)) for s, t in zip(*raw, strict=True))
    is_long = np.maximum(*sizes) >= pairs.MIN_LONGER
    hits["ratio"] = np.flatnonzero(is_long & (np.abs(z) > pairs.MAX_Z))
    for name, others_of in EXPLAINS.items():
        for other in others_of:
            hits[other] = np.setdiff1d(hits[other], hits[name], assume_unique=True)
    some = np.linspace(0, len(source) - 1, min(N_UNRELATED, len(source))).astype(int)
    far = (some + int(alignment.FAR * len(source))) % len(source)  # for each of these lines, an unrelated line
    encoded = [digests_of(text.encode("utf-8", "replace") for text in side) for side in sides]
    pair = encoded[0] * np.uint64(0x9E3779B97F4A7C15) + encoded[1]
    keys = [digests_of(map(key_of, side)) for side in sides]
    return Examined(
        hits={name: chunk.first + found for name, found in hits.items() if len(found)},
        digests=np.stack([*encoded, pair, *keys]),
        paired=paired,
        unrelated=usual.compare((words[0][some], words[1][far]), (sizes[0][some], sizes[1][far])),
    )


def indices_of_true(found: Iterable[object]) -> NDArray[np.int64]:
    return np.array([i for i, hit in enumerate(found) if hit], np.int64)


def hits_of_text(source: list[str], target: list[str], z: NDArray[np.float32], usual: Usual) -> Hits:
    """Faults that show in the text of a pair by itself."""
    both = list(zip(source, target, strict=True))
    hits = {name: indices_of_true(test(s) or test(t) for s, t in both) for name, test in characters.TESTS.items()}
    hits |= {name: indices_of_true(test(s, t) for s, t in both) for name, test in pairs.TESTS.items()}
    deviations = zip(both, z.tolist(), strict=True)
    hits["truncated"] = indices_of_true(
        pairs.cut_off(s, t, deviation, usual.without_stop) for (s, t), deviation in deviations
    )
    return hits


def hits_of_language(sides: tuple[list[str], list[str]], usual: Usual) -> Hits:
    languages = usual.languages
    model = language.identifier_of(languages)
    wrong, third = [], []
    for side, texts in enumerate(sides):
        in_other, is_rare = language.compared(texts, side, languages)
        wrong.append(in_other)
        foreign = (
            rare and language.third_language(text, languages.accepted, languages.scripts, model)
            for text, rare in zip(texts, is_rare, strict=True)
        )
        third.append(indices_of_true(foreign))
    exchanged = np.flatnonzero(np.minimum(*wrong) + np.maximum(*wrong) >= 3)
    untranslated = np.flatnonzero((np.maximum(*wrong) == 2) & (np.minimum(*wrong) == 0))
    # Equal texts are either a copy, or too short or too like a name to be judged.
    is_different = [sides[0][i].casefold() != sides[1][i].casefold() for i in untranslated]
    return {
        "exchanged": exchanged,
        "untranslated": untranslated[np.array(is_different, bool)],
        "language": np.union1d(*third),
    }


@dataclass(frozen=True, eq=False)
class Gathered(Examined):
    """The results for a corpus."""

    survey: Survey

    def lines_of(self, *kinds: str) -> NDArray[np.int64]:
        """The numbers of the lines with any of these kinds of fault."""
        return np.unique(np.concatenate([NONE, *(self.hits[kind] for kind in kinds if kind in self.hits)]))


def gather(survey: Survey, usual: Usual, quiet: bool) -> Gathered:
    """Examine all pairs of a corpus."""
    bar: dict[str, Any] = {"unit": " pairs", "unit_scale": CHUNK, "disable": quiet or None, "leave": False}
    read = tqdm(chunks(survey.files), survey.files.name, survey.n_pairs / CHUNK, **bar)
    parts = list(in_parallel(partial(examine, usual), read))
    kinds = dict.fromkeys(kind for part in parts for kind in part.hits)
    return Gathered(
        hits={kind: np.concatenate([part.hits[kind] for part in parts if kind in part.hits]) for kind in kinds},
        digests=np.concatenate([part.digests for part in parts], 1),
        paired=np.concatenate([part.paired for part in parts], 1),
        unrelated=np.concatenate([part.unrelated for part in parts], 1),
        survey=survey,
    )
