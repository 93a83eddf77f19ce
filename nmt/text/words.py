"""The words of texts: all patterns of letters, words, scripts and sentence ends, and the likeness of two words.

The patterns are strings, so that each module compiles only the patterns that it uses: compiling a pattern with the
unspaced scripts takes 1.5 ms. `tests/text/test_words.py` has examples of what the patterns match.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmt.text.spans import Span

# Unspaced scripts, whose text has no spaces between words, as ranges of a character class: Thai, Lao, Burmese, Khmer,
# Chinese and Japanese characters and punctuation.
UNSPACED_SCRIPTS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3001-\u30ff\u3400-\u9fff\uff00-\uffef\U00020000-\U0003ffff"
# The scripts above, and others of the classes SA, AK, AP, AS and ID in Unicode's LineBreak.txt: Tibetan, Tai Le and New
# Tai Lue, Buginese and Tai Tham, Balinese, Batak, Bopomofo, Yi, Javanese, Cham and Tai Viet, and Ahom.
ALL_UNSPACED_SCRIPTS = (
    f"{UNSPACED_SCRIPTS}\u0f00-\u0fff\u1950-\u19ff\u1a00-\u1aaf\u1b00-\u1b7f\u1bc0-\u1bff\u3100-\u33ff\ua000-\ua4cf"
    "\ua980-\uaadf\uf900-\ufaff\U00011700-\U0001174f"
)
ONE_CHARACTER_WORDS = (
    "㐀-䶿一-鿿豈-﫿ぁ-ヿ฀-๿"  # Han, kana and Thai: in `COMPARED_WORD`, each of their characters is a word
)

# Marks that belong to the letter before them, although `\w` does not match them.
VOWEL_SIGNS = "\u0900-\u0963\u0966-\u0dff\u0f71-\u0f84\u0f90-\u0fbc"  # Indic signs and letters, Tibetan signs
COMBINING_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670"
COMBINING_MARKS += "\u0900-\u0dff\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"

# Single characters.
LETTER = r"[^\W\d_]"
UNSPACED_CHARACTER = f"[{UNSPACED_SCRIPTS}]"
SPACED_LETTER = rf"[^\W\d_{UNSPACED_SCRIPTS}]"
WORD_CHARACTER = rf"[^\W{UNSPACED_SCRIPTS}]"  # a letter, digit or underscore of a script with spaces
MARKED_CHARACTER = rf"{WORD_CHARACTER}|[{COMBINING_MARKS}]"

# Words. In unspaced scripts, each character is a word.
PLAIN_WORD = rf"{UNSPACED_CHARACTER}|{WORD_CHARACTER}+"
WORD_OR_MARK = rf"{PLAIN_WORD}|[^\w\s]"
WORD_OR_CHARACTER = rf"{PLAIN_WORD}|(?s:.)"
WRITTEN_WORD = rf"{UNSPACED_CHARACTER}|[^\s{UNSPACED_SCRIPTS}]+"  # a word with the punctuation that touches it
BARE_WORD = r"['’]?\w(.*\w)?"  # the part of a written word from its first to its last letter or digit
LONG_WORD = rf"(?<!{WORD_CHARACTER}){SPACED_LETTER}{{3,}}(?!{WORD_CHARACTER})"
CASED_WORD = r"(?<![\w'’])[^\W\d_](?:[\w'’-]*[^\W_])?"  # a word that begins with a letter, with inner hyphens
# A word with its combining marks and apostrophes, or a punctuation mark. Tags can be put between two such matches.
MARKED_WORD = (
    rf"{UNSPACED_CHARACTER}[{COMBINING_MARKS}]*|(?:{MARKED_CHARACTER})+(?:['’](?:{MARKED_CHARACTER})+)*|[^\w\s]"
)
WORD_EDGE = rf"(?<!{WORD_CHARACTER})(?<![{COMBINING_MARKS}])|(?!{MARKED_CHARACTER})"  # a position outside of words
# A word for word alignment. Words in Khmer, Lao, Burmese and Tibetan end at spaces, vowel signs or syllable marks. Such
# parts show better than single characters whether two sentences are translations of each other.
COMPARED_WORD = (
    rf"[{ONE_CHARACTER_WORDS}]|[^\W_{ONE_CHARACTER_WORDS}]+(?:[{VOWEL_SIGNS}]+[^\W_{ONE_CHARACTER_WORDS}]*)*"
)

# Sentences.
# The end of a sentence is a punctuation mark, often after a word. Closing quotes and white space come before the first
# letter or digit of the next sentence. In Chinese and Japanese, the mark alone is enough. Possessive quantifiers match
# each word and each row of marks once, so that the time is linear.
SENTENCE_MARKS = ".!?…؟۔।॥።"
SENTENCE_END = (
    rf"(?:(?<!\w)(?P<word>\w++)|(?<![\w{SENTENCE_MARKS}]))(?P<mark>[{SENTENCE_MARKS}]++)[\"”“’»)\]]*+"
    r"(?P<space>\s++)(?=[^\s\w]*+(?P<next>\w))"
    r"|(?<![。！？])[。！？]++(?P<no_space>\s*+)(?=[^\s。！？”’」』）])"
)
SENTENCE_START = r"(?:^|[.!?…]\s)[^\w.!?…]*\Z"  # the end of a text after which a sentence begins
CLAUSE_START = r"(?:^|[.!?…:]\s)[^\w]*\Z"  # the end of a text after which a sentence begins, or a part after a colon
FINAL_MARKS = r"(?<![\s.!?…。！？\"'”’»」』)])[\s.!?…。！？\"'”’»」』)]*\Z"  # marks and spaces after the last word


@dataclass(frozen=True)
class WordText:
    """A text and the spans of its words."""

    text: str
    spans: list[Span]

    @classmethod
    def split(cls, text: str) -> "WordText":
        """Split a text at white space. If the text has none, each character of an unspaced script is a word."""
        pattern = r"\S+" if len(text.split()) > 1 else WRITTEN_WORD
        return cls(text, [match.span() for match in re.finditer(pattern, text)])

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
    match = re.search(BARE_WORD, text[start:end])
    return (start + match.start(), start + match.end()) if match else span


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
