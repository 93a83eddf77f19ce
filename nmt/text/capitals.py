"""Headlines: lines in CAPITALS or in Title Case, which models have rarely read, are translated in sentence case.

    EIN MANN IM SCHNEE  ->  Ein Mann im Schnee  ->  A man in the snow  ->  A MAN IN THE SNOW

Each word gets the case in which it has the fewest pieces, its usual one (compare Lita et al. 2003, "tRuEcasIng"): so
names and German nouns keep their capitals. Scripts without case, and models that know only one, are left alone.
"""

import re
from collections.abc import Callable
from string import capwords

from nmt.text.characters import NO_PIECE
from nmt.text.tokenizer import Tokenizer
from nmt.text.words import CASED_WORD, SENTENCE_START

CAPITALS = 0.9  # least share of the letters of a line in capitals
EVIDENCE = 3  # a title has at least so many words whose usual case is lower case
SHORT_IN_TITLE = 3  # words of at most so many letters may be in lower case in a title
HEADLINE_WORD = re.compile(CASED_WORD)
BEFORE_SENTENCE = re.compile(SENTENCE_START)

Style = Callable[[str], str]  # from a translation to the same in the case of its source


def as_read(source: str, tokenizer: Tokenizer) -> tuple[str, Style]:
    """Return a text as a model should read it, of the same length, and a function that styles its translation."""
    text, style = in_sentence_case(source, tokenizer)
    return tokenizer.with_known_characters(text), style


def in_sentence_case(source: str, tokenizer: Tokenizer) -> tuple[str, Style]:
    """Return a headline in sentence case, and a function that styles its translation like the headline.

    Another text is returned as it is, and its translation stays as it is.
    """
    tag, text = tokenizer.split_tag(source)
    n_lower = 0  # letters of longer words in lower case
    for word in text.split():
        if len(word) > SHORT_IN_TITLE and word.islower() and word.isalpha():
            n_lower += len(word)
    if n_lower > (1 - CAPITALS) * len(text):  # a fast check that rules out most texts
        return source, str
    # In capitals: several words, with few other letters.
    words = HEADLINE_WORD.findall(text)
    letters = [character for character in text if character.isalpha()]
    n_capitals = sum(map(str.isupper, letters))
    if len(words) > 1 and n_capitals >= CAPITALS * len(letters):
        return tag + recased(text, tokenizer), str.upper
    if is_title(words, tokenizer):
        return tag + recased(text, tokenizer, title=True), in_title_case
    return source, str


def is_title(words: list[str], tokenizer: Tokenizer) -> bool:
    """Return whether the words of a text are in Title Case, although several are usually in lower case."""
    long_words = [word for word in words if len(word) > SHORT_IN_TITLE]
    if not words or any(word[0].islower() for word in long_words):
        return False
    # German nouns are always in capitals, so only words that are usually in lower case are evidence.
    evidence = 1 if all(word[0].isupper() for word in words) else 0
    for word in words[1:]:
        if not word[1:].islower():
            continue
        if n_pieces(word.lower(), tokenizer) == 1 < n_pieces(word, tokenizer):
            evidence += 1
    return evidence >= EVIDENCE


def n_pieces(word: str, tokenizer: Tokenizer) -> int:
    """Return the number of pieces of a word, beyond that of its letters if one of them has no piece."""
    pieces = tokenizer.pieces(tokenizer.encode_untagged(word))
    if any(NO_PIECE.fullmatch(piece) for piece in pieces):
        return len(pieces) + len(word)
    return len(pieces)


def recased(text: str, tokenizer: Tokenizer, *, title: bool = False) -> str:
    """Return a headline with each word in its usual case; words of a title that are in capitals stay so."""

    def usual(match: re.Match[str]) -> str:
        word = match[0]
        is_acronym = title and len(word) > 1 and word.isupper()
        lower = word.replace("İ", "i").lower()
        capitalized = capwords(lower, "-")
        # Some letters become two in another case; positions must stay.
        is_longer = len(lower) != len(word) or len(capitalized) != len(word)
        if is_acronym or is_longer:
            return word
        n_lower, n_capitalized = n_pieces(lower, tokenizer), n_pieces(capitalized, tokenizer)
        is_first = BEFORE_SENTENCE.search(text, max(match.start() - 10, 0), match.start())
        if is_first and n_capitalized <= n_lower + 1:  # else the model knows no capitals
            return capitalized
        n_of_forms = {lower: n_lower, capitalized: n_capitalized, word: n_pieces(word, tokenizer)}
        return min(n_of_forms, key=lambda form: n_of_forms[form])

    return HEADLINE_WORD.sub(usual, text)


def in_title_case(text: str) -> str:
    """Return the text with a capital at the beginning of each word."""

    def capitalized(match: re.Match[str]) -> str:
        word = match[0]
        return word[0].upper() + word[1:]

    return HEADLINE_WORD.sub(capitalized, text)
