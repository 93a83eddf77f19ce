"""Where the sentences of a text begin and end."""

import re

from nmt.text.spans import Span
from nmt.text.words import SENTENCE_END

PATTERN = re.compile(SENTENCE_END)
# Abbreviations of two letters and more; a single letter is always one.
_ABBREVIATIONS = """
Abb al Bd bzw ca Capt cf Co Col Corp Dr ed eg evtl ff Fig Fr Gen ggf Hr ie inkl Inc Jr Kl Lt Ltd Mr Mrs Ms Mt Nr op pp
Prof Rev Sen Sgt Sr St Str usw vgl Vol vs
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
LEAST_DIGITS = 3  # of a number that a full stop may follow; most shorter ones are ordinals, as in "3. Oktober"


def sentence_spans(text: str) -> list[Span]:
    """Return the span of each sentence of a text, without the white space between them.

    A text without a sentence end is one sentence. No sentence begins with a lower-case letter: there, the mark belongs
    to an abbreviation.
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
