"""A lexical shortlist: which target pieces may translate each source piece.

With a shortlist, CTranslate2 computes logits only of the most frequent target pieces, and of those that are listed for
a source piece of the batch. Each target piece of the training text is linked to the source piece with the largest
cross-attention weight, normalized over both sides as in `nmt.translate.align`. A source piece lists the target pieces
that it is most often linked to, and itself if both sides share a vocabulary.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from nmt.errors import InputError
from nmt.text import EOS
from nmt.text.lines import Pair, iter_pairs
from nmt.text.tokenizer import Tokenizers
from nmt.train.corpora import corpus_paths, training_corpora
from nmt.translate.align import WINDOW, normalized
from nmt.translate.translator import Translator

N_FREQUENT = 1000  # target pieces that are always candidates
N_LINKED = 20  # target pieces for each source piece, at most
MAX_PAIRS = 500_000  # read from the training text


def vocabulary_map(translator: Translator) -> list[str]:
    """Return the lines of CTranslate2's vocabulary map: a source piece, a tab, target pieces with spaces between them.

    The line without a source piece has the pieces that are always candidates. Raises InputError if the translator is
    not of a run, or a file of its training text cannot be read.
    """
    if translator.run is None:
        raise InputError("a shortlist is made from the training text of a run", hint="give the run with -m")
    if translator.tokenizers.source.targets:
        raise InputError("a shortlist is for a model of one direction", hint="leave out --shortlist")
    config = translator.run.read_config()
    corpora = (iter_pairs(*corpus_paths(config, files)) for files in training_corpora(config).values())
    pairs = islice(chain.from_iterable(corpora), MAX_PAIRS)
    links = np.concatenate([np.zeros((2, 0), np.int64), *linked_pieces(translator, pairs)], axis=1)
    return lines_of(translator.tokenizers, links)


def linked_pieces(translator: Translator, pairs: Iterable[Pair]) -> Iterator[NDArray[np.int64]]:
    """Yield (2, N) arrays of linked source and target tokens; each target token has one link."""
    stream = iter(pairs)
    while window := list(islice(stream, WINDOW)):
        src, tgt = translator.encode_pairs([pair.source for pair in window], [pair.target for pair in window])
        for source, target, weights in zip(src, tgt, translator.engine.attention(src, tgt), strict=True):
            sources, targets = np.array(source), np.array(target)
            weights = weights * (targets > EOS)[:, None] * (sources > EOS)  # (T, S)
            if weights.any():
                best = (normalized(weights, 0) * normalized(weights, 1)).argmax(1)
                yield np.stack([sources[best], targets])[:, targets > EOS]


def lines_of(tokenizers: Tokenizers, links: NDArray[np.int64]) -> list[str]:
    """Return the lines of a vocabulary map, given all links (2, N); see `vocabulary_map`."""
    n_target = len(tokenizers.target)
    frequent = np.argsort(-np.bincount(links[1], minlength=n_target), kind="stable")[:N_FREQUENT]
    distinct, counts = np.unique(links[0] * n_target + links[1], return_counts=True)
    linked: dict[int, list[int]] = {}
    for link in distinct[np.argsort(-counts, kind="stable")].tolist():
        of_source = linked.setdefault(link // n_target, [])
        if len(of_source) < N_LINKED:
            of_source.append(link % n_target)
    if tokenizers.joint:
        for source, of_source in linked.items():
            of_source.append(source)  # names are copied
    sources = ["", *tokenizers.source.pieces(linked)]
    targets = map(tokenizers.target.pieces, [frequent.tolist(), *linked.values()])
    return [
        f"{source}\t{' '.join(filter(is_plain, pieces))}"
        for source, pieces in zip(sources, targets, strict=True)
        if is_plain(source)
    ]


def is_plain(piece: str) -> bool:
    """Whether a vocabulary map can contain a piece: it separates pieces by spaces, and lists by tabs."""
    return not set(piece) & set(" \t\r\n")
