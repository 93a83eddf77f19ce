"""Examine all chunks of the corpora, and collect the results of each corpus."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nmt.corpus.alignment import Feature
from nmt.corpus.examine import Examined, Usual, examine
from nmt.corpus.leakage import Index, Keys
from nmt.corpus.reading import Chunk, CorpusFiles, Survey, chunks
from nmt.text.corpus import in_parallel

SWAPPED_SHARE = 0.5  # share of exchanged lines above which the whole corpus counts as exchanged
Progress = Callable[[Iterable[Chunk], str, int], Iterable[Chunk]]  # chunks, name of the corpus, number of its pairs


def no_progress(items: Iterable[Chunk], _name: str, _n_pairs: int) -> Iterable[Chunk]:
    return items


@dataclass(eq=False)
class Gathered:
    """The results for one corpus: lines by kind of fault, and three digests and two features of each pair."""

    files: CorpusFiles
    survey: Survey
    hits: dict[str, list[NDArray[np.int64]]] = field(default_factory=dict)  # line numbers by kind
    digests: list[tuple[Keys, Keys, Keys]] = field(default_factory=list)
    true: list[Feature] = field(default_factory=list)
    unrelated: list[Feature] = field(default_factory=list)
    near: dict[str, list[NDArray[np.int64]]] = field(default_factory=dict)  # as `Examined.near`
    keys: list[tuple[Index, Index]] = field(default_factory=list)

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

    def add(self, part: Examined) -> None:
        for name, lines in part.hits.items():
            self.hits.setdefault(name, []).append(lines)
        self.digests.append(part.digests)
        self.true.append(part.true)
        self.unrelated.append(part.unrelated)
        for name, lines in part.near.items():
            self.near.setdefault(name, []).append(lines)
        if part.keys is not None:
            self.keys.append(part.keys)

    def lines_of(self, kind: str) -> NDArray[np.int64]:
        return np.concatenate([np.zeros(0, np.int64), *self.hits.get(kind, [])])

    def digests_of(self, which: int) -> Keys:
        """The digests of the source (0), the target (1) or the pair (2) of all lines."""
        return np.concatenate([part[which] for part in self.digests])

    def features(self) -> tuple[Feature, Feature]:
        """Agreement and length ratio of all pairs, and of unrelated lines."""
        true, unrelated = (
            (np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))
            for parts in (self.true, self.unrelated)
        )
        return true, unrelated

    def index(self) -> tuple[Index, Index]:
        """The sorted keys of both sides. Only dev and test, which are small, store keys."""
        found = []
        for side in (0, 1):
            keys = np.concatenate([part[side].keys for part in self.keys])
            lines = np.concatenate([part[side].lines for part in self.keys])
            order = np.argsort(keys, kind="stable")
            found.append(Index(keys[order], lines[order]))
        return found[0], found[1]


def gather(corpora: list[tuple[CorpusFiles, Survey]], usual: Usual, progress: Progress) -> list[Gathered]:
    """Examine all pairs of all corpora, from the last to the first.

    Train, the first, is compared with the keys of dev and test; dev with the keys of test.
    """
    found: list[Gathered] = []
    for files, counted in corpora[::-1]:
        current = Gathered(files, counted)
        others = {other.name: other.index() for other in found}
        work = partial(examine, usual, others, files is not corpora[0][0])
        for part in in_parallel(work, progress(chunks(files), files.name, counted.n_pairs)):
            current.add(part)
        found.append(current)
    return found[::-1]
