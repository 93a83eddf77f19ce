"""A lexical shortlist: which target pieces may translate each source piece.

With a shortlist, CTranslate2 computes logits only of the most frequent target pieces, and of those that are listed for
a source piece of the batch. Each target piece of the training text is linked to the source piece with the largest
cross-attention weight, normalized over both sides as in `nmt.translate.align`. A source piece lists the target pieces
that it is most often linked to, and itself if both sides share a vocabulary.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from nmt.errors import InputError
from nmt.text import EOS
from nmt.text.lines import Pair, iter_pairs
from nmt.text.tokenizer import Tokenizer, Tokenizers
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
    # The files of the training text may be large: only their beginning is read.
    config = translator.run.read_config()
    corpora = (iter_pairs(*corpus_paths(config, files)) for files in training_corpora(config).values())
    pairs = islice(chain.from_iterable(corpora), MAX_PAIRS)
    no_links = np.zeros((2, 0), np.int64)
    links = np.concatenate([no_links, *linked_pieces(translator, pairs)], axis=1)
    return lines_of(translator.tokenizers, links)


def linked_pieces(translator: Translator, pairs: Iterable[Pair]) -> Iterator[NDArray[np.int64]]:
    """Yield (2, N) arrays of linked source and target tokens; each target token has one link."""
    stream = iter(pairs)
    while window := list(islice(stream, WINDOW)):
        sources = [pair.source for pair in window]
        targets = [pair.target for pair in window]
        # 1. The attention of some pairs.
        src, tgt = translator.encode_pairs(sources, targets)
        attention = translator.engine.attention(src, tgt)
        # 2. The best source piece for each target piece.
        for source_ids, target_ids, weights in zip(src, tgt, attention, strict=True):
            source = np.array(source_ids)
            target = np.array(target_ids)
            is_piece = target > EOS  # not a special token
            weights = weights * is_piece[:, None] * (source > EOS)  # (T, S)
            if weights.any():
                best = (normalized(weights, 0) * normalized(weights, 1)).argmax(1)  # (T,)
                yield np.stack([source[best], target])[:, is_piece]


def lines_of(tokenizers: Tokenizers, links: NDArray[np.int64]) -> list[str]:
    """Return the lines of a vocabulary map, given all links (2, N); see `vocabulary_map`."""
    sources, targets = links
    n_target = len(tokenizers.target)
    # 1. The candidates of every sentence.
    frequencies = np.bincount(targets, minlength=n_target)
    frequent = np.argsort(-frequencies, kind="stable")[:N_FREQUENT]
    lines = [f"\t{plain_pieces(tokenizers.target, frequent.tolist())}"]

    # 2. The target pieces of each source piece, most frequent links first.
    distinct, counts = np.unique(sources * n_target + targets, return_counts=True)
    by_count = distinct[np.argsort(-counts, kind="stable")]
    linked: defaultdict[int, list[int]] = defaultdict(list)
    for link in by_count.tolist():
        source, target = divmod(link, n_target)
        if len(linked[source]) < N_LINKED:
            linked[source].append(target)
    for source, linked_targets in linked.items():
        if tokenizers.joint:
            linked_targets.append(source)  # names are copied
        (piece,) = tokenizers.source.pieces([source])
        if is_plain(piece):
            lines.append(f"{piece}\t{plain_pieces(tokenizers.target, linked_targets)}")
    return lines


def plain_pieces(tokenizer: Tokenizer, tokens: list[int]) -> str:
    return " ".join(filter(is_plain, tokenizer.pieces(tokens)))


def is_plain(piece: str) -> bool:
    """Whether a vocabulary map can contain a piece: it separates pieces by spaces, and lists by tabs."""
    return set(piece).isdisjoint(" \t\r\n")
