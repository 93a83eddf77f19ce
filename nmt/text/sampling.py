"""Segmentations drawn at random: subword regularisation (Kudo 2018), and BPE-dropout (Provilkov et al. 2020).

SentencePiece draws them too, but salts its generator anew in every process, whatever the seed: a run that went on
would go another way. Here the draws are a function of the seed. Pieces do not cross white space, so that words,
which repeat, are looked at one by one.
"""

import functools
import math
import re
from bisect import bisect
from itertools import accumulate, pairwise
from random import Random

import sentencepiece

from nmt.text import UNK

SPACE = "\u2581"
WORD = re.compile(f"{SPACE}[^{SPACE}]*|[^{SPACE}]+")
CACHED_WORDS = 20_000
UNKNOWN_PENALTY = 10.0  # below the worst piece, as in SentencePiece

Options = list[tuple[list[float], list[int]]]  # for each end: cumulative weights of the starts, the starts


class Sampler:
    """What can be drawn from one SentencePiece model, unigram or BPE."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        no_text = (processor.is_control, processor.is_unknown, processor.is_byte, processor.is_unused)
        ids = [i for i in range(processor.get_piece_size()) if not any(is_so(i) for is_so in no_text)]
        self.ids: dict[str, int] = {processor.id_to_piece(i): i for i in ids}
        self.scores: dict[str, float] = {processor.id_to_piece(i): processor.get_score(i) for i in ids}
        self.longest = max(map(len, self.ids), default=1)
        self.unknown = min(self.scores.values(), default=0.0) - UNKNOWN_PENALTY
        self.bytes = [processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        self.is_bpe = all(score == int(score) for score in self.scores.values())  # ranks, not log-probabilities
        self._options = functools.lru_cache(CACHED_WORDS)(self._options_of)

    def draw(self, text: str, alpha: float, random: Random) -> list[int]:
        """Ids of one segmentation.

        Args:
            text: normalised, with U+2581 for spaces.
            alpha: of a unigram model, what its log-probabilities are multiplied with; of BPE, the share of merges
                that are left out.
            random: what decides.
        """
        cut = self._cut_bpe if self.is_bpe else self._cut_unigram
        ids = [i for word in WORD.findall(text) for piece in cut(word, alpha, random) for i in self._spelt(piece)]
        return [
            i for n, i in enumerate(ids) if i != UNK or n == 0 or ids[n - 1] != UNK
        ]  # unknowns running are one

    def _spelt(self, piece: str) -> list[int]:
        known = self.ids.get(piece)
        return [known] if known is not None else [self.bytes[byte] for byte in piece.encode()]

    def _cut_unigram(self, word: str, alpha: float, random: Random) -> list[str]:
        """Drawn from its last piece to its first, each by the weight of all that may stand before it."""
        options, pieces, end = self._options(word, alpha), [], len(word)
        while end:
            cumulative, starts = options[end - 1]
            start = starts[min(bisect(cumulative, random.random() * cumulative[-1]), len(starts) - 1)]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _options_of(self, word: str, alpha: float) -> Options:
        sums, options = [0.0], []  # log of the weight of all segmentations up to each place
        for end in range(1, len(word) + 1):
            starts, weights = [], []
            for start in range(max(0, end - self.longest), end):
                score = self.scores.get(word[start:end], self.unknown if start == end - 1 else None)
                if score is not None:
                    starts.append(start)
                    weights.append(sums[start] + alpha * score)
            most = max(weights)
            cumulative = list(accumulate(math.exp(weight - most) for weight in weights))
            sums.append(most + math.log(cumulative[-1]))
            options.append((cumulative, starts))
        return options

    def _cut_bpe(self, word: str, alpha: float, random: Random) -> list[str]:
        """Merge the best pair, the first of equals, until there is none; each is overlooked by chance."""
        pieces = list(word)
        while True:
            merged = [a + b for a, b in pairwise(pieces)]
            found = [n for n, piece in enumerate(merged) if piece in self.scores and random.random() >= alpha]
            if not found:
                return pieces
            best = max(found, key=lambda n: self.scores[merged[n]])
            pieces[best : best + 2] = [merged[best]]
