"""Learn from a sample what is usual in a corpus, and examine all pairs in chunks, in several processes."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nmt.corpus import alignment, characters, language, lengths, pairs
from nmt.corpus.alignment import BATCH, Feature, Lexicon, Words
from nmt.corpus.language import Languages
from nmt.corpus.leakage import Index, Keys, matches, near_keys
from nmt.corpus.lengths import Lengths
from nmt.corpus.reading import Chunk, CorpusFiles, Survey, chunks, decode, is_utf8
from nmt.text.corpus import digests_of, in_parallel
from nmt.text.lines import BOM

SWAPPED_SHARE = 0.5  # share of exchanged lines above which the whole corpus counts as exchanged
NONE = np.zeros(0, np.int64)
MIN_HAN = 20  # lines of the sample in one variant of Chinese; with fewer, the usual variant is unknown
Hits = dict[str, NDArray[np.int64]]  # indices of lines by kind of fault
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

    languages: Languages
    without_stop: tuple[float, float]  # share of the lines of a side that do not end with punctuation, above 0
    unusual_han: tuple[
        re.Pattern[str] | None, re.Pattern[str] | None
    ]  # per side: characters of traditional Chinese in a simplified text, or the reverse
    lengths: Lengths
    lexicon: Lexicon

    def compare(self, words: Sequence[Words], sizes: Sequence[NDArray[np.int64]]) -> Feature:
        """Agreement and length ratio of pairs, given the words and the lengths of both sides."""
        return alignment.agreement(words[0], words[1], self.lexicon), self.lengths.z(sizes[0], sizes[1])


@dataclass(frozen=True, eq=False)
class Examined:
    """The results for a chunk of pairs."""

    hits: Hits  # line numbers
    digests: tuple[Keys, Keys, Keys]  # of source, target and pair
    true: Feature  # agreement and length ratio of the pairs
    unrelated: Feature  # the same for some source lines with target lines far away
    near: dict[str, NDArray[np.int64]]  # by other corpus: its line, and the line here that is almost the same: (n, 2)
    keys: tuple[Index, Index] | None  # of both sides, for comparison with another corpus


def learn(source: list[str], target: list[str]) -> Usual:
    return Usual(
        languages=language.learn(source, target),
        without_stop=(share_without_stop(source), share_without_stop(target)),
        unusual_han=(unusual_han(source), unusual_han(target)),
        lengths=lengths.learn(source, target),
        lexicon=alignment.learn(alignment.words_of(source), alignment.words_of(target)),
    )


def share_without_stop(texts: list[str]) -> float:
    return (sum(not pairs.final(text) for text in texts) + 1) / (len(texts) + 1)


def unusual_han(texts: list[str]) -> re.Pattern[str] | None:
    """The characters of the variant of Chinese that fewer lines are in; None if it is not Chinese."""
    variants = characters.IS_SIMPLIFIED, characters.IS_TRADITIONAL
    counts = [sum(variant.search(text) is not None for text in texts) for variant in variants]
    return variants[counts[0] >= counts[1]] if max(counts) >= MIN_HAN else None


def examine(usual: Usual, others: dict[str, tuple[Index, Index]], keep_keys: bool, chunk: Chunk) -> Examined:
    """Look for all faults that can be found in a chunk without the rest of its corpus.

    `others` are the keys of both sides of the corpora that this one must not overlap with.
    """
    raw = chunk.raw_sides()
    source, target = ([decode(line, chunk.first + i) for i, line in enumerate(side)] for side in raw)
    sides = (source, target)
    hashed = [alignment.hashed(side) for side in sides]
    words = [alignment.first_words(*side) for side in hashed]
    sizes = [np.array([*map(len, side)]) for side in sides]
    true = usual.compare(words, sizes)
    z = true[1]
    hits = hits_of_bytes(raw, chunk.first) | hits_of_text(source, target, z, usual)
    is_far_off = (np.abs(z) > pairs.FAR_OFF) & (usual.lengths.factor(*sizes) > pairs.MIN_FACTOR)
    hits["ratio"] = np.flatnonzero(is_far_off)
    hits |= hits_of_language(sides, usual)
    for name, others_of in EXPLAINS.items():
        for other in others_of:
            hits[other] = np.setdiff1d(hits[other], hits[name], assume_unique=True)
    n = min(BATCH, len(source))
    far = (np.arange(n) + n // 2) % n  # for each line, the index of an unrelated line half a batch away
    keys = [near_keys(*side, chunk.first) for side in hashed] if others or keep_keys else []
    encoded = [digests_of(text.encode("utf-8", "replace") for text in side) for side in sides]
    return Examined(
        hits={name: chunk.first + found for name, found in hits.items() if len(found)},
        digests=(encoded[0], encoded[1], encoded[0] * np.uint64(0x9E3779B97F4A7C15) + encoded[1]),
        true=true,
        unrelated=usual.compare((words[0][: len(far)], words[1][far]), (sizes[0][: len(far)], sizes[1][far])),
        near={name: np.concatenate([*map(matches, other, keys)]) for name, other in others.items()},
        keys=(keys[0], keys[1]) if keep_keys else None,
    )


def places(found: Iterable[object]) -> NDArray[np.int64]:
    """The indices of the true items."""
    return np.array([i for i, hit in enumerate(found) if hit], np.int64)


def hits_of_bytes(raw: tuple[list[bytes], list[bytes]], first: int) -> Hits:
    both = list(zip(*raw, strict=True))
    has_bom = first == 1 and any(side[0].startswith(BOM) for side in raw)
    return {
        "encoding": places(not (is_utf8(source) and is_utf8(target)) for source, target in both),
        "crlf": places(source.endswith(b"\r") or target.endswith(b"\r") for source, target in both),
        "bom": np.zeros(int(has_bom), np.int64),
    }


def hits_of_text(source: list[str], target: list[str], z: NDArray[np.float32], usual: Usual) -> Hits:
    """Faults that show in the text of a pair by itself."""
    both = list(zip(source, target, strict=True))
    hits = {name: places(test(s) or test(t) for s, t in both) for name, test in characters.TESTS.items()}
    hits |= {name: places(test(s, t) for s, t in both) for name, test in pairs.TESTS.items()}
    hits["punctuation"] = places(pairs.ends_differ(s, t, usual.without_stop) for s, t in both)
    deviations = zip(both, z.tolist(), strict=True)
    hits["truncated"] = places(pairs.cut_off(s, t, deviation, usual.without_stop) for (s, t), deviation in deviations)
    return hits


def hits_of_language(sides: tuple[list[str], list[str]], usual: Usual) -> Hits:
    languages = usual.languages
    wrong, script, third, variants = [], [], [], []
    for side, texts in enumerate(sides):
        in_other, is_rare = language.compared(texts, side, languages)
        wrong.append(in_other)
        script.append(places(language.has_other_script(text, languages.scripts[side]) for text in texts))
        foreign = (
            rare and language.third_language(text, languages.names) for text, rare in zip(texts, is_rare, strict=True)
        )
        third.append(places(foreign))
        unusual = usual.unusual_han[side]
        variants.append(places(map(unusual.search, texts) if unusual else ()))
    return {
        "exchanged": np.flatnonzero(np.minimum(*wrong) + np.maximum(*wrong) >= 3),
        "untranslated": np.flatnonzero((np.maximum(*wrong) == 2) & (np.minimum(*wrong) == 0)),
        "script": np.union1d(*script),
        "language": np.union1d(*third),
        "han-variants": np.union1d(*variants),
    }


@dataclass(eq=False)
class Gathered:
    """The results for all chunks of a corpus: of each pair, three digests and two features; lines by kind of fault."""

    files: CorpusFiles
    survey: Survey
    parts: list[Examined] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.files.name

    @property
    def n_pairs(self) -> int:
        return self.survey.n_pairs

    @property
    def is_swapped(self) -> bool:
        """Whether the sides of most lines are exchanged."""
        return len(self.lines_of("exchanged")) > SWAPPED_SHARE * self.n_pairs

    def lines_of(self, kind: str) -> NDArray[np.int64]:
        return np.concatenate([NONE, *(part.hits[kind] for part in self.parts if kind in part.hits)])

    def near_lines(self, other: str) -> NDArray[np.int64]:
        """Lines that are almost the same as one of another corpus, and the line there: (n, 2)."""
        return np.concatenate([NONE.reshape(0, 2), *(part.near[other] for part in self.parts if other in part.near)])

    def digests_of(self, which: int) -> Keys:
        """The digests of the source (0), the target (1) or the pair (2) of all lines."""
        return np.concatenate([part.digests[which] for part in self.parts])

    def features(self) -> tuple[Feature, Feature]:
        """Agreement and length ratio of all pairs, and of unrelated lines."""
        true, unrelated = [part.true for part in self.parts], [part.unrelated for part in self.parts]
        return joined(true), joined(unrelated)

    def index(self) -> tuple[Index, Index]:
        """The sorted keys of both sides. Only dev and test, which are small, store keys."""
        found = []
        for side in (0, 1):
            indices = [part.keys[side] for part in self.parts if part.keys is not None]
            keys = np.concatenate([one.keys for one in indices])
            order = np.argsort(keys, kind="stable")
            found.append(Index(keys[order], np.concatenate([one.lines for one in indices])[order]))
        return found[0], found[1]


def joined(features: Sequence[Feature]) -> Feature:
    return np.concatenate([agreement for agreement, _ in features]), np.concatenate([z for _, z in features])


def gather(corpora: list[tuple[CorpusFiles, Survey]], usual: Usual, quiet: bool) -> list[Gathered]:
    """Examine all pairs of all corpora, from the last to the first.

    Train, the first, is compared with the keys of dev and test; dev with the keys of test.
    """
    found: list[Gathered] = []
    for files, counted in corpora[::-1]:
        work = partial(examine, usual, {other.name: other.index() for other in found}, files is not corpora[0][0])
        read = with_bar(chunks(files), files.name, counted.n_pairs, quiet)
        found.append(Gathered(files, counted, list(in_parallel(work, read))))
    return found[::-1]


def with_bar(chunks: Iterable[Chunk], name: str, n_pairs: int, quiet: bool) -> Iterator[Chunk]:
    """Yield the chunks; if stderr is a terminal, show a progress bar that counts pairs."""
    with tqdm(desc=name, total=n_pairs, unit=" pairs", disable=quiet or None, leave=False) as bar:
        for chunk in chunks:
            yield chunk
            bar.update(chunk.source.count(b"\n") + 1)
