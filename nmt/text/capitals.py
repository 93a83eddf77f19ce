"""Headlines: lines in CAPITALS or in Title Case are translated in sentence case, which models know better.

    EIN MANN IM SCHNEE  ->  Ein Mann im Schnee  ->  A man in the snow  ->  A MAN IN THE SNOW

Each word gets its usual case, so names and German nouns keep their capitals (compare Lita et al. 2003, "tRuEcasIng").
In its usual case, a word has the fewest pieces.
"""

from collections.abc import Callable
from string import capwords

import regex

from nmt.text.characters import NO_PIECE
from nmt.text.tokenizer import Tokenizer
from nmt.text.words import CASED_WORD, SENTENCE_START

CAPITALS = 0.9  # minimum share of capitals among the letters of a headline in CAPITALS, 0-1
# In a title, at least this many words begin with a capital but are usually in lower case. The first word does not
# count. If all words begin with a capital, one word fewer suffices.
EVIDENCE = 3
SHORT_IN_TITLE = 3  # words of at most this many letters may be in lower case in a title
HEADLINE_WORD = regex.compile(CASED_WORD)
BEFORE_SENTENCE = regex.compile(SENTENCE_START)

Style = Callable[[str], str]  # a function that gives a translation the case of its source


def as_read(source: str, tokenizer: Tokenizer) -> tuple[str, Style]:
    """Return a text as the model should read it, and a function that sets the case of the translation.

    The text keeps its length.
    """
    text, style = in_sentence_case(source, tokenizer)
    return tokenizer.characters.with_forms(text), style


def in_sentence_case(source: str, tokenizer: Tokenizer) -> tuple[str, Style]:
    """Return a headline in sentence case, and a function that sets the case of the translation.

    A text that is no headline stays unchanged, and so does its translation.
    """
    tag, text = tokenizer.split_tag(source)
    # A headline in CAPITALS has several words, and few letters in lower case.
    words = HEADLINE_WORD.findall(text)
    letters = [character for character in text if character.isalpha()]
    if len(words) > 1 and sum(map(str.isupper, letters)) >= CAPITALS * len(letters):
        usual = recased(text, tokenizer)
        # If nothing changes, capitals are the usual case of the language, as in Cherokee.
        return tag + usual, str if usual == text else str.upper
    if is_title(words, tokenizer):
        return tag + recased(text, tokenizer, title=True), in_title_case
    return source, str


def is_title(words: list[str], tokenizer: Tokenizer) -> bool:
    """Return whether a text with these words is in Title Case, see `EVIDENCE`."""
    long_words = [word for word in words if len(word) > SHORT_IN_TITLE]
    if not words or any(word[0].islower() for word in long_words):
        return False
    # German nouns always begin with a capital. So count only words that are usually in lower case.
    evidence = int(all(word[0].isupper() for word in words))
    for word in words[1:]:
        if word[1:].islower() and n_pieces(word.lower(), tokenizer) == 1 < n_pieces(word, tokenizer):
            evidence += 1
    return evidence >= EVIDENCE


def n_pieces(word: str, tokenizer: Tokenizer) -> int:
    """Return the number of pieces of a word. If a letter has no piece, the word's length is added as a penalty."""
    pieces = tokenizer.segmented(word)
    is_unknown = any(NO_PIECE.fullmatch(piece) for piece in pieces)
    return len(pieces) + (len(word) if is_unknown else 0)


def recased(text: str, tokenizer: Tokenizer, *, title: bool = False) -> str:
    """Return a headline with each word in its usual case.

    In Title Case (`title`), words in CAPITALS are acronyms and stay unchanged.
    """

    def usual(match: regex.Match[str]) -> str:
        word = match[0]
        is_acronym = title and len(word) > 1 and word.isupper()
        lower = word.replace("İ", "i").lower()
        capitalized = capwords(lower, "-")
        # The text must keep its length, but some letters become two letters in another case.
        is_longer = len(lower) != len(word) or len(capitalized) != len(word)
        if is_acronym or is_longer:
            return word
        is_first = BEFORE_SENTENCE.search(text, max(match.start() - 10, 0), match.start())
        n_other = min(n_pieces(lower, tokenizer) + 1, n_pieces(word, tokenizer))
        knows_capitals = n_pieces(capitalized, tokenizer) <= n_other
        if is_first and knows_capitals:
            return capitalized
        return min(lower, capitalized, word, key=lambda form: n_pieces(form, tokenizer))

    return HEADLINE_WORD.sub(usual, text)


def in_title_case(text: str) -> str:
    """Return the text with the first letter of each word in upper case."""
    return HEADLINE_WORD.sub(lambda word: word[0][0].upper() + word[0][1:], text)
