"""Splitting a text into sentences."""

import re

from nmt.text.spans import Span
from nmt.text.words import SENTENCE_END

PATTERN = re.compile(SENTENCE_END)
# Abbreviations with at least two letters. A single letter before a full stop always counts as an abbreviation.
_ABBREVIATIONS = """
Abb al Bd bzw ca Capt cf Co Col Corp Dr ed eg evtl ff Fig Fr Gen ggf Hr ie inkl Inc Jr Kl Lt Ltd Mr Mrs Ms Mt Nr op pp
Prof Rev Sen Sgt Sr St Str usw vgl Vol vs
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
# Minimum number of digits in a number that can end a sentence. Shorter numbers are mostly ordinals, as in "3. Oktober".
LEAST_DIGITS = 3


def sentence_spans(text: str) -> list[Span]:
    """Return the span of each sentence of a text, without the white space between sentences.

    A text without a sentence end is one sentence. A punctuation mark before a word in lower case does not end a
    sentence, because such a mark mostly belongs to an abbreviation.
    """
    spans = []
    start = 0
    for match in PATTERN.finditer(text):
        space = "space" if match["mark"] else "no_space"
        if match["mark"] and not ends_sentence(match):
            continue
        spans.append((start, match.start(space)))
        start = match.end(space)
    spans.append((start, len(text)))
    return spans


def ends_sentence(match: re.Match[str]) -> bool:
    """Return whether a match of `SENTENCE_END` ends a sentence."""
    word = match["word"] or ""
    if match["next"].islower():
        return False
    if match["mark"] != "." or not word:
        return True
    if word.isdecimal():
        return len(word) >= LEAST_DIGITS
    return len(word) > 1 and word not in ABBREVIATIONS
