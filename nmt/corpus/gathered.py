"""Examine all chunks of the corpora, and collect the results of each corpus."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nmt.corpus.alignment import Feature
from nmt.corpus.examine import Examined, Usual, examine
from nmt.corpus.leakage import Index, Keys
from nmt.corpus.reading import Chunk, CorpusFiles, Survey, chunks
from nmt.text.corpus import in_parallel

SWAPPED_SHARE = 0.5  # share of exchanged lines above which the whole corpus counts as exchanged
NONE = np.zeros(0, np.int64)


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
