"""Terms that a translation must contain: beam search with dynamic beam allocation (Post and Vilar 2018).

A hypothesis lacks the tokens of its missing terms; if it ends with the first k tokens of one of them, it lacks k fewer.
Candidates that lack equally many tokens form a bank. The K beams take the best candidate of each bank, then the second
best of each, and so on, beginning with the bank that lacks least. A candidate is dropped if the tokens that it lacks,
and EOS, exceed the length limit; EOS requires that none is lacking. So every finished hypothesis has all terms.

A term that is asked for n times must occur n times, without overlap, and as a whole word: a token that continues a word
(`inside_words`) must not follow it, unless a term continues with it there.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import NamedTuple

from nmt.text import EOS


class Continuation(NamedTuple):
    """A hypothesis of a sentence with one more token."""

    beam: int
    token: int


class Constraint:
    """The terms of one sentence. Hypotheses and terms are strings with one character per token id.

    The string methods of Python then count and find terms.
    """

    def __init__(self, terms: Sequence[Sequence[int]] = (), inside_words: Collection[int] = ()) -> None:
        self.terms = Counter(as_string(term) for term in terms)
        self.inside_words = {chr(token) for token in inside_words}
        # Where one term may begin inside of another or directly after it, its tokens do not end the word.
        for term in self.terms:
            for following in self.terms:
                for k, token in enumerate(following):
                    if term.endswith(following[:k]) or following[:k].endswith(term):
                        self.inside_words.discard(token)

    def n_lacking(self, hypothesis: str = "") -> int:
        """Return the number of tokens that a hypothesis lacks."""
        n_missing = n_begun = 0
        for term, n_required in self.terms.items():
            parts = hypothesis.split(term)
            n_whole = sum(part[:1] not in self.inside_words for part in parts[1:])
            if n_whole >= n_required:
                continue
            n_missing += (n_required - n_whole) * len(term)
            # The hypothesis may end with the beginning of the term.
            for k in range(len(term)):
                if parts[-1].endswith(term[:k]):
                    n_begun = max(n_begun, k)
        return n_missing - n_begun

    def useful_continuations(self, hypotheses: Sequence[str]) -> set[Continuation]:
        """Return the continuations after which a hypothesis lacks less, or if it lacks nothing, by EOS."""
        continuations = set()
        tokens_of_terms = {*"".join(self.terms)}
        for beam, hypothesis in enumerate(hypotheses):
            n_lacking = self.n_lacking(hypothesis)
            if n_lacking == 0:
                continuations.add(Continuation(beam, EOS))
            for token in tokens_of_terms:
                if self.n_lacking(hypothesis + token) < n_lacking:
                    continuations.add(Continuation(beam, ord(token)))
        return continuations

    def by_banks(
        self,
        hypotheses: Sequence[str],
        continuations: Sequence[Continuation],
        log_probs: Sequence[float],
        limit: int,
        n_beams: int,
    ) -> list[int]:
        """Return the indices of the continuations that the beams take, in their order.

        Args:
            hypotheses: the live hypothesis of each beam.
            continuations: candidates, with the log-probability of each whole hypothesis in `log_probs`.
            limit: maximum number of tokens, EOS counted.
            n_beams: number of continuations to take; those that end in EOS are not counted.
        """
        # 1. Candidates that lack equally many tokens form a bank, the most probable first.
        banks: dict[int, list[int]] = defaultdict(list)
        for i in sorted(range(len(continuations)), key=lambda i: -log_probs[i]):
            beam, token = continuations[i]
            hypothesis = hypotheses[beam] + chr(token)
            n_lacking = self.n_lacking(hypothesis)
            fits = n_lacking == 0 if token == EOS else len(hypothesis) + n_lacking < limit
            if fits and log_probs[i] > -math.inf:
                banks[n_lacking].append(i)
        # 2. The best of each bank, then the second best of each, and so on.
        taken: list[int] = []
        n_live = 0
        for turn in zip_longest(*(banks[n_lacking] for n_lacking in sorted(banks))):
            for i in turn:
                if i is None:
                    continue
                n_live += continuations[i].token != EOS
                if n_live > n_beams:
                    return taken
                taken.append(i)
        return taken


def as_string(token_ids: Sequence[int]) -> str:
    """Return a string with one character per token id."""
    return "".join(map(chr, token_ids))


NO_TERMS = Constraint()
