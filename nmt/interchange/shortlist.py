"""A lexical shortlist: for each source piece, a list of target pieces that may be translations.

With a shortlist, CTranslate2 computes logits only for the most frequent target pieces, and for the pieces in the lists
of the source pieces.

The lists are made from the training text. Each target piece is linked to the source piece with the largest
cross-attention weight, normalized as in `nmt.translate.align`. A list has the target pieces that are linked most often.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from nmt.errors import InputError
from nmt.interchange import export
from nmt.text import EOS
from nmt.text.lines import Pair
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.translate.align import WINDOW, normalized
from nmt.translate.translator import Translator

N_FREQUENT = 1000  # number of most frequent target pieces, which are candidates in every translation
N_LINKED = 20  # maximum number of linked target pieces in the list of a source piece
MAX_PAIRS = 500_000  # maximum number of pairs that are read from the training text


def vocabulary_map(translator: Translator) -> list[str]:
    """Return the lines of a vocabulary map, which is CTranslate2's form of a shortlist.

    A line has a source piece, a tab, and target pieces separated by spaces. The source piece of the first line is
    empty. Its target pieces are candidates in every translation.

    Raises InputError if the translator has no run, if its model has several directions, or if the training text cannot
    be read.
    """
    # Read only the beginning of the training text, because its files may be large.
    pairs = islice(export.training_pairs(translator), MAX_PAIRS)
    if translator.tokenizers.source.targets:
        raise InputError("a shortlist is for a model of one direction", hint="leave out --shortlist")
    no_links = np.zeros((2, 0), np.int64)
    links = np.concatenate([no_links, *linked_pieces(translator, pairs)], axis=1)
    return lines_of_map(translator.tokenizers, links)


def linked_pieces(translator: Translator, pairs: Iterable[Pair]) -> Iterator[NDArray[np.int64]]:
    """Yield the links of each pair, as an array (2, N): source tokens in row 0, their target tokens in row 1."""
    stream = iter(pairs)
    while window := list(islice(stream, WINDOW)):
        # 1. Compute the attention weights of the pairs of this window.
        src, tgt = translator.encode_pairs([pair.source for pair in window], [pair.target for pair in window])
        attention = translator.engine.attention(src, tgt)
        # 2. Link each target piece to the source piece with the largest normalized weight.
        for source_ids, target_ids, weights in zip(src, tgt, attention, strict=True):
            source = np.array(source_ids)
            target = np.array(target_ids)
            is_piece = target > EOS  # False for special tokens
            weights = weights * is_piece[:, None] * (source > EOS)  # (T, S)
            if weights.any():
                best = (normalized(weights, 0) * normalized(weights, 1)).argmax(1)  # (T,)
                yield np.stack([source[best], target])[:, is_piece]


def lines_of_map(tokenizers: Tokenizers, links: NDArray[np.int64]) -> list[str]:
    """Return the lines of a vocabulary map. `links` is an array (2, N): all arrays of `linked_pieces`, joined."""
    sources, targets = links
    n_target = len(tokenizers.target)
    # 1. Write the line of the pieces that are candidates in every translation.
    frequencies = np.bincount(targets, minlength=n_target)
    frequent = np.argsort(-frequencies, kind="stable")[:N_FREQUENT]
    lines = [f"\t{plain_pieces(tokenizers.target, frequent.tolist())}"]

    # 2. List the linked target pieces of each source piece, the most frequent links first.
    distinct, counts = np.unique(sources * n_target + targets, return_counts=True)
    by_count = distinct[np.argsort(-counts, kind="stable")]
    linked: defaultdict[int, list[int]] = defaultdict(list)
    for link in by_count.tolist():
        source, target = divmod(link, n_target)
        if len(linked[source]) < N_LINKED:
            linked[source].append(target)
    for source, linked_targets in linked.items():
        if tokenizers.joint:
            linked_targets.append(source)  # names, for example, are copied from the source
        (piece,) = tokenizers.source.pieces([source])
        if is_plain(piece):
            lines.append(f"{piece}\t{plain_pieces(tokenizers.target, linked_targets)}")
    return lines


def plain_pieces(tokenizer: Tokenizer, tokens: list[int]) -> str:
    return " ".join(filter(is_plain, tokenizer.pieces(tokens)))


def is_plain(piece: str) -> bool:
    """Return whether a vocabulary map can contain a piece. White space in a piece would look like a separator."""
    return set(piece).isdisjoint(" \t\r\n")
