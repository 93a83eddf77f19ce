"""Which words became which: word alignments from cross-attention. Imports no torch.

The weights between the pieces of a pair, one matrix from the engine, are summed over the pieces of each pair of words.
The sums are normalized over source words and over target words, and both distributions are multiplied. The best source
word of each target word and the best target word of each source word are merged by grow-diagonal (Koehn et al. 2003);
nmt/insight/README.md compares other methods.
"""

import logging
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.decode.translator import Translator
from nmt.text.lines import UNSPACED_SCRIPTS, Span
from nmt.text.tokenizer import Tokenizer

log = logging.getLogger("nmt")

WINDOW = 1000  # pairs aligned together: limits memory, and lets pairs of similar length share a batch

Matrix = NDArray[np.floating[Any]]
Links = list[tuple[int, int]]  # indices of a source and a target word, from 0, in ascending order


@dataclass(frozen=True)
class WordText:
    """A text and its words."""

    text: str
    spans: list[Span]

    @classmethod
    def split(cls, text: str) -> "WordText":
        """Split at white space; in a text without spaces, each character of an unspaced script is a word."""
        pattern = r"\S+" if len(text.split()) > 1 else rf"[{UNSPACED_SCRIPTS}]|[^\s{UNSPACED_SCRIPTS}]+"
        return cls(text, [match.span() for match in re.finditer(pattern, text)])

    @property
    def words(self) -> list[str]:
        return [self.text[start:end] for start, end in self.spans]


def indices_between(words: Sequence[Span], start: int, end: int) -> range:
    """Return the indices of the words within text[start:end]; `words` are sorted and do not overlap."""
    first = bisect_left(words, start, key=lambda word: word[0])
    return range(first, max(first, bisect_right(words, end, key=lambda word: word[1])))


WordPair = tuple[WordText, WordText]  # source and target


def align(translator: Translator, pairs: Iterable[WordPair]) -> Iterator[Links]:
    """Align a stream of pairs, in order; pairs that are blank on one side or too long for the model have no links.

    Raises:
        InputError: the model has no attention.
    """
    stream, first = iter(pairs), 1
    while window := list(islice(stream, WINDOW)):
        yield from ([] if matrix is None else links(matrix) for matrix in word_attention(translator, window, first))
        first += len(window)


def word_attention(translator: Translator, pairs: Sequence[WordPair], first: int = 1) -> list[Matrix | None]:
    """Return the alignment scores of each pair: (source words, target words), in [0, 1].

    A score is p(source word | target word) · p(target word | source word), both from the same attention weights. A pair
    with a blank side has None instead of scores; so has a pair that is too long for the model, after a warning. `first`
    is the number of the first pair, for the warnings.
    """
    limit = translator.engine.max_length - 1
    found: list[Matrix | None] = [None for _ in pairs]
    sides, kept = [], []  # per aligned pair: token ids and shares of both sides; index of the pair
    for i, pair in enumerate(pairs):
        if not all(side.spans for side in pair):
            continue
        of_pair = [encoded(side, tokenizer, limit) for side, tokenizer in zip(pair, translator.tokenizers, strict=True)]
        if None in of_pair:
            message = "line %d is not aligned: a side has more than the %d pieces that the model takes"
            log.warning(message, first + i, limit)
        else:
            sides.append([side for side in of_pair if side is not None])
            kept.append(i)
    src, tgt = ([of_pair[side][0] for of_pair in sides] for side in (0, 1))
    for i, weights, ((_, of_source), (_, of_target)) in zip(
        kept, translator.engine.attention(src, tgt), sides, strict=True
    ):
        between = of_source.T @ weights.T @ of_target
        found[i] = normalized(between, 0) * normalized(between, 1)
    return found


def encoded(side: WordText, tokenizer: Tokenizer, limit: int) -> tuple[list[int], Matrix] | None:
    """Return the token ids of a text, and the share of each token that belongs to each word: (tokens, words).

    The punctuation around a word is not part of it. Returns None if there are more tokens than `limit`.
    """
    if len(tokenizer.encode(side.text)) > limit:
        return None
    tokens, words = tokenizer.encode_words(side.text, [bare_span(side.text, span) for span in side.spans])
    shares = np.zeros((len(tokens), len(side.spans)), np.float32)
    for t, of_token in enumerate(words):
        shares[t, of_token] = 1 / max(len(of_token), 1)
    return tokens, shares


def bare_span(text: str, span: Span) -> Span:
    """Return the span from the first to the last letter or digit of a word, including an apostrophe directly before it.

    A word without letters and digits keeps its span.
    """
    found = re.search(r"['’]?\w(.*\w)?", text[slice(*span)])
    return (span[0] + found.start(), span[0] + found.end()) if found else span


def normalized(weights: Matrix, axis: int) -> Matrix:
    """Weights divided by their sum over an axis; 0 where the sum is 0."""
    return np.asarray(weights / np.maximum(weights.sum(axis, keepdims=True), np.finfo(np.float32).tiny))


def links(matrix: Matrix) -> Links:
    """Return the links for alignment scores of shape (source words, target words)."""
    by_target = {(int(s), t) for t, s in enumerate(matrix.argmax(0)) if matrix[s, t] > 0}
    by_source = {(s, int(t)) for s, t in enumerate(matrix.argmax(1)) if matrix[s, t] > 0}
    return sorted(grow_diagonal(by_target, by_source))


def grow_diagonal(one: set[tuple[int, int]], other: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the intersection of two alignments, grown by adjacent links of their union that cover an unlinked word."""
    found, candidates = one & other, sorted(one ^ other)
    has_grown = True
    while has_grown:
        has_grown = False
        sources, targets = {s for s, _ in found}, {t for _, t in found}
        for s, t in candidates:
            is_beside = any((s + ds, t + dt) in found for ds in (-1, 0, 1) for dt in (-1, 0, 1))
            if (s, t) not in found and is_beside and (s not in sources or t not in targets):
                found.add((s, t))
                sources.add(s)
                targets.add(t)
                has_grown = True
    return found


def moses(found: Links) -> str:
    """Links in the Moses format, `0-0 1-2`."""
    return " ".join(f"{s}-{t}" for s, t in found)
