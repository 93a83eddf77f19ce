"""The words of texts: all patterns of letters, words, scripts and sentence ends, and the similarity of two words.

The patterns are strings for the library `regex`, so that each module compiles only the patterns that it uses. Unlike
`re`, `regex` has Unicode's properties of characters, and its `\\w` matches combining marks. So no pattern lists the
letters or marks of a script. `tests/text/test_words.py` has examples of what the patterns match.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import regex
from numpy.typing import NDArray

from nmt.text.spans import Span

_CJK = r"\p{Han}\p{Hiragana}\p{Katakana}ー"  # the content of a character class: letters of Chinese and Japanese
_CJK_MARKS = r"\p{Block=CJK_Symbols_And_Punctuation}\p{Block=Halfwidth_And_Fullwidth_Forms}"
# The content of a character class: unspaced scripts, whose text has no spaces between words, with their punctuation.
# These are the classes SA, AK, AP and AS of Unicode's LineBreak.txt, such as Thai, Khmer and Javanese; then Chinese and
# Japanese; and scripts that mark each syllable.
UNSPACED_SCRIPTS = rf"\p{{LB=SA}}\p{{LB=AK}}\p{{LB=AP}}\p{{LB=AS}}{_CJK}\p{{Bopomofo}}\p{{Yi}}\p{{Tibetan}}{_CJK_MARKS}"

# The content of a character class: white space, and the mark between words in Ethiopic text without spaces.
SPACE = r"\s፡"

# Single characters.
LETTER = r"[^\W\d_]"  # a letter or a combining mark
UNSPACED_CHARACTER = f"[{UNSPACED_SCRIPTS}]"
UNSPACED_MARK = "。"  # a mark after which no space is written
WIDE_CHARACTER = r"[\p{East_Asian_Width=W}\p{East_Asian_Width=F}]"
# The contents of character classes: marks at the ends of sentences, and at the ends of clauses in Chinese and Japanese.
END_MARKS = r"\p{SB=ATerm}\p{SB=STerm}…"
# White space, and marks that belong to a sentence, unlike signs such as * and %.
SENTENCE_MARK = r"[\s\p{Terminal_Punctuation}\p{Ps}\p{Pe}\p{Pi}\p{Pf}\p{Pd}'\"…¿¡]"
INVISIBLE_SIGNS = r"\p{Cf}*"  # such as soft hyphens
NUMERAL_SIGN = r"\p{No}"  # such as ½ and ²
CJK_CLAUSE_MARKS = "，、；："
RIGHT_TO_LEFT_LETTER = r"(?=\w)[\p{Bidi_Class=R}\p{Bidi_Class=AL}]"  # of Hebrew, Arabic ...
SPACED_LETTER = rf"[^\W\d_{UNSPACED_SCRIPTS}]"
KEY_LETTER = rf"(?!\p{{Hangul}}){SPACED_LETTER}"  # a letter that a single key of a keyboard writes
WORD_CHARACTER = rf"[^\W{UNSPACED_SCRIPTS}]"  # a letter, mark, digit or underscore of a script with spaces

# The string is for the library `re`, too.
URL_LETTERS = "a-zA-ZÀ-ԯ"  # the content of a character class: Latin, Greek and Cyrillic

# Words. In unspaced scripts, each syllable is a word: a Chinese character; a row of katakana, which is often a foreign
# word; a Tibetan syllable with the mark at its end; or a grapheme cluster of UAX #29 with the dependent vowels before
# and after it, as in Thai, Lao and Burmese, and with the consonants after it that are marked to have no vowel (မြန်).
_VOWEL_BEFORE = r"\p{InPC=Visual_Order_Left}"
_VOWELS_AFTER = rf"(?:(?!{_VOWEL_BEFORE})[\p{{M}}\p{{InSC=Vowel_Dependent}}])*+"
_KILLER = r"\p{L}\p{InSC=Tone_Mark}*+\p{InSC=Pure_Killer}|\p{L}\p{M}*\p{InSC=Consonant_Killer}"
_SILENT = rf"(?:(?={_KILLER})\X{_VOWELS_AFTER})*+"
_TIBETAN = r"(?:(?=\p{Tibetan})[\p{L}\p{M}])++"
_CLUSTER = rf"(?=(?!\s){UNSPACED_CHARACTER}){_VOWEL_BEFORE}*+\X{_VOWELS_AFTER}{_SILENT}"
SYLLABLE_MARKS = "\u0f0b\u0f0c"  # the marks at the end of Tibetan syllables
_KATAKANA = r"(?:[\p{Katakana}ー]\p{M}*+)++"
SYLLABLE = rf"{_TIBETAN}[{SYLLABLE_MARKS}]?|{_KATAKANA}|{_CLUSTER}"
# Inside of a word may be: soft hyphens and other invisible characters, the point of Catalan, Armenian marks of stress
# and questions, quotation marks in Hebrew abbreviations, and Cyrillic apostrophes.
_INNER = r"""(?:[\p{Cf}·՛՜՞״]|(?<=\p{Hebrew})"|(?<=\p{Cyrillic})['’])"""
_SPACED_WORD = rf"{WORD_CHARACTER}++(?:{_INNER}++{WORD_CHARACTER}++)*+"  # a word of a script with spaces
PLAIN_WORD = rf"{SYLLABLE}|{_SPACED_WORD}"
_MARK = r"(?=[^\w\s])\X"  # a punctuation mark or symbol, such as an emoji of several characters
WORD_OR_MARK = rf"{PLAIN_WORD}|{_MARK}"
WORD_OR_CHARACTER = rf"{PLAIN_WORD}|\X"
WRITTEN_WORD = rf"{SYLLABLE}|[^{SPACE}{UNSPACED_SCRIPTS}]+"  # a word with the punctuation that touches it
BARE_WORD = r"['’]?\w(.*\w)?"  # the part of a written word from its first to its last letter or digit
BARE = regex.compile(BARE_WORD)  # compiled here, because `bare_span` is called for each word
TOKENIZED_CHINESE = r"(?:\p{Han} ){2}\p{Han}"
LONG_WORD = rf"(?<!{WORD_CHARACTER}){SPACED_LETTER}{{3,}}(?!{WORD_CHARACTER})"
CASED_WORD = r"(?<![\w'’])[^\W\d_](?:[\w'’-]*[^\W_])?"  # a word that begins with a letter, with inner hyphens
# A word with its apostrophes, or a punctuation mark. Tags can be put between two such matches.
MARKED_WORD = rf"{SYLLABLE}|{_SPACED_WORD}(?:['’]{_SPACED_WORD})*+|{_MARK}"
# A word for the comparison of texts without a model. Korean words have many endings, so their syllables are compared.
# The first two alternatives match most words, so that the search is fast.
_COMPARED_SPACED_WORD = rf"[^\W_{UNSPACED_SCRIPTS}\p{{Hangul}}]++"
COMPARED_WORD = rf"\p{{Han}}\p{{M}}*+|{_COMPARED_SPACED_WORD}|\p{{Hangul}}|{_TIBETAN}|(?=\w){_CLUSTER}"

# Sentences, by the classes of UAX #29: ATerm (full stops), STerm (all other marks at sentence ends) and Close (quotes
# and brackets). Possessive quantifiers match each row of characters once, so that the time is linear.
# A semicolon is the Greek question mark, and a colon is often typed for the Armenian full stop.
# The Burmese comma ၊ is left out, although its class is STerm.
_END_MARK = rf"(?:(?!၊)[{END_MARKS}]|(?<=\p{{Greek}}[»\")]?)[;\u037e]|(?<=\p{{Armenian}}[»\")]?):)"
# Closing quotes and brackets, and invisible marks of direction. In German and Danish, « closes before a space.
_CLOSING = r"(?:(?!\p{Ps}|„|«(?!\s|\Z))\p{SB=Close}|\p{Cf})"
_CJK_FULL_STOP = "[。！？｡]"
_ENOUGH = r"(?<=(?![!?۔։])\p{SB=STerm})(?!ល។)"  # after a mark that needs no space, but not in the Khmer for "etc."
# The end of a sentence is a mark, closing quotes and white space. Only opening quotes may be between this space and the
# next word, or a word such as 'n in Afrikaans. In many scripts, the mark and closing quotes are enough.
SENTENCE_END = (
    rf"(?<!{_END_MARK})(?P<mark>{_END_MARK}++)"
    rf"(?:(?:{_CLOSING})*+(?:[ \xa0\u202f]»)?+(?P<space>[{SPACE}]++)"
    rf"(?=(?:['’]\p{{Ll}}\s)?+[^\s\w]*+\s?+[^\s\w]*+(?P<next>\w))"
    rf"|(?:{_ENOUGH}(?P<quotes>[\p{{Pe}}\p{{Pf}}\"]*+)|(?<=[!?])(?=[{_CJK}]))(?P<no_space>)(?!\p{{M}})(?=[\w\p{{Ps}}\p{{Pi}}]))"
)
CJK_END = rf"[{_CJK}{_CJK_MARKS}][^\w\s]*\Z"  # the end of a Chinese or Japanese sentence
CJK_CLOSED = rf"{_CJK_FULL_STOP}[^\w\s]*\Z"  # the end of a text after which no space is written
CJK_START = rf"[^\w\s]*[{_CJK}{_CJK_MARKS}]"  # the start of a Chinese or Japanese sentence
CONTINUATION = r"\p{Hiragana}|[,、，]"  # what follows a quoted sentence if the sentence around the quote goes on
_FINAL_MARK = rf"(?:[{SPACE}]|{_END_MARK}|{_CLOSING})"
FINAL_MARKS = rf"(?<!{_FINAL_MARK}){_FINAL_MARK}*+\Z"  # marks and spaces after the last word
# The end of a text after which a sentence begins, and one after which a sentence or a part after a colon begins.
SENTENCE_START = rf"(?:^|{_END_MARK}(?:{_CLOSING})*+[{SPACE}]|{_CJK_FULL_STOP})[^\w.!?…]*\Z"
CLAUSE_START = rf"(?:^|(?:{_END_MARK}|:)(?:{_CLOSING})*+[{SPACE}]|{_CJK_FULL_STOP})[^\w]*\Z"

MAX_SYLLABLES = 3  # a text counts as tokenized if its parts between spaces have at most this many syllables on average


@dataclass(frozen=True)
class WordText:
    """A text and the spans of its words."""

    text: str
    spans: list[Span]

    @classmethod
    def split(cls, text: str) -> "WordText":
        """Split a text into words with the punctuation that touches them.

        Spaces separate the words of an unspaced script only in a tokenized text: its words have few syllables.
        """
        n_parts = len(text.split())
        n_syllables = len(regex.findall(SYLLABLE, text))
        is_tokenized = n_parts > 1 and n_syllables <= MAX_SYLLABLES * n_parts
        pattern = r"\S+" if is_tokenized else WRITTEN_WORD
        return cls(text, [match.span() for match in regex.finditer(pattern, text)])

    @property
    def words(self) -> list[str]:
        """The words, including the punctuation around them."""
        return [self.text[start:end] for start, end in self.spans]

    @cached_property
    def bare_spans(self) -> list[Span]:
        """The spans of the words without the punctuation around them; see `bare_span`."""
        return [bare_span(self.text, span) for span in self.spans]

    @property
    def bare_words(self) -> list[str]:
        """The words without the punctuation around them."""
        return [self.text[start:end] for start, end in self.bare_spans]


def bare_span(text: str, span: Span) -> Span:
    """Return the span of a word without the punctuation around it: from its first to its last letter or digit.

    An apostrophe directly before the first letter or digit is included. A word without letters and digits keeps its
    span.
    """
    start, end = span
    match = BARE.search(text, start, end)
    return match.span() if match else span


def likeness(source: WordText, target: WordText) -> NDArray[np.float32]:
    """Return how similar the spelling of each source word is to the spelling of each target word, 0-1.

    The similarity is the Dice coefficient of the pairs of neighboring letters in both words (compare Melamed 1999). The
    similarity is high for names, numbers and cognates. Returns an array of shape (source words, target words).
    """
    target_pairs = [letter_pairs(word) for word in target.bare_words]
    rows = []
    for word in source.bare_words:
        pairs = letter_pairs(word)
        rows.append([dice(pairs, pairs_of_target) for pairs_of_target in target_pairs])
    return np.array(rows, np.float32)


def dice(first: set[tuple[str, str]], second: set[tuple[str, str]]) -> float:
    """Return the Dice coefficient of two sets that are not empty: the share of common elements, 0-1."""
    if first.isdisjoint(second):  # a fast check that rules out most pairs of words
        return 0.0
    return 2 * len(first & second) / (len(first) + len(second))


def letter_pairs(word: str) -> set[tuple[str, str]]:
    """Return the pairs of neighboring letters of a word, with a space before its first and after its last letter."""
    return set(pairwise(f" {word.lower()} "))
