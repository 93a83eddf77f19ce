"""The words of a text, and which words of two texts are spelled alike. Imports no torch."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmt.text.lines import UNSPACED_SCRIPTS, Span


@dataclass(frozen=True)
class WordText:
    text: str
    spans: list[Span]

    @classmethod
    def split(cls, text: str) -> "WordText":
        """Split at white space; in a text without spaces, each character of an unspaced script is a word."""
        pattern = r"\S+" if len(text.split()) > 1 else rf"[{UNSPACED_SCRIPTS}]|[^\s{UNSPACED_SCRIPTS}]+"
        return cls(text, [match.span() for match in re.finditer(pattern, text)])

    @property
    def words(self) -> list[str]:
        return [self.text[start:end] for start, end in self.spans]

    @property
    def bare_words(self) -> list[str]:
        return [self.text[slice(*bare_span(self.text, span))] for span in self.spans]


def indices_between(words: Sequence[Span], start: int, end: int) -> range:
    """Return the indices of the words within text[start:end]; `words` are sorted and do not overlap."""
    first = bisect_left(words, start, key=lambda word: word[0])
    return range(first, max(first, bisect_right(words, end, key=lambda word: word[1])))


def bare_span(text: str, span: Span) -> Span:
    """Return the span from the first to the last letter or digit of a word, including an apostrophe directly before it.

    A word without letters and digits keeps its span.
    """
    found = re.search(r"['’]?\w(.*\w)?", text[slice(*span)])
    return (span[0] + found.start(), span[0] + found.end()) if found else span


def likeness(source: WordText, target: WordText) -> NDArray[np.float32]:
    """Return how far the words of two texts are spelled alike, as names, numbers and cognates are: (words, words), 0-1.

    It is the Dice coefficient of their pairs of neighboring letters (compare Melamed 1999).
    """
    letters = [[f" {word.lower()} " for word in side.bare_words] for side in (source, target)]
    own, other = ([{*pairwise(word)} for word in words] for words in letters)
    return np.array([[2 * len(a & b) / (len(a) + len(b)) for b in other] for a in own], np.float32)
