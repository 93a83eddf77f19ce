"""Terms that translations must contain: beam search with dynamic beam allocation (Post and Vilar 2018).

A hypothesis lacks the tokens of the terms that it does not have yet, less those of a term that it ends in the middle of
(the longest, if there are several). Candidates that lack equally many tokens are a bank. Besides the best candidates of
all, each hypothesis is continued by its best token, and by each token after which it lacks less. The K beams take the
best candidate of every bank in turn, beginning with the bank that lacks least, then the second best, and so on.

EOS needs all terms, and a candidate is dropped if what it lacks, with EOS, exceeds the length limit. So each hypothesis
that ends has all terms. A term that is asked for n times must occur n times, without overlap.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nmt.text import EOS

if TYPE_CHECKING:
    from nmt.decode.search import Beams, Candidates


def as_text(tokens: Sequence[int]) -> str:
    """One character per token: strings are searched fast."""
    return "".join(map(chr, tokens))


class Constraints:
    """The terms of the sentences of a batch; `limits` are their maximum lengths."""

    def __init__(self, terms: Sequence[Sequence[Sequence[int]]], limits: Sequence[int], beam: int) -> None:
        self.terms = [Counter(map(as_text, of_sentence)) for of_sentence in terms]
        self.limits, self.beam = limits, beam

    def n_lacking(self, sentence: int, text: str) -> int:
        """The number of tokens that a hypothesis lacks."""
        n_lacking = n_begun = 0
        for term, n in self.terms[sentence].items():
            *whole, rest = text.split(term, n)
            if len(whole) < n:
                n_lacking += (n - len(whole)) * len(term)
                n_begun = max(n_begun, *(k for k in range(len(term)) if rest.endswith(term[:k])))
        return n_lacking - n_begun

    def allocate(self, candidates: "Candidates", log_probs: Tensor, live: "Beams", sentences: Sequence[int]) -> None:
        """Replace the candidates (B, C) of sentences with terms by those that the beams take, in place.

        `log_probs` (B, K, V) are those of the next tokens of `live`; those of EOS before all terms become -inf.
        """
        for row, sentence in enumerate(sentences):
            if not self.terms[sentence]:
                continue
            texts = [as_text(tokens) for tokens in live.tokens[row].tolist()]
            lacking = [self.n_lacking(sentence, text) for text in texts]
            log_probs[row, [k for k, n in enumerate(lacking) if n], EOS] = -math.inf
            more = list(enumerate(log_probs[row].argmax(-1).tolist()))
            for token in {ord(token) for term in self.terms[sentence] for token in term}:
                after = (self.n_lacking(sentence, text + chr(token)) for text in texts)
                more += [(k, token) for k, n in enumerate(after) if n < lacking[k]]
            beams, tokens = torch.tensor(more, device=log_probs.device).T
            added = log_probs[row, beams, tokens]
            new = live.log_prob[row, beams] + added, beams, tokens, added
            joined = [torch.cat([old[row], one]) for old, one in zip(candidates, new, strict=True)]
            chosen = self._chosen(sentence, texts, *(x.tolist() for x in joined[:3]))
            for field, one in zip(candidates, joined, strict=True):
                field[row, : len(chosen)] = one[chosen]
            candidates.log_prob[row, len(chosen) :] = -math.inf

    def _chosen(
        self, sentence: int, texts: Sequence[str], log_probs: list[float], parents: list[int], tokens: list[int]
    ) -> list[int]:
        """Return the indices of the candidates for K beams, and of those that end among the first K, in order."""
        banks: dict[int, list[int]] = defaultdict(list)
        distinct = {(parents[i], tokens[i]): i for i in range(len(tokens)) if log_probs[i] > -math.inf}
        for (parent, token), i in sorted(distinct.items(), key=lambda item: -log_probs[item[1]]):
            n = self.n_lacking(sentence, texts[parent] + chr(token))
            if n == 0 if token == EOS else len(texts[parent]) + 1 + n < self.limits[sentence]:
                banks[n].append(i)
        in_turn = sorted((rank, n, i) for n, bank in banks.items() for rank, i in enumerate(bank))
        ended = [i for _, _, i in in_turn[: self.beam] if tokens[i] == EOS]
        going_on = [i for _, _, i in in_turn if tokens[i] != EOS][: self.beam]
        kept = {*ended, *going_on}
        return [i for _, _, i in in_turn if i in kept]
