"""The examination of all pairs of a corpus, in chunks and in several processes.

What is usual in the corpus is learned first, from a sample of its pairs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nmt.corpus import characters, language, pairs
from nmt.corpus.alignment import (
    Evidence,
    Feature,
    FeatureExtractor,
    hash_lines,
    learn_features,
    unrelated_pairs,
    weigh,
)
from nmt.corpus.language import Languages, learn_languages
from nmt.corpus.reading import CHUNK, Chunk, Survey, chunks, decode, is_utf8
from nmt.corpus.split import key_of
from nmt.processes import in_parallel
from nmt.text.corpus_files import GOLDEN, digests_of

NONE = np.zeros(0, np.int64)  # an empty array of lines
Hits = dict[str, NDArray[np.int64]]  # for each kind of fault, the faulty lines: their indices or their line numbers
Digests = NDArray[np.uint64]
# Rows of `Digests`. The last two are digests of `split.key_of`.
SOURCE, TARGET, PAIR, SOURCE_KEY, TARGET_KEY = range(5)
# The fault on the left explains the faults on the right. These are not reported for the same line.
EXPLAINS = {
    "blank": ("copy", "numbers", "placeholders", "repetition", "truncated", "ratio"),
    "encoding": ("replaced",),
    "copy": ("untranslated", "language"),
    # The evidence of "language" is py3langid, and that of the other two is n-grams, which are weaker.
    "language": ("exchanged", "untranslated"),
    "exchanged": ("ratio",),
}


@dataclass(frozen=True, eq=False)
class Usual:
    """What is usual in a corpus, learned from a sample."""

    languages: Languages
    without_stop: tuple[float, float]  # for each side, the share of lines without final punctuation; never 0
    features: FeatureExtractor
    evidence: Evidence  # of the sample itself


@dataclass(frozen=True, eq=False)
class Examined:
    """The results for a chunk of pairs, or for all chunks of a corpus."""

    hits: Hits  # numbers of the faulty lines, by kind of fault
    digests: Digests  # shape (5, n); the rows are `SOURCE`, `TARGET` and so on
    paired: Feature  # agreement and length ratio of the pairs
    unrelated: Feature  # the same for some source lines with target lines far away


def learn_usual(source: list[str], target: list[str], declared: tuple[str, str]) -> Usual:
    """Learn what is usual from a sample of pairs.

    `declared` are py3langid's labels of the declared languages, or "" if unknown.
    """
    languages = learn_languages(source, target, declared)
    without_stop = share_without_stop(source), share_without_stop(target)
    source_lines, target_lines = hash_lines(source), hash_lines(target)
    features = learn_features(source_lines, target_lines)
    unrelated = features(*unrelated_pairs(source_lines, target_lines))
    evidence = weigh(features(source_lines, target_lines), unrelated)
    return Usual(languages, without_stop, features, evidence)


def share_without_stop(texts: list[str]) -> float:
    n_without = sum(not pairs.final(text) for text in texts)
    return (n_without + 1) / (len(texts) + 1)


def examine(usual: Usual, chunk: Chunk) -> Examined:
    """Look for the faults of a chunk. Faults that need other chunks are found later."""
    source = [decode(raw) for raw in chunk.source]
    target = [decode(raw) for raw in chunk.target]
    source_lines, target_lines = hash_lines(source), hash_lines(target)
    # 1. Compare the lines of each pair. Also compare some source lines with unrelated target lines.
    paired = usual.features(source_lines, target_lines)
    unrelated = usual.features(*unrelated_pairs(source_lines, target_lines))
    # 2. Look for the lines with each kind of fault.
    z = paired[1]
    hits = hits_of_text(source, target, z, usual)
    hits |= hits_of_language(source, target, usual.languages)
    hits["encoding"] = indices_of_true(either(lambda raw: not is_utf8(raw), chunk.source, chunk.target))
    longer = np.maximum(source_lines.sizes, target_lines.sizes)
    is_ratio_unusual = (longer >= pairs.MIN_LONGER) & (np.abs(z) > pairs.MAX_Z)
    hits["ratio"] = np.flatnonzero(is_ratio_unusual)
    # 3. Leave out faults that follow from other faults. Then convert indices in the chunk to line numbers.
    for kind, explained_kinds in EXPLAINS.items():
        for explained in explained_kinds:
            hits[explained] = np.setdiff1d(hits[explained], hits[kind], assume_unique=True)
    numbers = {kind: chunk.first + lines for kind, lines in hits.items() if len(lines)}
    return Examined(numbers, digests_of_pairs(source, target), paired, unrelated)


def digests_of_pairs(source: list[str], target: list[str]) -> Digests:
    source_digests, target_digests = digests_of(source), digests_of(target)
    source_keys, target_keys = digests_of(map(key_of, source)), digests_of(map(key_of, target))
    pair_digests = source_digests * GOLDEN + target_digests
    return np.stack([source_digests, target_digests, pair_digests, source_keys, target_keys])


def either(is_faulty: Callable[[Any], object], source: Sequence[Any], target: Sequence[Any]) -> list[object]:
    """Return, for each pair, whether the source or the target is faulty."""
    return [is_faulty(left) or is_faulty(right) for left, right in zip(source, target, strict=True)]


def indices_of_true(results: Iterable[object]) -> NDArray[np.int64]:
    return np.array([i for i, result in enumerate(results) if result], np.int64)


def hits_of_text(source: list[str], target: list[str], z: NDArray[np.float32], usual: Usual) -> Hits:
    """Return the indices of the lines with each kind of fault in `characters` and `pairs`."""
    results: dict[str, Iterable[object]] = {}
    for kind, is_faulty in characters.TESTS.items():
        results[kind] = either(is_faulty, source, target)
    for kind, is_pair_faulty in pairs.TESTS.items():
        results[kind] = map(is_pair_faulty, source, target)
    is_cut_off = partial(pairs.cut_off, without_stop=usual.without_stop)
    results["truncated"] = map(is_cut_off, source, target, z.tolist())
    return {kind: indices_of_true(of_kind) for kind, of_kind in results.items()}


def hits_of_language(source: list[str], target: list[str], languages: Languages) -> Hits:
    """Return the indices of the lines with a text in the wrong language."""
    # For each side and line: 2 if the line is clearly in the language of the other side, 1 if perhaps, 0 if not.
    wrong = []
    third = []
    for side, texts in enumerate((source, target)):
        in_other, is_rare = language.compare_with_sides(texts, side, languages)
        wrong.append(in_other)
        rare_lines = np.flatnonzero(is_rare) if languages.accepted else NONE
        is_third = [language.third_language(texts[i], languages.accepted) for i in rare_lines]
        third.append(rare_lines[indices_of_true(is_third)])
    # Exchanged: one side is clearly in the other's language, and the other side at least perhaps. Untranslated: one
    # side clearly, and the other side not.
    more, less = np.maximum(*wrong), np.minimum(*wrong)
    # Equal texts do not count as untranslated. They have the fault "copy", or may be a name.
    is_different = [left.casefold() != right.casefold() for left, right in zip(source, target, strict=True)]
    is_untranslated = (more == 2) & (less == 0) & is_different
    exchanged = np.flatnonzero(more + less >= 3)
    untranslated = np.flatnonzero(is_untranslated)
    return {"exchanged": exchanged, "untranslated": untranslated, "language": np.union1d(*third)}


@dataclass(frozen=True, eq=False)
class Gathered(Examined):
    """The results for all pairs of a corpus."""

    survey: Survey

    def lines_of(self, *kinds: str) -> NDArray[np.int64]:
        """Return the numbers of the lines with any of these kinds of fault."""
        lines = [self.hits.get(kind, NONE) for kind in kinds]
        return np.unique(np.concatenate(lines))


def gather(survey: Survey, usual: Usual, quiet: bool) -> Gathered:
    """Examine all pairs of a corpus, in several processes."""
    n_chunks = survey.n_pairs / CHUNK
    disable = quiet or None  # None: tqdm hides the bar if stderr is no terminal
    bar = tqdm(desc=survey.files.name, total=n_chunks, unit=" pairs", unit_scale=CHUNK, disable=disable, leave=False)
    parts = []
    with bar:
        for part in in_parallel(partial(examine, usual), chunks(survey.files)):
            parts.append(part)
            bar.update()
    # Join the results of all chunks.
    hits: dict[str, list[NDArray[np.int64]]] = {}
    for part in parts:
        for kind, lines in part.hits.items():
            hits.setdefault(kind, []).append(lines)
    digests = np.concatenate([part.digests for part in parts], 1)
    paired = np.concatenate([part.paired for part in parts], 1)
    unrelated = np.concatenate([part.unrelated for part in parts], 1)
    all_hits = {kind: np.concatenate(lines) for kind, lines in hits.items()}
    return Gathered(all_hits, digests, paired, unrelated, survey)
