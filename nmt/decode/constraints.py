"""Terms that translations must contain: beam search with dynamic beam allocation (Post and Vilar 2018).

A hypothesis lacks the tokens of the terms that it does not have yet, less those of the longest term that it ends in the
middle of. Candidates that lack equally many tokens are a bank. The K beams take the best candidate of each bank, then
the second best of each, and so on; the bank that lacks least comes first.

EOS needs all terms, and a candidate is dropped if what it lacks, with EOS, exceeds the length limit. So each hypothesis
that ends has all terms. A term that is asked for n times must occur n times, without overlap.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nmt.text import EOS

if TYPE_CHECKING:
    from nmt.decode.search import Beams, Candidates

Terms = Sequence[Sequence[int]]  # the tokens of each term of a sentence


def n_lacking(terms: Counter[str], text: str) -> int:
    """The number of tokens that a hypothesis lacks; terms and hypotheses are texts with one character per token."""
    n = n_begun = 0
    for term, n_required in terms.items():
        *whole, rest = text.split(term, n_required)
        if len(whole) < n_required:
            n += (n_required - len(whole)) * len(term)
            n_begun = max(n_begun, *(k for k in range(len(term)) if rest.endswith(term[:k])))
    return n - n_begun


def allocate(
    candidates: "Candidates", log_probs: Tensor, live: "Beams", row: int, terms: Terms, limit: int, beam: int
) -> None:
    """Replace the candidates of a batch row, the best of all, by those that its beams take, in place.

    Besides them, each hypothesis is continued by its best token, and by each token after which it lacks less.
    `log_probs` (B, K, V) are those of the next tokens of `live`; those of EOS before all terms become -inf.
    """
    needed = Counter("".join(map(chr, term)) for term in terms)
    texts = ["".join(map(chr, hypothesis)) for hypothesis in live.tokens[row].tolist()]
    lacking = [n_lacking(needed, text) for text in texts]
    log_probs[row, [k for k, n in enumerate(lacking) if n], EOS] = -math.inf
    more = [*enumerate(log_probs[row].argmax(-1).tolist())]
    for token in {*"".join(needed)}:
        more += [(k, ord(token)) for k, text in enumerate(texts) if n_lacking(needed, text + token) < lacking[k]]
    beams, tokens = torch.tensor(more, device=log_probs.device).T
    added = log_probs[row, beams, tokens]
    new = live.log_prob[row, beams] + added, beams, tokens, added
    joined = [torch.cat([old[row], one]) for old, one in zip(candidates, new, strict=True)]

    sums, *ids = (x.tolist() for x in joined[:3])
    distinct = {key: i for i, key in enumerate(zip(*ids, strict=True)) if sums[i] > -math.inf}
    turns, sizes = [], Counter[int]()
    for (parent, token), i in sorted(distinct.items(), key=lambda item: -sums[item[1]]):
        n = n_lacking(needed, texts[parent] + chr(token))
        if n == 0 if token == EOS else len(texts[parent]) + 1 + n < limit:
            turns.append((sizes[n], n, i, token != EOS))
            sizes[n] += 1
    turns.sort()
    n_live = accumulate(goes_on for *_, goes_on in turns)  # that go on, of this turn and those before it
    chosen = [i for (_, _, i, _), n in zip(turns, n_live, strict=True) if n <= beam]
    for field, values in zip(candidates, joined, strict=True):
        field[row, : len(chosen)] = values[chosen]
    candidates.log_prob[row, len(chosen) :] = -math.inf
