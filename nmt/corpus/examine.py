"""Learn from a sample what is usual in a corpus, and examine all pairs in chunks, in several processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nmt.corpus import alignment, characters, language, pairs
from nmt.corpus.alignment import Feature, HashedLines, Lexicon, hash_lines
from nmt.corpus.language import Languages, learn_languages
from nmt.corpus.lengths import Lengths, learn_lengths
from nmt.corpus.reading import CHUNK, Chunk, Survey, chunks, decode, is_utf8
from nmt.corpus.split import key_of
from nmt.text.corpus import digests_of, in_parallel

N_UNRELATED = 2_000  # lines of a chunk that are compared with unrelated lines
NONE = np.zeros(0, np.int64)
Hits = dict[str, NDArray[np.int64]]  # indices of lines by kind of fault
SOURCE, TARGET, PAIR, SOURCE_KEY, TARGET_KEY = range(5)  # what is digested; the keys are those of `split.key_of`
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

    def features(self, source: HashedLines, target: HashedLines) -> Feature:
        return alignment.features(source, target, self.lexicon, self.lengths)


@dataclass(frozen=True, eq=False)
class Examined:
    """The results for a chunk of pairs, or for all chunks of a corpus."""

    hits: Hits  # line numbers
    digests: NDArray[np.uint64]  # (5, n), by `SOURCE` and so on
    paired: Feature  # agreement and length ratio of the pairs
    unrelated: Feature  # the same for some source lines with target lines far away


def learn_usual(source: list[str], target: list[str], declared: tuple[str, str] = ("", "")) -> Usual:
    """Learn from a sample of pairs. `declared` are py3langid's labels of the languages, or ""."""
    source_lines, target_lines = hash_lines(source), hash_lines(target)
    return Usual(
        languages=learn_languages(source, target, declared),
        without_stop=(share_without_stop(source), share_without_stop(target)),
        lengths=learn_lengths(source_lines.sizes, target_lines.sizes),
        lexicon=alignment.learn_lexicon(source_lines.words, target_lines.words),
    )


def share_without_stop(texts: list[str]) -> float:
    n_without = sum(not pairs.final(text) for text in texts)
    return (n_without + 1) / (len(texts) + 1)


def examine(usual: Usual, chunk: Chunk) -> Examined:
    """Look for all faults that can be found in a chunk without the rest of its corpus."""
    source = [decode(raw) for raw in chunk.source]
    target = [decode(raw) for raw in chunk.target]
    source_lines, target_lines = hash_lines(source), hash_lines(target)
    # 1. Compare each source line with its translation, and some of them with unrelated lines.
    paired = usual.features(source_lines, target_lines)
    n = len(source)
    some = np.linspace(0, n - 1, min(N_UNRELATED, n)).astype(int)
    far = (some + int(alignment.FAR * n)) % n
    unrelated = usual.features(source_lines[some], target_lines[far])
    # 2. Look for faults.
    z = paired[1]
    hits = hits_of_text(source, target, z, usual) | hits_of_language(source, target, usual.languages)
    is_bad = [not (is_utf8(left) and is_utf8(right)) for left, right in zip(chunk.source, chunk.target, strict=True)]
    hits["encoding"] = indices_of_true(is_bad)
    is_long = np.maximum(source_lines.sizes, target_lines.sizes) >= pairs.MIN_LONGER
    hits["ratio"] = np.flatnonzero(is_long & (np.abs(z) > pairs.MAX_Z))
    # 3. Leave out those that follow from others, and count lines from the beginning of the corpus.
    for kind, explained_kinds in EXPLAINS.items():
        for explained in explained_kinds:
            hits[explained] = np.setdiff1d(hits[explained], hits[kind], assume_unique=True)
    numbers = {kind: chunk.first + lines for kind, lines in hits.items() if len(lines)}
    return Examined(numbers, digests_of_pairs(source, target), paired, unrelated)


