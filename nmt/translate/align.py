"""Word alignments from cross-attention: which source word is translated by which target word.

The engine returns one matrix of attention weights between the tokens of a pair. For each source word and each target
word, the weights between the tokens of the two words are summed. A sum is increased if the two words have similar
spellings. The sums are normalized over source words and, separately, over target words. The product of the two
distributions is the score. A score is increased by the scores of the previous and of the next words of both texts. Each
word is linked to the word with the best score. nmt/insight/README.md compares other methods.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, count, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.decode.options import Attention, Engine
from nmt.text.capitals import as_read
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.words import WordText, likeness
from nmt.translate.units import grouped

log = logging.getLogger("nmt.texts")  # messages that quote users' texts; `nmt serve` disables this logger

# The weight of similar spelling. It was tuned on 300 pairs of Multi30k de-en, with links from co-occurrence statistics.
ALIKE = 30.0
NEIGHBORS, N_ROUNDS = 0.1, 2  # see `with_neighbors`
EVENNESS = 0.7  # the exponent of attention weights, so that large weights count less
MAX_UNSURE = 0.3  # `dependence` is computed for pairs whose `n_unsure` exceeds this number
LOSSES = (0.001, 100.0)  # bounds of negative log-probabilities, so that their sums are positive and finite
MIN_SHARE = 0.01  # `Shares` contain only values of p(source word | target word) above this number
# Shares are rounded to this many digits. The engine's rounding errors depend on the batch, and would break ties.
SHARE_DIGITS = 6
# The number of pairs that are aligned together. This limits memory, and lets pairs of similar length share a batch.
WINDOW = 1000
LEAST = np.finfo(np.float32).tiny
EMPTY = np.zeros((0, 0), np.float32)

Matrix = NDArray[np.floating[Any]]
Links = list[tuple[int, int]]  # sorted pairs: index of a source word, index of a target word
Shares = dict[int, float]  # for one target word: index of a source word -> p(source word | target word)
WordPair = tuple[WordText, WordText]  # the source text and the target text


class EncodedWords(NamedTuple):
    """The token ids of a text, and the words to which the tokens belong."""

    tokens: list[int]
    shares: Matrix  # (tokens, words): the share of each token that belongs to each word


@dataclass
class AttendedPair:
    """A pair with its attention weights (T, S) and the `likeness` of its words."""

    source: EncodedWords
    target: EncodedWords
    likeness: Matrix
    weights: Matrix

    def scores(self) -> Matrix:
        """Return the `word_scores` of the pair."""
        return word_scores(self.weights, self.source.shares, self.target.shares, self.likeness)

    def scores_with(self, factors: Matrix) -> Matrix:
        """Return the `word_scores` of the pair, given its `dependence`.

        The weights are multiplied by the factors, and so are the scores, because neighbors have changed them.
        """
        weights = self.weights * (self.source.shares @ factors).T
        scores = word_scores(weights, self.source.shares, self.target.shares, self.likeness)
        return np.asarray(scores * (factors @ self.target.shares))


def align(
    engine: Engine, tokenizers: Tokenizers, pairs: Iterable[WordPair], numbers: Iterable[int] | None = None
) -> Iterator[Links]:
    """Align a stream of pairs, and yield the links of each pair in order.

    `numbers` are the line numbers of the pairs. `attended_pairs` says which pairs have no links.
    """
    pairs, numbers = iter(pairs), iter(numbers or count(1))
    while window := list(islice(pairs, WINDOW)):
        attended = attended_pairs(engine, tokenizers, window, list(islice(numbers, len(window))), {})
        for i in range(len(window)):
            yield links(attended[i].scores()) if i in attended else []


def align_for_markup(
    engine: Engine, tokenizers: Tokenizers, pairs: Sequence[WordPair], groups: Sequence[Sequence[int]], known: Attention
) -> list[Matrix]:
    """Return the `word_scores` of each pair. A pair that cannot be aligned gets an empty matrix.

    `groups` has a number for each source word of each pair: words with the same number are between the same tags. If
    attention does not show which group a target word translates, the `dependence` of the pair is used, too. `known` are
    attention weights from a search.
    """
    attended = attended_pairs(engine, tokenizers, pairs, range(1, len(pairs) + 1), known)
    scores = {i: pair.scores() for i, pair in attended.items()}
    # Improve the scores of the pairs for which attention is unsure.
    unsure: dict[int, Matrix] = {}
    for i, matrix in scores.items():
        in_group = membership(groups[i])
        if n_unsure(matrix, in_group) > MAX_UNSURE:
            unsure[i] = in_group
    factors = dependence(engine, [attended[i] for i in unsure], list(unsure.values()))
    for i, factors_of_pair in zip(unsure, factors, strict=True):
        scores[i] = attended[i].scores_with(factors_of_pair)
    return [scores.get(i, EMPTY) for i in range(len(pairs))]


def shares_of_words(scores: Matrix) -> list[Shares]:
    """Return p(source word | target word) for each target word, given the result of `word_scores`.

    Values up to `MIN_SHARE` are left out.
    """
    shares = normalized(scores, 0).round(SHARE_DIGITS)
    large: list[Shares] = [{} for _ in range(shares.shape[1])]
    for s, t in np.argwhere(shares > MIN_SHARE).tolist():
        large[t][s] = float(shares[s, t])
    return large


def attended_pairs(
    engine: Engine,
    tokenizers: Tokenizers,
    pairs: Sequence[WordPair],
    numbers: Sequence[int],
    known: Attention,
) -> dict[int, AttendedPair]:
    """Return pairs with their attention weights, by the indices of the pairs.

    Pairs with a side that is blank or too long for the model are left out. A warning names the line of a pair that is
    too long, by its number in `numbers`. Weights that are not in `known` are computed. Raises InputError if the model
    has no attention.
    """
    # 1. Encode the pairs that can be aligned.
    limit = engine.max_length - 1
    attended: dict[int, AttendedPair] = {}
    for i, (source, target) in enumerate(pairs):
        if not source.spans or not target.spans:
            continue
        # Check the length first, because the matrix that `encoded_words` makes of a long text needs much memory.
        if not (fits(source, tokenizers.source, limit) and fits(target, tokenizers.target, limit)):
            message = "line %d is not aligned: a side has more than the %d pieces that the model takes"
            log.warning(message, numbers[i], limit)
            continue
        sides = encoded_words(source, tokenizers.source), encoded_words(target, tokenizers.target)
        source_tokens, target_tokens = [tuple(side.tokens) for side in sides]
        weights = known.get((source_tokens, target_tokens), EMPTY)
        attended[i] = AttendedPair(*sides, likeness(source, target), weights)
    # 2. Compute the missing weights. One call of the engine computes all of them.
    missing = [pair for pair in attended.values() if not pair.weights.size]
    sources = [pair.source.tokens for pair in missing]
    targets = [pair.target.tokens for pair in missing]
    for pair, weights in zip(missing, engine.attention(sources, targets), strict=True):
        pair.weights = weights
    return attended


def fits(side: WordText, tokenizer: Tokenizer, limit: int) -> bool:
    """Return whether a text has at most `limit` pieces."""
    # Without NFKC, a character has at most four pieces, so most texts need not be encoded.
    if 4 * len(side.text) < limit and not tokenizer.nfkc:
        return True
    text, _ = as_read(side.text, tokenizer)
    return len(tokenizer.encode(text)) <= limit


def membership(groups: Sequence[int]) -> Matrix:
    """Return a matrix (groups, words) with a 1 where a word belongs to a group, given the group of each word."""
    numbers = np.unique(groups)[:, None]
    return np.array(numbers == groups, np.float32)


def n_unsure(scores: Matrix, in_group: Matrix) -> float:
    """Return the expected number of target words that do not translate their most probable group of source words.

    Args:
        scores: the `word_scores` of a pair, (source words, target words).
        in_group: the `membership` of the source words, (groups, source words).
    """
    p = in_group @ normalized(scores, 0)  # p(group | target word)
    return float(p.sum() - p.max(0).sum())


def dependence(engine: Engine, pairs: Sequence[AttendedPair], in_groups: Sequence[Matrix]) -> Iterator[Matrix]:
    """Yield a matrix (source words, T) for each pair: how much each target token depends on the group of each word.

    This is the negative log-probability of the target token after the words of the group have been deleted from the
    source, divided by its sum over all groups (compare Li et al. 2019, "On the word alignment from neural machine
    translation"). `in_groups` has the `membership` of the source words of each pair.
    """
    # 1. For each pair and each group, score the target given the source without the words of the group.
    sources, targets = [], []
    for pair, in_group in zip(pairs, in_groups, strict=True):
        for share_of_group in in_group @ pair.source.shares.T:
            sources.append(list(compress(pair.source.tokens, share_of_group == 0)))
            targets.append(pair.target.tokens)
    scores = engine.score(sources, targets)
    # 2. Compare the scores of each pair, without those of EOS.
    by_pair = grouped(scores, map(len, in_groups))
    for in_group, of_pair in zip(in_groups, by_pair, strict=True):
        log_probs = np.array(of_pair)[:, :-1]  # (groups, T)
        losses = normalized(np.clip(-log_probs, *LOSSES), 0)
        yield in_group.T @ losses


def word_scores(weights: Matrix, source: Matrix, target: Matrix, likeness: Matrix | float = 0.0) -> Matrix:
    """Return the product p(source word | target word) · p(target word | source word) for each pair of words.

    The product is computed from attention, and then `N_ROUNDS` times from itself and its `with_neighbors`.

    Args:
        weights: attention weights (T, S), from which both probabilities are computed.
        source, target: the `shares` of the encoded sides, (S, source words) and (T, target words).
        likeness: the similarity of the spellings of each pair of words, (source words, target words).
    Returns:
        the scores (source words, target words), between 0 and 1.
    """
    between = source.T @ (weights**EVENNESS).T @ target  # (source words, target words)
    scores = in_both_directions(between * (1 + ALIKE * likeness**2))
    for _ in range(N_ROUNDS):
        scores = in_both_directions(with_neighbors(scores))
    return scores


def in_both_directions(weights: Matrix) -> Matrix:
    """Return the product of the weights normalized over source words and the weights normalized over target words."""
    return normalized(weights, 0) * normalized(weights, 1)


def with_neighbors(scores: Matrix) -> Matrix:
    """Add to the score of each pair of words the scores of the two previous and of the two next words.

    Adjacent words usually have adjacent translations (compare Vogel et al. 1996, "HMM-based word alignment").
    """
    sums = scores.copy()
    sums[1:, 1:] += NEIGHBORS * scores[:-1, :-1]
    sums[:-1, :-1] += NEIGHBORS * scores[1:, 1:]
    return sums


def encoded_words(side: WordText, tokenizer: Tokenizer) -> EncodedWords:
    """Encode a text. Tokens of the punctuation around a word do not belong to the word."""
    text, _ = as_read(side.text, tokenizer)
    tokens, words_of_tokens = tokenizer.encode_words(text, side.bare_spans)
    shares = np.zeros((len(tokens), len(side.spans)), np.float32)
    # A token that overlaps several words belongs to each of them in equal shares.
    for t, overlapped in enumerate(words_of_tokens):
        for word in overlapped:
            shares[t, word] = 1 / len(overlapped)
    return EncodedWords(tokens, shares)


def normalized(weights: Matrix, axis: int) -> Matrix:
    """Return the weights divided by their sum over an axis. Where the sum is 0, the result is 0."""
    sums = np.maximum(weights.sum(axis, keepdims=True), LEAST)
    return np.asarray(weights / sums)


def links(matrix: Matrix) -> Links:
    """Return the links of a pair, given the scores of the pair in a matrix (source words, target words).

    Each target word is linked to its best source word, and each source word to its best target word.
    """
    if not matrix.size:
        return []
    best = np.minimum(matrix.max(0), matrix.max(1, keepdims=True))
    # Two words with the score 0 get no link.
    linked = np.argwhere((matrix >= best) & (matrix > 0))
    return [(s, t) for s, t in linked.tolist()]
