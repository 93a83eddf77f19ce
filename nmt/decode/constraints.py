"""Terms that a translation must contain: beam search with dynamic beam allocation (Post and Vilar 2018).

A hypothesis lacks the tokens of the terms that it does not contain yet. If it ends with the first k tokens of such a
term, it lacks k tokens fewer.

Candidates that lack the same number of tokens form a bank. The K beams take the best candidate of each bank, then the
second-best candidate of each bank, and so on. In each turn, the bank that lacks the fewest tokens comes first. A
candidate is dropped if the length limit leaves no room for the tokens that it lacks. EOS is allowed only if no token is
lacking.

The occurrences of a term must not overlap. Each must end at the end of a word.
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
    """The terms of one sentence. A term that is required n times is listed n times.

    `inside_words` are the tokens that continue a word. Hypotheses and terms are strings with one character per token
    id, so that Python's string methods can find terms.
    """

    def __init__(self, terms: Sequence[Sequence[int]] = (), inside_words: Collection[int] = ()) -> None:
        self.terms = Counter(as_string(term) for term in terms)
        self.inside_words = {chr(token) for token in inside_words}
        # A token that continues a word may follow a term only if another term needs the token there. The other term,
        # `following`, can contain `term`, overlap its end, or begin after it.
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
            # Count the tokens at the end of the hypothesis that are the beginning of the term.
            for k in range(len(term)):
                if parts[-1].endswith(term[:k]):
                    n_begun = max(n_begun, k)
        return n_missing - n_begun

    def useful_continuations(self, hypotheses: Sequence[str]) -> set[Continuation]:
        """Return the continuations that lack fewer tokens. A hypothesis that lacks no token gets EOS."""
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
        """Choose continuations by banks. Return their indices in the order of choice.

        Args:
            hypotheses: the live hypothesis of each beam.
            continuations: the candidates.
            log_probs: the log-probability of each candidate's whole hypothesis.
            limit: maximum number of tokens of a hypothesis, including EOS.
            n_beams: maximum number of continuations to take. Continuations by EOS are not counted.
        """
        # 1. Put the candidates into banks by their number of lacking tokens.
        # The most probable candidate of a bank comes first.
        banks: dict[int, list[int]] = defaultdict(list)
        for i in sorted(range(len(continuations)), key=lambda i: -log_probs[i]):
            beam, token = continuations[i]
            hypothesis = hypotheses[beam] + chr(token)
            n_lacking = self.n_lacking(hypothesis)
            fits = n_lacking == 0 if token == EOS else len(hypothesis) + n_lacking < limit
            if fits and log_probs[i] > -math.inf:
                banks[n_lacking].append(i)
        # 2. Take the best candidate of each bank, then the second-best candidate of each bank, and so on.
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
    """Convert token ids to a string with one character per token id."""
    return "".join(map(chr, token_ids))


NO_TERMS = Constraint()
