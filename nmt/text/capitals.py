"""Headlines: lines in CAPITALS or in Title Case, which models have rarely read, are translated in sentence case.

    EIN MANN IM SCHNEE  ->  Ein Mann im Schnee  ->  A man in the snow  ->  A MAN IN THE SNOW

Each word gets the case in which it has the fewest pieces, its usual one (compare Lita et al. 2003, "tRuEcasIng"): so
names and German nouns keep their capitals. Scripts without case, and models that know only one, are left alone.
"""

import re
from collections.abc import Callable
from string import capwords

from nmt.text.tokenizer import NO_PIECE, Tokenizer

CAPITALS = 0.9  # least share of the letters of a line in capitals
EVIDENCE = 3  # a title has at least so many words whose usual case is lower case
SHORT = 3  # words of at most so many letters may be in lower case in a title
WORD = re.compile(r"(?<![\w'’])[^\W\d_](?:[\w'’-]*[^\W_])?")
FIRST = re.compile(r"(?:^|[.!?…]\s)[^\w.!?…]*\Z")


def as_read(source: str, tokenizer: Tokenizer) -> tuple[str, Callable[[str], str]]:
    """Return a text as a model should read it, of the same length, and a function that styles its translation."""
    text, style = in_sentence_case(source, tokenizer)
    return tokenizer.with_known_characters(text), style


def in_sentence_case(source: str, tokenizer: Tokenizer) -> tuple[str, Callable[[str], str]]:
    """Return a headline in sentence case, and a function that styles its translation like the headline.

    Another text is returned as it is, and its translation stays as it is.
    """
    tag, text = tokenizer.split_tag(source)
    lower = (word for word in text.split() if len(word) > SHORT and word.islower() and word.isalpha())
    if sum(map(len, lower)) > (1 - CAPITALS) * len(text):  # a fast check that rules out most texts
        return source, str
    words = WORD.findall(text)
    letters = [*filter(str.isalpha, text)]
    if len(words) > 1 and sum(map(str.isupper, letters)) >= CAPITALS * len(letters):
        return tag + recased(text, tokenizer), str.upper
    if not words or any(word[0].islower() for word in words if len(word) > SHORT):
        return source, str
    title_words = [word for word in words[1:] if word[1:].islower()]
    n_lower = sum(n_pieces(word.lower(), tokenizer) == 1 < n_pieces(word, tokenizer) for word in title_words)
    is_title = n_lower + all(word[0].isupper() for word in words) >= EVIDENCE
    return (tag + recased(text, tokenizer, title=True), in_title_case) if is_title else (source, str)


def n_pieces(word: str, tokenizer: Tokenizer) -> int:
    """The number of pieces of a word, beyond that of its letters if one of them has no piece."""
    pieces = tokenizer.pieces(tokenizer.encode_untagged(word))
    return len(pieces) + len(word) * any(map(NO_PIECE.fullmatch, pieces))


def recased(text: str, tokenizer: Tokenizer, *, title: bool = False) -> str:
    """Return a headline with each word in its usual case; words of a title that are in capitals stay so."""

    def usual(match: re.Match[str]) -> str:
        word = match[0]
        lower = word.replace("İ", "i").lower()
        forms = [lower, capwords(lower, "-"), word]
        if {*map(len, forms)} != {len(word)} or (title and len(word) > 1 and word.isupper()):
            return word
        n_pieces_of = [n_pieces(form, tokenizer) for form in forms]
        if FIRST.search(text, max(match.start() - 10, 0), match.start()) and n_pieces_of[1] <= n_pieces_of[0] + 1:
            return forms[1]  # unless the model knows no capitals
        return forms[n_pieces_of.index(min(n_pieces_of))]

    return WORD.sub(usual, text)


def in_title_case(text: str) -> str:
    return WORD.sub(lambda match: match[0][0].upper() + match[0][1:], text)
