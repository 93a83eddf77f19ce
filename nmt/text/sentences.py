"""Where the sentences of a text begin and end."""

import re

from nmt.text.spans import Span
from nmt.text.words import SENTENCE_END

PATTERN = re.compile(SENTENCE_END)
# Abbreviations of three letters or more, and shorter ones that a sentence may begin with.
_ABBREVIATIONS = """
Abb Bd bzw Capt Col Corp Dr Fig Fr Gen Hr Inc Jr Lt Ltd Mr Mrs Ms Mt Nr Prof Rev Sen Sgt Sr St Str usw vgl Vol
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
LEAST_LETTERS = 3  # of a word that a full stop may follow; most shorter ones are abbreviations


def sentence_spans(text: str) -> list[Span]:
    """Return the span of each sentence of a text, without the white space between them.

    A text without a sentence end is one sentence. No sentence begins with a lower-case letter: there, the mark belongs
    to an abbreviation.
    """
    spans = []
    start = 0
    for match in PATTERN.finditer(text):
        space = "space" if match["mark"] else "no_space"
        if match["mark"] and not ends_sentence(match, start):
            continue
        spans.append((start, match.start(space)))
        start = match.end(space)
    spans.append((start, len(text)))
    return spans


def ends_sentence(match: re.Match[str], start: int) -> bool:
    """Return whether a match of `SENTENCE_END` ends the sentence that began at `start`."""
    word = match["word"] or ""
    if match["next"].islower():
        return False
    if match["mark"] != "." or not word:
        return True
    if word in ABBREVIATIONS:
        return False
    # "Ja." is a sentence; "z. B." and "J. Smith" are not.
    is_whole_sentence = match.start("word") == start and word.istitle() and len(word) == LEAST_LETTERS - 1
    return len(word) >= LEAST_LETTERS or is_whole_sentence
