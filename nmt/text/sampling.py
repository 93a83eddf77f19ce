"""Segmentations drawn at random: subword regularisation (Kudo 2018), and BPE-dropout (Provilkov et al. 2020).

SentencePiece draws them too, but salts its generator anew in every process, whatever the seed: a run that went on
would go another way. Here the draws are a function of the seed. Pieces do not cross white space, so that words,
which repeat, are looked at one by one.
"""

import math
import re
from array import array
from bisect import bisect
from itertools import accumulate, pairwise
from random import Random
from typing import NamedTuple

import sentencepiece

from nmt.text import UNK

SPACE = "\u2581"
WORD = re.compile(f"{SPACE}[^{SPACE}]*|[^{SPACE}]+")
MAX_CACHED = 2_000_000  # characters of words whose options are kept: some 80 MB
ENTRY = 10  # what a word costs beside its characters, in characters
UNKNOWN_PENALTY = 10.0  # below the worst piece, as in SentencePiece


class Options(NamedTuple):
    """The pieces that a word can be cut into, by their ends; arrays, which take a sixth of the memory of lists.

    Attributes:
        first: for each end, the first of its pieces in the arrays below; then their number.
        starts: where each piece starts.
        cumulative: sums of the weights of the pieces with the same end.
    """

    first: "array[int]"
    starts: "array[int]"
    cumulative: "array[float]"


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
        self.cache: dict[tuple[str, float], Options] = {}
        self.n_cached = 0  # of `MAX_CACHED`

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
        return [i for n, i in enumerate(ids) if i != UNK or n == 0 or ids[n - 1] != UNK]  # unknowns running are one

    def _spelt(self, piece: str) -> list[int]:
        known = self.ids.get(piece)
        return [known] if known is not None else [self.bytes[byte] for byte in piece.encode()]

    def _cut_unigram(self, word: str, alpha: float, random: Random) -> list[str]:
        """Drawn from its last piece to its first, each by the weight of all that may stand before it."""
        first, starts, cumulative = self._options(word, alpha)
        pieces, end = [], len(word)
        while end:
            low, high = first[end - 1], first[end]
            drawn = bisect(cumulative, random.random() * cumulative[high - 1], low, high)
            start = starts[min(drawn, high - 1)]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _options(self, word: str, alpha: float) -> Options:
        """From the cache, which is emptied when it is full: a line without spaces is one long word."""
        found = self.cache.get((word, alpha))
        if found is None:
            self.n_cached += len(word) + ENTRY
            if self.n_cached > MAX_CACHED:
                self.cache.clear()
                self.n_cached = len(word) + ENTRY
            found = self.cache[word, alpha] = self._options_of(word, alpha)
        return found

    def _options_of(self, word: str, alpha: float) -> Options:
        sums, options = [0.0], Options(array("I", [0]), array("I"), array("d"))
        # sums: log of the weight of all segmentations up to each place
        for end in range(1, len(word) + 1):
            starts, weights = [], []
            for start in range(max(0, end - self.longest), end):
                score = self.scores.get(word[start:end], self.unknown if start == end - 1 else None)
                if score is not None:
                    starts.append(start)
                    weights.append(sums[start] + alpha * score)
            most = max(weights)
            options.cumulative.extend(accumulate(math.exp(weight - most) for weight in weights))
            options.starts.extend(starts)
            options.first.append(len(options.starts))
            sums.append(most + math.log(options.cumulative[-1]))
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
