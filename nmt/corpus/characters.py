"""Faults in the characters of one text: a test for each kind and, if it can be mended, a function for that."""

import re
import unicodedata
from collections.abc import Callable

from ftfy import TextFixerConfig, fix_encoding
from ftfy.badness import is_bad
from ftfy.fixes import unescape_html

# Restore what was UTF-8, but insert no U+FFFD, and leave control characters to `CONTROL`.
ENCODING = TextFixerConfig(replace_lossy_sequences=False, fix_c1_controls=False, explain=False)
# The first group holds the tags that separate words: a space takes their place.
TAG = re.compile(
    r"</?(?:(blockquote|br|center|div|h[1-6]|hr|li|ol|p|pre|table|tbody|td|th|tr|ul)|abbr|body|code|em|font|head|html|img|"
    r"input|link|meta|script|small|span|strike|strong|style|sub|sup|tt|[abiu])(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
LINE_BREAK = re.compile("[\v\f\r\x1c-\x1e\x85\u2028\u2029]")
CONTROL = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ue000-\uf8ff"
    "\U000f0000-\U0010fffd]|(?<=[ -ɏ])[\u200c\u200d]"
)
SPACING = re.compile(r"  |\t|^\s|\s\Z")
# Only letters and digits: in Chinese text, full-width punctuation is right, and ftfy would change it.
FULL_WIDTH = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")
_LATIN, _OTHER = "A-Za-zÀ-ÖØ-öø-ɏ", "Ѐ-ԯΑΒΕΖΗΙΚΜΝΟΡΤΥΧικνορυ"  # Cyrillic; Greek: look-alikes only, not μm
HOMOGLYPHS = re.compile(f"[{_LATIN}][{_OTHER}]|[{_OTHER}][{_LATIN}]")
# Traces of tokenizers: space before punctuation, detached clitics and brackets as in the Penn Treebank, spaces in Han.
TOKENIZED = re.compile(r" (?:[.,](?: |$)|[!?]$|n't\b|['’](?:s|re|ve|ll|d|m)\b|-[lr]rb-)", re.IGNORECASE)
SPACED_HAN = re.compile("(?:[一-鿿] ){2,}[一-鿿]")


def has_mojibake(text: str) -> bool:
    return not text.isascii() and is_bad(text) and without_mojibake(text) != text


def without_mojibake(text: str) -> str:
    return fix_encoding(text, ENCODING)


def has_markup(text: str) -> bool:
    return ("&" in text or "<" in text) and without_markup(text) != text


def without_markup(text: str) -> str:
    for _ in range(3):  # text may be escaped repeatedly: &amp;lt;
        text = unescape_html(TAG.sub(lambda tag: " " if tag[1] else "", text))
    return text


def is_tokenized(text: str) -> bool:
    if "@-@" in text or "&apos;" in text or (not text.isascii() and SPACED_HAN.search(text)):
        return True
    has_no_break_space = "\xa0" in text or "\u202f" in text  # French has it before some signs
    return not has_no_break_space and TOKENIZED.search(text) is not None


# Tests of one text, by kind of fault.
TESTS: dict[str, Callable[[str], object]] = {
    "replaced": lambda text: "\ufffd" in text,
    "mojibake": has_mojibake,
    "markup": has_markup,
    "control": lambda text: not text.isprintable() and CONTROL.search(text),
    "homoglyphs": lambda text: not text.isascii() and HOMOGLYPHS.search(text),
    "spacing": SPACING.search,
    "unicode": lambda text: not unicodedata.is_normalized("NFC", text),
    "full-width": lambda text: not text.isascii() and FULL_WIDTH.search(text),
    "tokenized": is_tokenized,
}
# Functions that mend a text, by kind of fault, in the order in which they are applied.
MENDED: dict[str, Callable[[str], str]] = {
    "mojibake": without_mojibake,
    "markup": without_markup,
    "control": lambda text: CONTROL.sub("", LINE_BREAK.sub(" ", text)),
    "unicode": lambda text: unicodedata.normalize("NFC", text),
    "full-width": lambda text: FULL_WIDTH.sub(lambda c: unicodedata.normalize("NFKC", c[0]), text),
    "spacing": lambda text: re.sub("[ \t]+", " ", text).strip(),  # a no-break space stays, as in French
}
