"""Word alignments from cross-attention: which source word is translated by which target word.

The engine returns one matrix of attention weights between the tokens of a pair. For each source word and each target
word, the weights between the tokens of the two words are summed. A sum is increased if the two words have similar
spellings. The sums are normalized over source words and, separately, over target words. The product of the two
distributions is the score. The best source word of each target word and the best target word of each source word are
merged by grow-diagonal (Koehn et al. 2003). nmt/insight/README.md compares other methods.

Alignments for markup also multiply the attention to a source word by the loss without this word, see `losses_without`.
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

# The weight of similar spelling. It was tuned on 300 pairs of Multi30k de-en, with links from co-occurrence statistics.
ALIKE = 30.0
MIN_SHARE = 0.01  # `Shares` contain only values of p(source word | target word) above this number
# Shares are rounded to this many digits. The engine's rounding errors depend on the batch, and would break ties.
SHARE_DIGITS = 6
MAX_DELETED = 100  # maximum number of source words for `losses_without`, which scores the target once per source word
LOSS_WINDOW = 100  # number of pairs that are passed to `losses_without` together; this limits memory
# The number of pairs that are aligned together. This limits memory, and lets pairs of similar length share a batch.
WINDOW = 1000

Matrix = NDArray[np.floating[Any]]
Links = list[tuple[int, int]]  # sorted pairs: index of a source word, index of a target word
Shares = dict[int, float]  # for one target word: index of a source word -> p(source word | target word)
WordPair = tuple[WordText, WordText]  # the source text and the target text


class EncodedWords(NamedTuple):
    """The token ids of a text, and the words to which the tokens belong."""

    tokens: list[int]
    shares: Matrix  # (tokens, words): the share of each token that belongs to each word


@dataclass
class WordAlignment:
    """The alignment of a pair for markup."""

    links: Links
    shares: list[Shares]  # one for each target word


def align(
    engine: Engine, tokenizers: Tokenizers, pairs: Iterable[WordPair], numbers: Iterable[int] | None = None
) -> Iterator[Links]:
    """Align a stream of pairs, and yield the links of each pair in order.

    `numbers` are the line numbers of the pairs. `score_window` says which pairs have no links.
    """
    pairs, numbers = iter(pairs), iter(numbers or count(1))
    while window := list(islice(pairs, WINDOW)):
        for scores in score_window(engine, tokenizers, window, list(islice(numbers, len(window)))):
            yield links(scores)


def align_for_markup(engine: Engine, tokenizers: Tokenizers, pairs: Sequence[WordPair]) -> list[WordAlignment]:
    """Align pairs, and return the links and shares of each pair. This is slower and more accurate than `align`."""
    alignments = []
    for start in range(0, len(pairs), LOSS_WINDOW):
        window = pairs[start : start + LOSS_WINDOW]
        numbers = range(start + 1, len(pairs) + 1)
        for scores in score_window(engine, tokenizers, window, numbers, with_losses=True):
            alignments.append(WordAlignment(links(scores), shares_of_words(scores)))
    return alignments


def shares_of_words(scores: Matrix) -> list[Shares]:
    """Return p(source word | target word) for each target word, given the result of `word_scores`.

    Values up to `MIN_SHARE` are left out.
    """
    # Python reads a list of floats much faster than an array.
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
    """Return the `word_scores` of each pair.

    A pair with a side that is blank or too long for the model gets an empty matrix. A warning names a pair that is too
    long by its line number in `numbers`. With `with_losses`, attention is multiplied by `losses_without`. Raises
    InputError if the model has no attention.
    """
    # 1. Encode the pairs that can be aligned.
    limit = engine.max_length - 1
    encoded_pairs: dict[int, tuple[EncodedWords, EncodedWords]] = {}  # by the index of the pair
    for i, (source, target) in enumerate(pairs):
        if not source.spans or not target.spans:
            continue
        # Check the length first, because the matrix that `encoded_words` makes of a long text needs much memory.
        n_pieces = max(count_pieces(source, tokenizers.source), count_pieces(target, tokenizers.target))
        if n_pieces > limit:
            message = "line %d is not aligned: a side has more than the %d pieces that the model takes"
            log.warning(message, numbers[i], limit)
            continue
        encoded_pairs[i] = encoded_words(source, tokenizers.source), encoded_words(target, tokenizers.target)
    # 2. Compute the weights of all pairs in one call of the engine, and all losses in another call.
    sources = [source.tokens for source, _ in encoded_pairs.values()]
    targets = [target.tokens for _, target in encoded_pairs.values()]
    attention = engine.attention(sources, targets)
    losses: list[Matrix | float] = [1.0] * len(encoded_pairs)
    if with_losses:
        losses = list(losses_without(engine, list(encoded_pairs.values())))
    # 3. Convert weights between tokens to scores between words. Pairs that were not encoded get an empty matrix.
    scores: list[Matrix] = [np.zeros((0, 0), np.float32) for _ in pairs]
    for (i, (source_side, target_side)), weights, loss in zip(encoded_pairs.items(), attention, losses, strict=True):
        scores[i] = word_scores(weights, source_side.shares, target_side.shares, likeness(*pairs[i]), loss)
    return scores


def count_pieces(side: WordText, tokenizer: Tokenizer) -> int:
    text, _ = as_read(side.text, tokenizer)
    return len(tokenizer.encode(text))


def losses_without(engine: Engine, pairs: Sequence[tuple[EncodedWords, EncodedWords]]) -> Iterator[Matrix | float]:
    """Yield a matrix (source words, T) for each pair: what each target token loses without each source word.

    The loss is the decrease of the token's log-probability when the source word is deleted, or 0 if there is no
    decrease (Li et al. 2019, "On the word alignment from neural machine translation"). If a source has more than
    `MAX_DELETED` words, its pair gets the number 1.0 instead of a matrix.
    """
    # 1. Collect the inputs to score. Equal inputs are scored only once, so that the scores are exactly equal: scores
    # from different batches could have different rounding errors.
    scored: dict[tuple[tuple[int, ...], tuple[int, ...]], list[float]] = {}
    for source, target in pairs:
        if source.shares.shape[1] <= MAX_DELETED:
            for tokens in deletions(source):
                scored[tokens, tuple(target.tokens)] = []
    # 2. Score all inputs together.
    sources = [list(tokens) for tokens, _ in scored]
    targets = [list(tokens) for _, tokens in scored]
    scored = dict(zip(scored, engine.score(sources, targets), strict=True))
    # 3. Compare the score with each deletion to the score with the whole source.
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
    """Yield the tokens of the text; then, for each word, the tokens of the text without this word."""
    yield tuple(source.tokens)
    for share_of_word in source.shares.T:
        yield tuple(token for token, share in zip(source.tokens, share_of_word, strict=True) if not share)


def word_scores(
    weights: Matrix, source: Matrix, target: Matrix, likeness: Matrix | float = 0.0, losses: Matrix | float = 1.0
) -> Matrix:
    """Return the product p(source word | target word) · p(target word | source word) for each pair of words.

    Args:
        weights: attention weights (T, S), from which both probabilities are computed.
        source, target: the `shares` of the encoded sides, (S, source words) and (T, target words).
        likeness: the similarity of the spellings of each pair of words, (source words, target words).
        losses: the result of `losses_without`, (source words, T).
    Returns:
        the scores (source words, target words), between 0 and 1.
    """
    to_source_words = source.T @ weights.T  # (source words, T)
    between = (to_source_words * losses) @ target  # (source words, target words)
    between = between * (1 + ALIKE * likeness**2)
    return normalized(between, 0) * normalized(between, 1)


def encoded_words(side: WordText, tokenizer: Tokenizer) -> EncodedWords:
    """Encode a text. Tokens of the punctuation around a word do not belong to the word."""
    text, _ = as_read(side.text, tokenizer)
    words = [bare_span(side.text, span) for span in side.spans]
    tokens, words_of_tokens = tokenizer.encode_words(text, words)
    shares = np.zeros((len(tokens), len(side.spans)), np.float32)
    # A token that overlaps several words belongs to each of them in equal shares.
    for t, overlapped in enumerate(words_of_tokens):
        shares[t, overlapped] = 1 / max(len(overlapped), 1)
    return EncodedWords(tokens, shares)


def normalized(weights: Matrix, axis: int) -> Matrix:
    """Return the weights divided by their sum over an axis. Where the sum is 0, the result is 0."""
    least = np.finfo(np.float32).tiny
    sums = np.maximum(weights.sum(axis, keepdims=True), least)
    return np.asarray(weights / sums)


def links(matrix: Matrix) -> Links:
    """Return the links of a pair, given the scores of the pair in a matrix (source words, target words)."""
    if not matrix.size:
        return []
    # Find the best source word of each target word, and the reverse. Two words with the score 0 get no link.
    best_sources = matrix.argmax(0).tolist()
    best_targets = matrix.argmax(1).tolist()
    by_target = {(s, t) for t, s in enumerate(best_sources) if matrix[s, t] > 0}
    by_source = {(s, t) for s, t in enumerate(best_targets) if matrix[s, t] > 0}
    return sorted(grow_diagonal(by_target, by_source))


def grow_diagonal(first: set[tuple[int, int]], second: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the intersection of two alignments, extended by links from their union.

    A link of the union is added if it is adjacent to a link of the result, and if one of its words has no link yet.
    """
    grown = first & second
    candidates = sorted(first ^ second)
    # Repeat until no link is added: a new link can be adjacent to candidates that were refused before.
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
    """Return whether an alignment has a link at (s, t), or at one of the eight positions around (s, t)."""
    sources = (s - 1, s, s + 1)
    targets = (t - 1, t, t + 1)
    neighbors = product(sources, targets)
    return any(neighbor in alignment for neighbor in neighbors)
