"""Which words became which: word alignments from cross-attention. Imports no torch.

The weights between the pieces of a pair, one matrix from the engine, are summed over the pieces of each pair of words.
Words that are spelled alike get more. The sums are normalized over source words and over target words, and both
distributions are multiplied. The best source word of each target word and the best target word of each source word are
merged by grow-diagonal (Koehn et al. 2003); nmt/insight/README.md compares other methods.

For markup, attention is multiplied by what each target token loses without a source word, see `losses_without`.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.text.capitals import as_read
from nmt.text.tokenizer import Tokenizer
from nmt.text.words import WordText, bare_span, likeness
from nmt.translate.translator import Translator

log = logging.getLogger("nmt")

ALIKE = 30.0  # weight of spelling, tuned on 300 pairs of Multi30k de-en with links from co-occurrence statistics
MIN_SHARE = 0.01  # smaller values of p(source word | target word) are left out of `Shares`
SHARE_DIGITS = 6  # of a share: rounding errors of the engine, which depend on the batch, must not decide between ties
MAX_DELETED = 100  # longest source, in words, for `losses_without`, which scores the target once per source word
LOSS_WINDOW = 100  # pairs passed to `losses_without` together: limits memory
WINDOW = 1000  # pairs aligned together: limits memory, and lets pairs of similar length share a batch

Matrix = NDArray[np.floating[Any]]
Links = list[tuple[int, int]]  # indices of a source and a target word, from 0, in ascending order
Shares = dict[int, float]  # of a target word: index of a source word -> p(source word | target word)
WordPair = tuple[WordText, WordText]  # source and target


def align(translator: Translator, pairs: Iterable[WordPair], numbers: Iterable[int] | None = None) -> Iterator[Links]:
    """Align a stream of pairs, in order; see `score_window`."""
    stream, numbers = iter(pairs), iter(numbers or count(1))
    while window := list(islice(stream, WINDOW)):
        yield from map(links, score_window(translator, window, list(islice(numbers, len(window)))))


def align_for_markup(translator: Translator, pairs: Sequence[WordPair]) -> list[tuple[Links, list[Shares]]]:
    """Return the links of each pair and the shares of each target word. Slower and more accurate than `align`."""
    found = []
    for start in range(0, len(pairs), LOSS_WINDOW):
        window = pairs[start : start + LOSS_WINDOW]
        for scores in score_window(translator, window, range(start + 1, len(pairs) + 1), with_losses=True):
            of_words = normalized(scores, 0).T.round(SHARE_DIGITS).tolist()
            shares = [{s: share for s, share in enumerate(of_word) if share > MIN_SHARE} for of_word in of_words]
            found.append((links(scores), shares))
    return found


def score_window(
    translator: Translator, pairs: Sequence[WordPair], numbers: Sequence[int] = (), *, with_losses: bool = False
) -> list[Matrix]:
    """Return the `word_scores` of each pair; empty if a side is blank, or, after a warning, too long for the model.

    `numbers` are the line numbers of the pairs, for the warnings. Raises InputError if the model has no attention.
    """
    limit = translator.engine.max_length - 1
    sides: dict[int, list[tuple[list[int], Matrix]]] = {}  # index of a pair -> `encoded` source and target
    for i, pair in enumerate(pairs):
        texts = list(zip(pair, translator.tokenizers, strict=True))
        if any(len(tokenizer.encode(as_read(side.text, tokenizer)[0])) > limit for side, tokenizer in texts):
            message = "line %d is not aligned: a side has more than the %d pieces that the model takes"
            log.warning(message, numbers[i] if numbers else i + 1, limit)
        elif all(side.spans for side in pair):
            sides[i] = [encoded(side, tokenizer) for side, tokenizer in texts]
    src, tgt = ([of_pair[side][0] for of_pair in sides.values()] for side in (0, 1))
    losses = losses_without(translator, list(sides.values())) if with_losses else [1.0] * len(sides)
    scores: list[Matrix] = [np.zeros((0, 0), np.float32) for _ in pairs]
    for i, weights, loss in zip(sides, translator.engine.attention(src, tgt), losses, strict=True):
        scores[i] = word_scores(weights, sides[i][0][1], sides[i][1][1], likeness(*pairs[i]), loss)
    return scores


def losses_without(
    translator: Translator, sides: Sequence[Sequence[tuple[list[int], Matrix]]]
) -> Iterator[Matrix | float]:
    """Yield the log-probability that each target token loses without each source word: (source words, T), at least 0.

    From Li et al. 2019, "On the word alignment from neural machine translation". `sides` are `encoded`.
    """
    scored: dict[tuple[tuple[int, ...], tuple[int, ...]], list[float]] = {}
    for (tokens, words), (target, _) in sides:
        if words.shape[1] <= MAX_DELETED:
            # Words of one token are deleted together. Scored once, they lose exactly the same in every batch.
            scored |= {(source, tuple(target)): [] for source in deletions(tokens, words)}
    log_probs = translator.engine.score([[*source] for source, _ in scored], [[*target] for _, target in scored])
    scored = dict(zip(scored, log_probs, strict=True))
    for (tokens, words), (target, _) in sides:
        if words.shape[1] <= MAX_DELETED:
            rows = [scored[source, tuple(target)][: len(target)] for source in deletions(tokens, words)]
            of_target = np.array(rows, np.float32)  # (1 + source words, T)
            yield np.maximum(of_target[0] - of_target[1:], 0)
        else:
            yield 1.0


def deletions(tokens: Sequence[int], words: Matrix) -> list[tuple[int, ...]]:
    """The tokens of a text, then its tokens without those of each word; `words` (tokens, words) is from `encoded`."""
    kept = [tuple(token for token, share in zip(tokens, of_word, strict=True) if not share) for of_word in words.T]
    return [tuple(tokens), *kept]


def word_scores(
    weights: Matrix, source: Matrix, target: Matrix, likeness: Matrix | float = 0.0, losses: Matrix | float = 1.0
) -> Matrix:
    """Return p(source word | target word) · p(target word | source word): (source words, target words), in [0, 1].

    Both are from the same attention weights (T, S); `source` (S, words) and `target` (T, words) are from `encoded`.
    """
    between = (source.T @ weights.T * losses) @ target * (1 + ALIKE * likeness**2)
    return normalized(between, 0) * normalized(between, 1)


def encoded(side: WordText, tokenizer: Tokenizer) -> tuple[list[int], Matrix]:
    """Return the token ids of a text, and the share of each token that belongs to each word: (tokens, words).

    The punctuation around a word is not part of it.
    """
    text, _ = as_read(side.text, tokenizer)
    tokens, words = tokenizer.encode_words(text, [bare_span(side.text, span) for span in side.spans])
    shares = np.zeros((len(tokens), len(side.spans)), np.float32)
    for t, of_token in enumerate(words):
        shares[t, of_token] = 1 / max(len(of_token), 1)
    return tokens, shares


def normalized(weights: Matrix, axis: int) -> Matrix:
    """Weights divided by their sum over an axis; 0 where the sum is 0."""
    return np.asarray(weights / np.maximum(weights.sum(axis, keepdims=True), np.finfo(np.float32).tiny))


def links(matrix: Matrix) -> Links:
    """Return the links for alignment scores of shape (source words, target words)."""
    if not matrix.size:
        return []
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
