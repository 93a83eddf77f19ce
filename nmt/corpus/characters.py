"""Faults in the characters of one text: a test for each kind and, if it can be mended, a function for that."""

import html
import re
import unicodedata
from collections.abc import Callable

UTF8_CONTINUATIONS = bytes(range(0x80, 0xC0))
# The byte of each character in Latin-1 and Windows-1252, the encodings with which UTF-8 is most often confused.
BYTES = {code: code for code in range(256)} | {
    ord(bytes([code]).decode("cp1252")): code
    for code in range(0x80, 0xA0)
    if code not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
_TAIL = "".join(map(re.escape, sorted({chr(c) for c, byte in BYTES.items() if 0x80 <= byte < 0xC0})))
_NO_QUOTE = "".join(c for c in _TAIL if c not in "“”„‘’»«…–—")
# Only sequences that no language writes: a capital umlaut before a closing quote is not mojibake.
MOJIBAKE = re.compile(
    rf"[ÂÃ][{_TAIL}]|[ÄÅ][{_NO_QUOTE}]|â[€„‚\x80-\x84][{_TAIL}]|[ã-éï][{_TAIL}]{{2}}|ð[{_TAIL}]{{3}}|(?:[ÐÑÎÏØÙ×][{_TAIL}]){{2,}}"
)
_RUN = re.compile(rf"(?:[Â-ß][{_TAIL}]|[à-ï][{_TAIL}]{{2}}|[ð-ô][{_TAIL}]{{3}})+")

ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
TAG = re.compile(
    r"</?(?:abbr|blockquote|body|br|center|code|div|em|font|h[1-6]|head|hr|html|img|input|li|link|meta|ol|pre|script|"
    r"small|span|strike|strong|style|sub|sup|table|tbody|td|th|tr|tt|ul|[abipu])(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
CONTROL = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ue000-\uf8ff"
    "\U000f0000-\U0010fffd]|(?<=[ -ɏ])[\u200c\u200d]"
)
SPACING = re.compile(r"\s\s|\t")
FULL_WIDTH = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")
_LATIN, _CYRILLIC, _GREEK = "A-Za-zÀ-ÖØ-öø-ɏ", "Ѐ-ԯ", "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧικνορυ"  # Greek: look-alikes only, not μm
NOT_LATIN = re.compile(f"[{_CYRILLIC}{_GREEK}]")
HOMOGLYPHS = re.compile(
    f"[{_LATIN}][{_CYRILLIC}]|[{_CYRILLIC}][{_LATIN}]|[{_LATIN}][{_GREEK}]|[{_GREEK}][{_LATIN}]|"
    f"[{_CYRILLIC}][{_GREEK}]|[{_GREEK}][{_CYRILLIC}]"
)
# Traces of tokenizers: space before punctuation, detached clitics and brackets as in the Penn Treebank, spaces in Han.
TOKENIZED = re.compile(r" (?:[.,](?: |$)|[!?]$|n't\b|['’](?:s|re|ve|ll|d|m)\b|-[lr]rb-)", re.IGNORECASE)
TOKENIZED_SIGNS = (" .", " ,", " !", " ?", " '", " ’", " n'", " -", " N'")
SPACED_HAN = re.compile("(?:[一-鿿] ){2,}[一-鿿]")

# Characters of one variant of Chinese that the other does not use, frequent ones first.
SIMPLIFIED = (
    "们这来说时过会对样没为个经问现还给开关话长车应该让难实觉见间头爱书学习么认识东边谁请进远钱买卖电视飞机办变"
)
TRADITIONAL = (
    "們這來說時過會對樣沒為個經問現還給開關話長車應該讓難實覺見間頭愛書學習麼認識東邊誰請進遠錢買賣電視飛機辦變"
)
IS_SIMPLIFIED, IS_TRADITIONAL = (re.compile(f"[{characters}]") for characters in (SIMPLIFIED, TRADITIONAL))


def has_mojibake(text: str) -> bool:
    return not text.isascii() and MOJIBAKE.search(text) is not None and without_mojibake(text) != text


def without_mojibake(text: str) -> str:
    """Encode runs that look like UTF-8 read as Windows-1252 and decode them as UTF-8; up to three times."""

    def mended(run: re.Match[str]) -> str:
        try:
            return bytes(BYTES[ord(c)] for c in run[0]).decode()
        except UnicodeDecodeError:
            return run[0]

    for _ in range(3):
        if not MOJIBAKE.search(text):
            break
        text = _RUN.sub(mended, text)
    return text


def has_markup(text: str) -> bool:
    if "&" in text and any(html.unescape(found) != found for found in ENTITY.findall(text)):
        return True
    return "<" in text and TAG.search(text) is not None


def without_markup(text: str) -> str:
    for _ in range(3):  # text may be escaped repeatedly: &amp;lt;
        text = html.unescape(TAG.sub("", text)) if "<" in text or ENTITY.search(text) else text
    return text


def is_not_nfc(text: str) -> bool:
    return not text.isascii() and not unicodedata.is_normalized("NFC", text)


def has_control(text: str) -> bool:
    return not text.isprintable() and CONTROL.search(text) is not None


def has_odd_spacing(text: str) -> bool:
    return "  " in text or text != text.strip() or (not text.isprintable() and SPACING.search(text) is not None)


def is_tokenized(text: str) -> bool:
    if "@-@" in text or "&apos;" in text or (not text.isascii() and SPACED_HAN.search(text)):
        return True
    if not any(sign in text for sign in TOKENIZED_SIGNS) or "\xa0" in text or "\u202f" in text:
        return False  # French has a no-break space before some signs
    return TOKENIZED.search(text) is not None


def in_ascii(text: str) -> str:
    """Full-width letters and digits in ASCII."""
    return FULL_WIDTH.sub(lambda c: chr(ord(c[0]) - 0xFEE0), text)


# Tests of one text, by kind of fault.
TESTS: dict[str, Callable[[str], object]] = {
    "replaced": lambda text: "\ufffd" in text,
    "mojibake": has_mojibake,
    "markup": has_markup,
    "control": has_control,
    "homoglyphs": lambda text: not text.isascii() and NOT_LATIN.search(text) and HOMOGLYPHS.search(text),
    "spacing": has_odd_spacing,
    "unicode": is_not_nfc,
    "full-width": lambda text: not text.isascii() and FULL_WIDTH.search(text),
    "tokenized": is_tokenized,
}
# Functions that mend a text, by kind of fault, in the order in which they are applied.
MENDED: dict[str, Callable[[str], str]] = {
    "mojibake": without_mojibake,
    "markup": without_markup,
    "control": lambda text: CONTROL.sub("", text),
    "unicode": lambda text: unicodedata.normalize("NFC", text),
    "full-width": in_ascii,
    "spacing": lambda text: " ".join(text.split()),
}
