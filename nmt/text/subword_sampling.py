"""Random segmentations: subword regularization (Kudo 2018) and BPE-dropout (Provilkov et al. 2020).

Resumed runs must sample the same segmentations. SentencePiece's own sampling is faster, but one seed gives others in
each process (version 0.2.3). Pieces do not cross spaces. Therefore each word is segmented by itself, and its possible
pieces and their weights are cached.
"""

import math
import re
from array import array
from bisect import bisect
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from random import Random

import sentencepiece

from nmt.text import UNK

SPACE = "\u2581"
WORD = re.compile(f"{SPACE}[^{SPACE}]*|[^{SPACE}]+")
MAX_CACHED = 32_768  # words, which take about 40 bytes per character
MAX_CACHED_LENGTH = 50  # characters: a line without spaces is one long word
UNKNOWN_PENALTY = 10.0  # an unknown character scores this much less than any piece, as in SentencePiece

# (first, starts, cumulative), all possible pieces of a word. Those that end after character i have the indices
# first[i]:first[i + 1]. Piece n starts at character starts[n]; cumulative[n] sums the weights of pieces up to n that
# have the same end. Arrays need a sixth of the memory of lists.
Options = tuple["array[int]", "array[int]", "array[float]"]


def word_pattern(symbols: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that matches these symbols, and the words between them; a word includes the space before it."""
    if not symbols:
        return WORD
    symbol = "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))
    other = f"(?:(?!{symbol})[^{SPACE}])"
    return re.compile(f"{symbol}|{SPACE}{other}*|{other}+")


class SubwordSampler:
    """Samples segmentations of one SentencePiece model, unigram or BPE."""

    def __init__(
        self, processor: sentencepiece.SentencePieceProcessor, number: Callable[[str], int] | None = None
    ) -> None:
        """`number` returns the token id of a piece; None: the model's own ids."""
        number = number or processor.piece_to_id
        not_text = (processor.is_control, processor.is_unknown, processor.is_byte, processor.is_unused)
        ids = [i for i in range(processor.get_piece_size()) if not any(is_kind(i) for is_kind in not_text)]
        self.ids: dict[str, int] = {piece: number(piece) for piece in map(processor.id_to_piece, ids)}
        self.scores: dict[str, float] = {processor.id_to_piece(i): processor.get_score(i) for i in ids}
        self.max_piece_length = max(map(len, self.ids), default=1)
        self.unknown_score = min(self.scores.values(), default=0.0) - UNKNOWN_PENALTY
        self.byte_ids = [number(f"<0x{byte:02X}>") for byte in range(256)]
        # User-defined symbols have score 0. BPE's first merge has -0, and log-probabilities are below 0.
        symbols = [piece for piece, score in self.scores.items() if score == 0 and math.copysign(1, score) > 0]
        self.symbols = frozenset(symbols)
        self.word = word_pattern(symbols)
        self.is_bpe = all(score == int(score) for score in self.scores.values())  # BPE scores are ranks
        self.cached_options = lru_cache(MAX_CACHED)(self.options)

    def sample(self, text: str, alpha: float, random: Random) -> list[int]:
        """Token ids of a random segmentation of normalized text, which has U+2581 for spaces.

        Unigram: alpha is a factor of the log-probabilities. BPE: alpha is the probability that a merge is skipped.
        """
        segment = self._segment_bpe if self.is_bpe else self._segment_unigram
        pieces: list[str] = []
        for word in self.word.findall(text):
            pieces += [word] if word in self.symbols else segment(word, alpha, random)
        ids: list[int] = []
        for piece in pieces:
            ids += [self.ids[piece]] if piece in self.ids else [self.byte_ids[byte] for byte in piece.encode()]
        return [i for n, i in enumerate(ids) if i != UNK or n == 0 or ids[n - 1] != UNK]  # merge consecutive unknowns

    def _segment_unigram(self, word: str, alpha: float, random: Random) -> list[str]:
        """Sample the last piece first. A piece's weight is that of all segmentations of word[:end] that end with it."""
        options = self.cached_options if len(word) <= MAX_CACHED_LENGTH else self.options
        first, starts, cumulative = options(word, alpha)
        pieces, end = [], len(word)
        while end:
            low, high = first[end - 1], first[end]
            sampled = bisect(cumulative, random.random() * cumulative[high - 1], low, high)
            start = starts[min(sampled, high - 1)]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def options(self, word: str, alpha: float) -> Options:
        """Forward pass: `log_sums[i]` is the log of the total weight of all segmentations of word[:i]."""
        log_sums, first, starts, cumulative = [0.0], array("I", [0]), array("I"), array("d")
        for end in range(1, len(word) + 1):
            weights = []
            for start in range(max(0, end - self.max_piece_length), end):
                score = self.scores.get(word[start:end], self.unknown_score if start == end - 1 else None)
                if score is not None:
                    starts.append(start)
                    weights.append(log_sums[start] + alpha * score)
            largest = max(weights)
            cumulative.extend(accumulate(math.exp(weight - largest) for weight in weights))
            first.append(len(starts))
            log_sums.append(largest + math.log(cumulative[-1]))
        return first, starts, cumulative

    def _segment_bpe(self, word: str, alpha: float, random: Random) -> list[str]:
        """Merge the best pair (the first of equals) until none is left; each pair is skipped with probability alpha."""
        pieces = list(word)
        while True:
            merged = [a + b for a, b in pairwise(pieces)]
            found = [n for n, piece in enumerate(merged) if piece in self.scores and random.random() >= alpha]
            if not found:
                return pieces
            best = max(found, key=lambda n: self.scores[merged[n]])
            pieces[best : best + 2] = [merged[best]]
