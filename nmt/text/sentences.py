"""Splitting a text into sentences, and the abbreviations that a training text shows."""

import math
from collections import Counter
from collections.abc import Collection, Iterable

import regex

from nmt.text.spans import Span
from nmt.text.words import CJK_CLOSED, CJK_END, CJK_START, CONTINUATION, RIGHT_TO_LEFT_LETTER, SENTENCE_END

END = regex.compile(SENTENCE_END)
IN_CJK, FROM_CJK = regex.compile(CJK_END), regex.compile(CJK_START)
CLOSED = regex.compile(CJK_CLOSED)
MAX_MARKS = 20  # maximum number of punctuation marks at the end of a sentence, for `join_sentences`
RIGHT_TO_LEFT = regex.compile(RIGHT_TO_LEFT_LETTER)
CONTINUES = regex.compile(CONTINUATION)
# The word at the end of a text, with the full stops, apostrophes and Hebrew quotation marks inside of it.
LAST_WORD = regex.compile(r"\w+(?:['’.\"״]\w+)*\Z")
# A single letter at the end of a word, as in "A", "U.S" and "d'A", but not in the Ukrainian "сім'ю".
LAST_LETTER = regex.compile(r"(?:^|\.|['’](?=\p{Lu}))\X\Z")
DEGREES = ("°", "º")
MAX_ABBREVIATION = 30  # maximum length of an abbreviation, in characters
# A word that is not the last of its line, and its full stop; and the last word of a line.
INNER_WORD = regex.compile(r"(?<!\S)[^\w\s]*([^\W\d](?:[^\W\d]|\.)*?)(\.?)[^\w\s.]*(?=\s)")
FINAL_WORD = regex.compile(r"(?<!\S)([^\W\d](?:[^\W\d]|\.)*?)\W*\Z")
# Abbreviations with at least two letters. A single letter before a full stop always counts as an abbreviation. CLDR's
# lists are not used: on the news of 28 languages they give a lower F1 than no list, because they match parts of words.
_ABBREVIATIONS = """
Abb al Bd bzw ca Capt cf Co Col Corp Dr dr ed eg evtl ff Fig Fr Gen ggf Hr ie inkl Inc Jr Kl Lt Ltd Mr Mrs Ms Mt Nr op
pp Prof Rev Sen Sgt Sr St Str usw vgl Vol vs
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
# Minimum number of digits in a number that can end a sentence. Shorter numbers are mostly ordinals, as in "3. Oktober".
LEAST_DIGITS = 3
# A word of the training text is an abbreviation if its evidence (see `learn_abbreviations`) is greater than this.
MIN_EVIDENCE = 0.3
STOP_RATE = 0.99  # share of the occurrences of an abbreviation that have a full stop


def sentence_spans(text: str, abbreviations: Collection[str] = ()) -> list[Span]:
    """Return the span of each sentence of a text, without the white space between sentences.

    A text without a sentence end is one sentence. A punctuation mark before a word in lower case does not end a
    sentence, because such a mark mostly belongs to an abbreviation. `abbreviations` are words that have a full stop
    within sentences, in addition to `ABBREVIATIONS`.
    """
    spans = []
    start = 0
    for match in END.finditer(text):
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
    # The title case of a letter is the letter itself in scripts without capitals.
    if match["next"] != match["next"].title():
        return False
    if match["mark"] != ".":
        return True
    before = LAST_WORD.search(match.string, max(match.start() - MAX_ABBREVIATION, 0), match.start())
    if not before:
        return True
    word = before[0]
    if word.isdecimal():
        # Hebrew and Arabic ordinals have no full stop. But a number at the start of a text is a label.
        is_right_to_left = RIGHT_TO_LEFT.match(match["next"]) is not None
        return len(word) >= LEAST_DIGITS or (is_right_to_left and before.start() > 0)
    # A unit such as °C is no abbreviation.
    sign = match.string[max(before.start() - 2, 0) : before.start()].strip()
    if LAST_LETTER.search(word) and not sign.endswith(DEGREES):
        return False
    if word.isupper():  # MR. and PROF. in a headline
        word = word.capitalize()
    return word not in ABBREVIATIONS and word not in abbreviations


def join_sentences(sentences: Iterable[str]) -> str:
    """Join sentences to a text, with a space between two sentences unless they are Chinese or Japanese."""
    text = ""
    for sentence in sentences:
        first = max(len(text) - MAX_MARKS, 0)
        is_unspaced = CLOSED.search(text, first) or (IN_CJK.search(text, first) and FROM_CJK.match(sentence))
        if text and sentence and not is_unspaced:
            text += " "
        text += sentence
    return text


def learn_abbreviations(lines: Iterable[str]) -> list[str]:
    """Return the words that mostly have a full stop inside of the lines of a training text, sorted.

    This is the first stage of Punkt (Kiss & Strunk 2006, "Unsupervised multilingual sentence boundary detection"): the
    evidence for a word is the log-likelihood ratio of "nearly always has a full stop" and "has a full stop as often as
    other words", times factors for short words, inner full stops and few occurrences without a full stop. A word that
    ends lines more often than it has a full stop inside of lines is no abbreviation.
    """
    with_stop, without_stop, at_end = Counter[str](), Counter[str](), Counter[str]()
    for line in lines:
        for word, stop in INNER_WORD.findall(line):
            counts = with_stop if stop else without_stop
            counts[word] += 1
        at_end.update(FINAL_WORD.findall(line))
    n_words = with_stop.total() + without_stop.total()
    rate = with_stop.total() / max(n_words, 1)
    rate = min(rate, STOP_RATE)  # even if every word has a full stop
    abbreviations = []
    for word, n_stops in with_stop.items():
        n_bare = without_stop[word]
        ratio = 2 * (n_stops * math.log(STOP_RATE / rate) + n_bare * math.log((1 - STOP_RATE) / (1 - rate)))
        n_letters = len(word.replace(".", ""))
        n_inner_stops = word.count(".") + 1
        evidence = ratio * math.exp(-n_letters) * n_inner_stops * n_letters**-n_bare
        if evidence > MIN_EVIDENCE and n_stops > at_end[word]:
            abbreviations.append(word)
    return sorted(abbreviations)
