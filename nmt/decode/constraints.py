"""Terms that a translation must contain: beam search with dynamic beam allocation (Post and Vilar 2018).

A hypothesis lacks the tokens of its missing terms; if it ends with the first k tokens of one of them, it lacks k fewer.
Candidates that lack equally many tokens form a bank. The K beams take the best candidate of each bank, then the second
best of each, and so on, beginning with the bank that lacks least. A candidate is dropped if the tokens that it lacks,
and EOS, exceed the length limit; EOS requires that none is lacking. So every finished hypothesis has all terms.

A term that is asked for n times must occur n times, without overlap, and as a whole word: a piece that goes on with a
word (`inside_words`) must not follow it, unless a term goes on with it there. Imports no torch.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING

from nmt.text import EOS

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.decode.search import Beams, Candidates


class Constraint:
    """The terms of one sentence, as texts with one character per token."""

    def __init__(self, terms: Sequence[Sequence[int]] = (), inside_words: Collection[int] = ()) -> None:
        self.terms = Counter("".join(map(chr, term)) for term in terms)
        pairs = [(a, b, k) for a in self.terms for b in self.terms for k in range(len(b))]
        parts_of_terms = {b[k] for a, b, k in pairs if a.endswith(b[:k]) or b[:k].endswith(a)}
        self.inside_words = {*map(chr, inside_words)} - parts_of_terms

    def n_lacking(self, text: str = "") -> int:
        """The number of tokens that a hypothesis lacks."""
        n = n_begun = 0
        for term, n_required in self.terms.items():
            parts = text.split(term)
            n_whole = sum(part[:1] not in self.inside_words for part in parts[1:])
            if n_whole < n_required:
                n += (n_required - n_whole) * len(term)
                n_begun = max(n_begun, *(k for k in range(len(term)) if parts[-1].endswith(term[:k])))
        return n - n_begun

    def choose(self, found: "Candidates", log_probs: "Tensor", live: "Beams", row: int, limit: int, beam: int) -> None:
        """Replace the candidates of a batch row, which are the best of all, by those that the beams take, in place.

        Each hypothesis is also continued by its best token, by tokens after which it lacks less, or if none, by EOS.
        """
        if not self.terms:
            return
        texts = ["".join(map(chr, tokens)) for tokens in live.tokens[row].tolist()]
        lacking = [*map(self.n_lacking, texts)]
        log_probs[row, [k for k, n in enumerate(lacking) if n], EOS] = -math.inf
        keys = {*zip(found.parent_beams[row].tolist(), found.tokens[row].tolist(), strict=True)}
        keys |= {*enumerate(log_probs[row].argmax(-1).tolist()), *((k, EOS) for k, n in enumerate(lacking) if not n)}
        for token in {*"".join(self.terms)}:
            keys |= {(k, ord(token)) for k, n in enumerate(lacking) if self.n_lacking(texts[k] + token) < n}
        pairs = sorted(keys)
        beams, tokens = live.tokens.new_tensor(pairs).T
        added = log_probs[row, beams, tokens]
        sums = live.log_prob[row, beams] + added

        banks: dict[int, list[int]] = defaultdict(list)
        for cost, i in sorted((-log_prob, i) for i, log_prob in enumerate(sums.tolist())):
            k, token = pairs[i]
            n = self.n_lacking(texts[k] + chr(token))
            if cost < math.inf and (n == 0 if token == EOS else len(texts[k]) + 1 + n < limit):
                banks[n].append(i)
        chosen = [i for turn in zip_longest(*(banks[n] for n in sorted(banks))) for i in turn if i is not None]
        n_live = accumulate(pairs[i][1] != EOS for i in chosen)
        chosen = [i for i, n in zip(chosen, n_live, strict=True) if n <= beam]
        for field, values in zip(found, (sums, beams, tokens, added), strict=True):
            field[row, : len(chosen)] = values[chosen]
        found.log_prob[row, len(chosen) :] = -math.inf


NO_TERMS = Constraint()
