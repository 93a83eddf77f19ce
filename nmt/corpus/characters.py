"""Tests for faults in the characters of a text, and functions that mend some of these faults."""

import re
import unicodedata
from collections.abc import Callable

import regex
from ftfy import TextFixerConfig, fix_encoding
from ftfy.badness import is_bad
from ftfy.fixes import unescape_html

from nmt.text.words import (
    RIGHT_TO_LEFT_LETTER,
    TOKENIZED_CHINESE,
    UNSPACED_CHARACTER,
)

# ftfy restores text that was decoded with a wrong encoding. Here, it inserts no U+FFFD and keeps control characters.
ENCODING = TextFixerConfig(replace_lossy_sequences=False, fix_c1_controls=False, explain=False)
# The group matches the tags that separate words. `without_markup` replaces them by a space, and deletes all others.
TAG = re.compile(
    r"</?(?:(blockquote|br|center|div|h[1-6]|hr|li|ol|p|pre|table|tbody|td|th|tr|ul)|abbr|body|code|em|font|head|html|img|"
    r"input|link|meta|script|small|span|strike|strong|style|sub|sup|tt|[abiu])(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
LINE_BREAK = re.compile("[\v\f\r\x1c-\x1e\x85\u2028\u2029]")
# Control, invisible and private characters that are faults in any text. A joiner after a Latin letter is no
# fault if a letter of another script follows, as in Persian.
CONTROL = (
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\ue000-\uf8ff"
    "\U000f0000-\U0010fffd]|(?<=[ -ɏ])[\u200c\u200d]+(?![^\\W -ɏ])"
)
WORD_BREAK = "\u200b"  # the zero width space
DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, embeddings and isolates for right-to-left text
# Scripts without spaces, and right-to-left scripts. They need zero width spaces or marks of direction.
INVISIBLE_SCRIPT = regex.compile(f"{UNSPACED_CHARACTER}|{RIGHT_TO_LEFT_LETTER}")
ALWAYS_FAULTY = re.compile(CONTROL)
ELSEWHERE_FAULTY = re.compile(f"{CONTROL}|[{WORD_BREAK}{DIRECTION}]")
SPACING = re.compile(f"  |\t|^[\\s{WORD_BREAK}]|[\\s{WORD_BREAK}]\\Z")
# Without the lookbehind, a long row of spaces would take quadratic time.
SPACE_AT_ENDS = re.compile(f"^[\\s{WORD_BREAK}]+|(?<![\\s{WORD_BREAK}])[\\s{WORD_BREAK}]+\\Z")
# Full-width letters and digits are faults. Full-width punctuation is right in Chinese text.
FULL_WIDTH = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")
# Traces of tokenizers: a space before punctuation, `do n't`, the bracket code -lrb-, and spaces between Han characters.
TOKENIZED = re.compile(r" (?:[.,](?: |$)|[!?]$|n't\b|['’](?:s|re|ve|ll|d|m)\b|-[lr]rb-)", re.IGNORECASE)
SPACED_HAN = regex.compile(TOKENIZED_CHINESE)


def has_mojibake(text: str) -> bool:
    return not text.isascii() and is_bad(text) and without_mojibake(text) != text


def without_mojibake(text: str) -> str:
    return fix_encoding(text, ENCODING)


def has_markup(text: str) -> bool:
    return ("&" in text or "<" in text) and without_markup(text) != text


def without_markup(text: str) -> str:
    return unescape_html(TAG.sub(lambda tag: " " if tag[1] else "", text))


def faulty_controls(text: str) -> re.Pattern[str]:
    """Return the pattern of the control and invisible characters that are faults in this text."""
    return ALWAYS_FAULTY if INVISIBLE_SCRIPT.search(text) else ELSEWHERE_FAULTY


def has_control(text: str) -> bool:
    return not text.isprintable() and faulty_controls(text).search(text) is not None


def without_control(text: str) -> str:
    text = LINE_BREAK.sub(" ", text)
    return faulty_controls(text).sub("", text)


def is_tokenized(text: str) -> bool:
    if "@-@" in text or "&apos;" in text:
        return True
    if not text.isascii() and SPACED_HAN.search(text):
        return True
    has_no_break_space = "\xa0" in text or "\u202f" in text  # French has a no-break space before some punctuation
    return not has_no_break_space and TOKENIZED.search(text) is not None


def without_spacing(text: str) -> str:
    """Return a text with one space between words and no space at the ends. Keep no-break spaces between words."""
    return re.sub("[ \t]+", " ", SPACE_AT_ENDS.sub("", text))


def without_full_width(text: str) -> str:
    return FULL_WIDTH.sub(lambda character: unicodedata.normalize("NFKC", character[0]), text)


# Functions that test a text, by kind of fault.
TESTS: dict[str, Callable[[str], object]] = {
    "replaced": lambda text: "\ufffd" in text,
    "mojibake": has_mojibake,
    "markup": has_markup,
    "control": has_control,
    "spacing": SPACING.search,
    "unicode": lambda text: not unicodedata.is_normalized("NFC", text),
    "full-width": lambda text: not text.isascii() and FULL_WIDTH.search(text),
    "tokenized": is_tokenized,
}
# Functions that mend a text, by kind of fault. The functions are applied in this order.
MENDED: dict[str, Callable[[str], str]] = {
    "mojibake": without_mojibake,
    "markup": without_markup,
    "control": without_control,
    "unicode": lambda text: unicodedata.normalize("NFC", text),
    "full-width": without_full_width,
    "spacing": without_spacing,
}