def digests_of_pairs(source: list[str], target: list[str]) -> NDArray[np.uint64]:
    digests = np.empty((5, len(source)), np.uint64)
    digests[SOURCE] = digests_of(text.encode("utf-8", "replace") for text in source)
    digests[TARGET] = digests_of(text.encode("utf-8", "replace") for text in target)
    digests[PAIR] = digests[SOURCE] * np.uint64(0x9E3779B97F4A7C15) + digests[TARGET]
    digests[SOURCE_KEY] = digests_of(key_of(text) for text in source)
    digests[TARGET_KEY] = digests_of(key_of(text) for text in target)
    return digests


def indices_of_true(results: Sequence[object]) -> NDArray[np.int64]:
    return np.array([i for i, result in enumerate(results) if result], np.int64)


def hits_of_text(source: list[str], target: list[str], z: NDArray[np.float32], usual: Usual) -> Hits:
    """Return the faults that show in the text of a pair by itself."""
    both = list(zip(source, target, strict=True))
    hits = {}
    for kind, is_faulty in characters.TESTS.items():
        hits[kind] = indices_of_true([is_faulty(left) or is_faulty(right) for left, right in both])
    for kind, differ in pairs.TESTS.items():
        hits[kind] = indices_of_true([differ(left, right) for left, right in both])
    is_cut = []
    for (left, right), deviation in zip(both, z.tolist(), strict=True):
        is_cut.append(pairs.cut_off(left, right, deviation, usual.without_stop))
    hits["truncated"] = indices_of_true(is_cut)
    return hits


def hits_of_language(source: list[str], target: list[str], languages: Languages) -> Hits:
    """Return the lines in the other side's language, and those in a third language."""
    model = language.identifier_of(languages)
    wrong = []  # by side, 2: clearly in the other side's language, 1: perhaps
    third = []
    for side, texts in enumerate((source, target)):
        in_other, is_rare = language.compare_with_sides(texts, side, languages)
        wrong.append(in_other)
        names = []
        for text, may_be_third in zip(texts, is_rare, strict=True):
            names.append(may_be_third and language.third_language(text, languages.accepted, languages.scripts, model))
        third.append(indices_of_true(names))
    more, less = np.maximum(*wrong), np.minimum(*wrong)
    untranslated = np.flatnonzero((more == 2) & (less == 0))
    # Equal texts are either a copy, or too short or too like a name to be judged.
    is_different = [source[line].casefold() != target[line].casefold() for line in untranslated]
    return {
        "exchanged": np.flatnonzero(more + less >= 3),
        "untranslated": untranslated[np.array(is_different, bool)],
        "language": np.union1d(*third),
    }


@dataclass(frozen=True, eq=False)
class Gathered(Examined):
    """The results for a corpus."""

    survey: Survey

    def lines_of(self, *kinds: str) -> NDArray[np.int64]:
        """Return the numbers of the lines with any of these kinds of fault."""
        lines = [self.hits.get(kind, NONE) for kind in kinds]
        return np.unique(np.concatenate(lines))


def gather(survey: Survey, usual: Usual, quiet: bool) -> Gathered:
    """Examine all pairs of a corpus."""
    read = tqdm(
        chunks(survey.files),
        survey.files.name,
        survey.n_pairs / CHUNK,
        unit=" pairs",
        unit_scale=CHUNK,
        disable=quiet or None,
        leave=False,
    )
    parts = list(in_parallel(partial(examine, usual), read))
    hits: dict[str, list[NDArray[np.int64]]] = {}
    for part in parts:
        for kind, lines in part.hits.items():
            hits.setdefault(kind, []).append(lines)
    return Gathered(
        hits={kind: np.concatenate(lines) for kind, lines in hits.items()},
        digests=np.concatenate([part.digests for part in parts], 1),
        paired=np.concatenate([part.paired for part in parts], 1),
        unrelated=np.concatenate([part.unrelated for part in parts], 1),
        survey=survey,
    )
