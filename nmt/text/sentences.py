"""Splitting a text into sentences, and the abbreviations that a training text shows."""

import math
from collections import Counter
from collections.abc import Collection, Iterable

import regex

from nmt.text.spans import Span
from nmt.text.words import CONTINUATION, SENTENCE_END

END = regex.compile(SENTENCE_END)
CONTINUES = regex.compile(CONTINUATION)
CLUSTER = regex.compile(r"\X")
WORD_BEFORE_SPACE = regex.compile(r"(?<!\S)([\w.]*\w)(\.?)(?=\s)")
# Abbreviations with at least two letters. A single letter before a full stop always counts as an abbreviation. CLDR's
# lists are not used: on the news of 28 languages they give a lower F1 than no list, because they match parts of words.
_ABBREVIATIONS = """
Abb al Bd bzw ca Capt cf Co Col Corp Dr ed eg evtl ff Fig Fr Gen ggf Hr ie inkl Inc Jr Kl Lt Ltd Mr Mrs Ms Mt Nr op pp
Prof Rev Sen Sgt Sr St Str usw vgl Vol vs
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
# Minimum number of digits in a number that can end a sentence. Shorter numbers are mostly ordinals, as in "3. Oktober".
LEAST_DIGITS = 3
# Languages that end sentences with a character that has another use elsewhere: the Greek question mark, and the
# Armenian full stop if it is typed as a colon. Such a character is read as the mark on the right.
MARKS = {"el": (";", "?"), "hy": (":", "։")}


def sentence_spans(text: str, language: str = "", abbreviations: Collection[str] = ()) -> list[Span]:
    """Return the span of each sentence of a text, without the white space between sentences.

    A text without a sentence end is one sentence. A punctuation mark before a word in lower case does not end a
    sentence, because such a mark mostly belongs to an abbreviation.

    Args:
        language: a code such as de, or "" if unknown.
        abbreviations: words that have a full stop within sentences, in addition to `ABBREVIATIONS`.
    """
    marked = text.replace(*MARKS[language]) if language in MARKS else text
    spans = []
    start = 0
    for match in END.finditer(marked):
        if ends_sentence(match, abbreviations):
            space = "no_space" if match["space"] is None else "space"
            spans.append((start, match.start(space)))
            start = match.end(space)
    spans.append((start, len(text)))
    return spans


def ends_sentence(match: regex.Match[str], abbreviations: Collection[str]) -> bool:
    """Return whether a match of `SENTENCE_END` ends a sentence."""
    if match["space"] is None:
        return not (match["quotes"] and CONTINUES.match(match.string, match.end()))
    if match["next"].islower():
        return False
    word = match["word"]
    if match["mark"] != "." or not word:
        return True
    if word.isdecimal():
        return len(word) >= LEAST_DIGITS
    is_letter = CLUSTER.fullmatch(word) is not None
    return not is_letter and word not in ABBREVIATIONS and word not in abbreviations
