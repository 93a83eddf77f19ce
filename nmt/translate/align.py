"""Which words became which: word alignments from cross-attention.

The weights between the pieces of a pair, one matrix from the engine, are summed over the pieces of each pair of words.
Words that are spelled alike get more. The sums are normalized over source words and over target words, and both
distributions are multiplied. The best source word of each target word and the best target word of each source word are
merged by grow-diagonal (Koehn et al. 2003); nmt/insight/README.md compares other methods.

For markup, attention is multiplied by what each target token loses without a source word, see `losses_without`.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.decode.options import Engine
from nmt.text.capitals import as_read
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.words import WordText, bare_span, likeness

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


class EncodedWords(NamedTuple):
    """A text as token ids."""

    tokens: list[int]
    shares: Matrix  # (tokens, words): the share of each token that belongs to each word


@dataclass
class WordAlignment:
    """The alignment of a pair for markup."""

    links: Links
    shares: list[Shares]  # of each target word


def align(
    engine: Engine, tokenizers: Tokenizers, pairs: Iterable[WordPair], numbers: Iterable[int] | None = None
) -> Iterator[Links]:
    """Align a stream of pairs, in order; see `score_window`."""
    pairs, numbers = iter(pairs), iter(numbers or count(1))
    while window := list(islice(pairs, WINDOW)):
        for scores in score_window(engine, tokenizers, window, list(islice(numbers, len(window)))):
            yield links(scores)


def align_for_markup(engine: Engine, tokenizers: Tokenizers, pairs: Sequence[WordPair]) -> list[WordAlignment]:
    """Align pairs, with the shares of each target word. Slower and more accurate than `align`."""
    alignments = []
    for start in range(0, len(pairs), LOSS_WINDOW):
        window = pairs[start : start + LOSS_WINDOW]
        numbers = range(start + 1, len(pairs) + 1)
        for scores in score_window(engine, tokenizers, window, numbers, with_losses=True):
            alignments.append(WordAlignment(links(scores), shares_of_words(scores)))
    return alignments


def shares_of_words(scores: Matrix) -> list[Shares]:
    """Return p(source word | target word) of each target word, given `word_scores`; small values are left out."""
    # A list of floats is much faster to read than an array.
    shares = normalized(scores, 0).T.round(SHARE_DIGITS).tolist()  # (target words, source words)
    large = []
    for shares_of_word in shares:
        large.append({s: share for s, share in enumerate(shares_of_word) if share > MIN_SHARE})
    return large


def score_window(
    engine: Engine,
    tokenizers: Tokenizers,
    pairs: Sequence[WordPair],
    numbers: Sequence[int],
    *,
    with_losses: bool = False,
) -> list[Matrix]:
    """Return the `word_scores` of each pair; empty if a side is blank, or, after a warning, too long for the model.

    `numbers` are the line numbers of the pairs, for the warnings. Raises InputError if the model has no attention.
    """
    # 1. Encode the pairs that can be aligned.
    limit = engine.max_length - 1
    encoded_pairs: dict[int, tuple[EncodedWords, EncodedWords]] = {}  # by the index of the pair
    for i, (source, target) in enumerate(pairs):
        if not source.spans or not target.spans:
            continue
        # This check comes before `encoded`, whose matrix of a long text needs much memory.
        n_pieces = max(count_pieces(source, tokenizers.source), count_pieces(target, tokenizers.target))
        if n_pieces > limit:
            message = "line %d is not aligned: a side has more than the %d pieces that the model takes"
            log.warning(message, numbers[i], limit)
            continue
        encoded_pairs[i] = encoded(source, tokenizers.source), encoded(target, tokenizers.target)
    # 2. One call of the engine for the weights of all pairs, one for all losses.
    sources = [source.tokens for source, _ in encoded_pairs.values()]
    targets = [target.tokens for _, target in encoded_pairs.values()]
    attention = engine.attention(sources, targets)
    losses: list[Matrix | float] = [1.0] * len(encoded_pairs)
    if with_losses:
        losses = list(losses_without(engine, list(encoded_pairs.values())))
    # 3. From weights between tokens to scores between words. The other pairs have none.
    scores: list[Matrix] = [np.zeros((0, 0), np.float32) for _ in pairs]
    for (i, (source_side, target_side)), weights, loss in zip(encoded_pairs.items(), attention, losses, strict=True):
        scores[i] = word_scores(weights, source_side.shares, target_side.shares, likeness(*pairs[i]), loss)
    return scores


def count_pieces(side: WordText, tokenizer: Tokenizer) -> int:
    text, _ = as_read(side.text, tokenizer)
    return len(tokenizer.encode(text))


def losses_without(engine: Engine, pairs: Sequence[tuple[EncodedWords, EncodedWords]]) -> Iterator[Matrix | float]:
    """Yield the log-probability that each target token loses without each source word: (source words, T), at least 0.

    From Li et al. 2019, "On the word alignment from neural machine translation". For long sources, yields 1.
    """
    # 1. Collect the inputs to score. Those that are equal are scored once: they lose exactly the same in every batch.
    scored: dict[tuple[tuple[int, ...], tuple[int, ...]], list[float]] = {}
    for source, target in pairs:
        if source.shares.shape[1] <= MAX_DELETED:
            for tokens in deletions(source):
                scored[tokens, tuple(target.tokens)] = []
    # 2. Score them together.
    sources = [list(tokens) for tokens, _ in scored]
    targets = [list(tokens) for _, tokens in scored]
    scored = dict(zip(scored, engine.score(sources, targets), strict=True))
    # 3. Compare each with the whole source.
    for source, target in pairs:
        if source.shares.shape[1] > MAX_DELETED:
            yield 1.0
            continue
        rows = []
        for tokens in deletions(source):
            log_probs = scored[tokens, tuple(target.tokens)]
            rows.append(log_probs[: len(target.tokens)])
        log_prob = np.array(rows, np.float32)  # (1 + source words, T)
        yield np.maximum(log_prob[0] - log_prob[1:], 0)


def deletions(source: EncodedWords) -> Iterator[tuple[int, ...]]:
    """Yield the tokens of a text, then its tokens without those of each word."""
    yield tuple(source.tokens)
    for share_of_word in source.shares.T:
        yield tuple(token for token, share in zip(source.tokens, share_of_word, strict=True) if not share)


def word_scores(
    weights: Matrix, source: Matrix, target: Matrix, likeness: Matrix | float = 0.0, losses: Matrix | float = 1.0
) -> Matrix:
    """Return p(source word | target word) · p(target word | source word): (source words, target words), in [0, 1].

    Both are from the same attention weights (T, S); `source` (S, words) and `target` (T, words) are from `encoded`.
    """
    to_source_words = source.T @ weights.T  # (source words, T)
    between = (to_source_words * losses) @ target  # (source words, target words)
    between = between * (1 + ALIKE * likeness**2)
    return normalized(between, 0) * normalized(between, 1)


def encoded(side: WordText, tokenizer: Tokenizer) -> EncodedWords:
    """Encode a text. The punctuation around a word is not part of it."""
    text, _ = as_read(side.text, tokenizer)
    words = [bare_span(side.text, span) for span in side.spans]
    tokens, words_of_tokens = tokenizer.encode_words(text, words)
    shares = np.zeros((len(tokens), len(side.spans)), np.float32)
    # A token that overlaps several words is shared by them.
    for t, overlapped in enumerate(words_of_tokens):
        shares[t, overlapped] = 1 / max(len(overlapped), 1)
    return EncodedWords(tokens, shares)


def normalized(weights: Matrix, axis: int) -> Matrix:
    """Return the weights divided by their sum over an axis; 0 where the sum is 0."""
    least = np.finfo(np.float32).tiny
    sums = np.maximum(weights.sum(axis, keepdims=True), least)
    return np.asarray(weights / sums)


def links(matrix: Matrix) -> Links:
    """Return the links for alignment scores of shape (source words, target words)."""
    if not matrix.size:
        return []
    # The best word of each word in both directions; where there is no weight, there is no link.
    best_sources = matrix.argmax(0).tolist()
    best_targets = matrix.argmax(1).tolist()
    by_target = {(s, t) for t, s in enumerate(best_sources) if matrix[s, t] > 0}
    by_source = {(s, t) for s, t in enumerate(best_targets) if matrix[s, t] > 0}
    return sorted(grow_diagonal(by_target, by_source))


def grow_diagonal(first: set[tuple[int, int]], second: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the intersection of two alignments, grown by adjacent links of their union that cover an unlinked word."""
    grown = first & second
    candidates = sorted(first ^ second)
    # A new link may make others adjacent, so go on until nothing changes.
    has_grown = True
    while has_grown:
        has_grown = False
        sources = {s for s, _ in grown}
        targets = {t for _, t in grown}
        for s, t in candidates:
            covers_a_word = s not in sources or t not in targets
            if (s, t) not in grown and covers_a_word and is_beside(s, t, grown):
                grown.add((s, t))
                sources.add(s)
                targets.add(t)
                has_grown = True
    return grown


def is_beside(s: int, t: int, alignment: set[tuple[int, int]]) -> bool:
    """Return whether an alignment has a link at (s, t) or at one of its eight neighbors."""
    sources = (s - 1, s, s + 1)
    targets = (t - 1, t, t + 1)
    neighbors = product(sources, targets)
    return any(neighbor in alignment for neighbor in neighbors)
