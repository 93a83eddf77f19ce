"""Faults of a pair: what the two texts must share, whatever their languages."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from nmt.corpus.language import Languages
from nmt.text.lines import is_blank

MAX_CHARACTERS = 1_000  # about data.max_length pieces
FAR_OFF = 5.0  # standard deviations of the logarithm of the length ratio
SHORT_PARTNER = 1.5  # standard deviations below the usual length of a translation
MIN_FACTOR = 2.2  # by which a ratio differs from the usual one at least
MIN_NO_WORDS = 5  # characters

NUMBER = re.compile(r"\d+(?:[.,:’' \u202f]\d+)*")
MAGNITUDE = re.compile(
    r"[十百千万萬亿億兆]|\b(?:ten|twenty|hundred|thousand|million|billion|dozen)|zig\b|hundert|tausend|million|milliard",
    re.IGNORECASE,
)
HAN_NUMBER = re.compile("[一二三四五六七八九十百千万萬零〇两兩]")
CLOCK = re.compile(r"\b(?:[ap]\.?m\b|o'clock|noon|midnight|Uhr)|[点點时時半]", re.IGNORECASE)
URL = re.compile(r"https?://[^\s<>]+|www\.[^\s<>]+|[\w.+-]+@[\w-]+\.[\w.-]+")
PLACEHOLDER = re.compile(
    r"\{\w*\}|\$\{\w+\}|%\(\w+\)[sdf]|%(?:\d+\$)?(?:[sdifgux@]\b)|%[1-9]\b|<\w+/>|\[\[\w+\]\]|__\w+__"
)
LETTERS = re.compile(r"[^\W\d_]")
REPEATED_CHARACTER = re.compile(r"([^\W\d_])\1{4,}|([!?])\2{4,}|([^\w\s])\3{7,}")
REPEATED_WORDS = re.compile(r"\b(\w+(?:\W+\w+){0,3}?)(?:\W+\1\b){2,}|([^\W\d_]{2,4}?)\2{3,}", re.IGNORECASE)
CLOSERS = " \t\u3000\"'”’»)]}）】」』“›*_"
ENDS = dict.fromkeys(".。．!！…।", ".") | dict.fromkeys("?？؟;", "?") | dict.fromkeys(":：,，、;；-–—", ",")
BRACKETS = ("()", "[]", "{}", "（）", "【】", "《》", "「」", "『』", "〈〉")
SMILEY_OR_ITEM = re.compile(r"[:;=8]['-]?[()]|(?:^|\s)\w{1,2}\)")


@dataclass(frozen=True)
class Habits:
    """What is usual in a corpus."""

    languages: Languages
    ends_with_stop: tuple[bool, bool]  # whether the texts of a side usually end with punctuation
    han_variant: tuple[str, str]  # simplified, traditional or "": what a side usually has


def is_copy(source: str, target: str) -> bool:
    """Whether the texts are the same; one or two words may be a name."""
    if source.casefold() != target.casefold():
        return False
    n_letters = len(LETTERS.findall(source))
    return n_letters >= 12 or (n_letters >= 4 and len(source.split()) >= 3)


def numbers_differ(source: str, target: str) -> bool:
    """Whether digits differ, apart from separators, numbers in words and the hours of a clock."""
    own, other = NUMBER.findall(source), NUMBER.findall(target)
    if not own and not other:
        return False
    left, right = Counter(map(digits, own)), Counter(map(digits, other))
    if left == right:
        return False
    missing, added = left - right, right - left
    if "".join(sorted("".join(left.elements()))) == "".join(sorted("".join(right.elements()))):
        return False  # grouped differently: 555-1234 and 555 12 34
    both = f"{source} {target}"
    for rest, text in ((missing, target), (added, source)):
        has_words = MAGNITUDE.search(both) or HAN_NUMBER.search(text)
        if rest and not has_words and not CLOCK.search(both) and (missing and added or max(map(len, rest)) >= 3):
            return True
    return False


def digits(number: str) -> str:
    """A number without separators, in ASCII, without leading zeros."""
    plain = re.sub(r"\D", "", number)
    return (plain if plain.isascii() else unicodedata.normalize("NFKC", plain)).lstrip("0")


def urls_differ(source: str, target: str) -> bool:
    if not any("@" in text or "www." in text or "://" in text for text in (source, target)):
        return False
    own, other = ({found.rstrip(".,;:!?)。，").lower() for found in URL.findall(text)} for text in (source, target))
    return own != other


def placeholders_differ(source: str, target: str) -> bool:
    return sorted(PLACEHOLDER.findall(source)) != sorted(PLACEHOLDER.findall(target))


def final(text: str) -> str:
    """The kind of sign that ends a text: . ? , or "" """
    stripped = text.rstrip(CLOSERS)
    return ENDS.get(stripped[-1:], "")


def brackets_differ(source: str, target: str) -> bool:
    """Whether brackets or quotes are not closed on one side only: a quotation may go on in the next line."""
    return is_unclosed(source) != is_unclosed(target)


def is_unclosed(text: str) -> bool:
    if text.count('"') % 2 or sum(map(text.count, "“”„‟")) % 2:
        return True
    if "(" in text or ")" in text:
        text = SMILEY_OR_ITEM.sub(" ", text)
    if any(text.count(opening) != text.count(closing) for opening, closing in BRACKETS):
        return True
    return text.count("«") != text.count("»")


def repetition_differs(source: str, target: str) -> bool:
    return repeats(source) != repeats(target)


def repeats(text: str) -> bool:
    """Whether a character stands five times in a row, or one to four words three times."""
    return REPEATED_CHARACTER.search(text) is not None or REPEATED_WORDS.search(text) is not None


def has_no_words(text: str) -> bool:
    """Whether under 30 % of the characters are letters."""
    n_characters = len(text) - text.count(" ")
    return n_characters >= MIN_NO_WORDS and len(LETTERS.findall(text)) < 0.3 * n_characters


def capitals_differ(source: str, target: str) -> bool:
    return is_capital(source) != is_capital(target) and has_case(source) and has_case(target)


def is_capital(text: str) -> bool:
    return text.isupper() and len(text.split()) >= 2 and len(LETTERS.findall(text)) >= 8


def has_case(text: str) -> bool:
    return text.lower() != text.upper()


def cut_off(source: str, target: str, z: float, habits: Habits) -> bool:
    """Whether a text has no final punctuation, unlike its partner, and is too short for it."""
    if not all(habits.ends_with_stop) or abs(z) < SHORT_PARTNER:
        return False
    short, long = (target, source) if z < 0 else (source, target)
    return final(short) in ("", ",") and final(long) in (".", "?")


TESTS: dict[str, Callable[[str, str], bool]] = {
    "copy": is_copy,
    "numbers": numbers_differ,
    "urls": urls_differ,
    "placeholders": placeholders_differ,
    "brackets": brackets_differ,
    "repetition": repetition_differs,
    "capitals": capitals_differ,
    "blank": lambda source, target: is_blank(source) or is_blank(target),
    "no-words": lambda source, target: has_no_words(source) or has_no_words(target),
    "long": lambda source, target: max(len(source), len(target)) > MAX_CHARACTERS,
}


def ends_differ(source: str, target: str, habits: Habits) -> bool:
    """Whether one is a question, or has no final punctuation, and the other is not so."""
    own, other = final(source), final(target)
    if own == other or not (source and target):
        return False
    return "?" in (own, other) or all(habits.ends_with_stop)
