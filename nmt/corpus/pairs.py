"""Tests for faults of a pair in any language, such as numbers that differ."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

import regex

from nmt.text.lines import is_blank
from nmt.text.placeholders import KINDS
from nmt.text.words import UNSPACED_CHARACTER

MAX_CHARACTERS = 1_000  # a longer text is a fault; about the length of `data.max_length` pieces
MAX_Z = 5.0  # a length ratio with a greater absolute z-score is a fault, see `lengths.Lengths.z`
MIN_LONGER = 20  # characters; if both texts are shorter, any length ratio is right
SHORT_PARTNER = 1.5  # minimum absolute z-score of the length ratio if a text is cut off
MIN_CUT_OFF_EVIDENCE = 5.5  # nats; minimum evidence that a text is cut off
LONG_NUMBER = 4  # minimum number of digits of a long number, such as a year or a sum of money
MAX_CLOCK = 2  # maximum number of digits before the decimals of a number that may be a time
# A time without its mark. The hours may be counted to 12 or to 24.
TIME = re.compile(r"(?:[01]\d|2[0-3])[0-5]\d")
MAX_NAME = 4  # maximum number of words of a name
MIN_NO_WORDS = 5  # characters; `has_no_words` does not judge shorter texts

# A number in digits of any script. A space may separate groups of three digits.
NUMBER = re.compile(r"(?:\d{1,3}(?:[ \xa0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:[.,:’'٫٬．，：]\d+)*")
# A date with full stops, which count as three numbers.
DATE = re.compile(r"(\d{4}|\d{1,2})\.(\d{1,2})\.(\d{4}|\d{1,2})")
DIGIT = re.compile(r"\d")
DECIMAL = re.compile(r"(.*)[.,٫．，](\d{1,2})")
# All kinds of placeholder but the last, which is numbers. The first pattern also finds %(name)s before a grammatical
# ending, as in Esperanto and Uzbek.
PLACEHOLDER = re.compile("|".join([r"%\(\w+\)[-+0#]*+\d*(?:\.\d+)?[sdifguxc@]", *KINDS[:-1]]))
THREE_LETTERS = re.compile(r"[^\W\d_]{3}")
REPEATED_CHARACTER = re.compile(r"([^\W\d_]|[!?])\1{4}")
REPEATED_LETTERS = re.compile(r"([^\W\d_]{2,4}?)\1{3}")
REPEATED_WORDS = re.compile(r"(?<!\S)([^\W\d_]\S*+(?: \S*+){0,3})(?: \1){2}(?!\S)")
TRIPLED = regex.compile(rf"({UNSPACED_CHARACTER})\1\1")
PUNCTUATION = ".,;:!?\"'”’“„"  # marks that are stripped from the ends of words
# Characters that may follow the final punctuation of a text.
CLOSERS = " \t\u3000\u200b\u200e\u200f\"'”’»)]}）】」』“›*_"
# The Unicode name of a punctuation mark after which a sentence goes on. Burmese has a comma named "little section".
PAUSE = re.compile("COMMA|COLON|HYPHEN|DASH|LITTLE SECTION")


def is_copy(source: str, target: str) -> bool:
    """Return whether the texts are equal in lower case. Names, placeholders and very short texts do not count."""
    if source.casefold() != target.casefold():
        return False
    text = PLACEHOLDER.sub(" ", source)
    # Count distinct words, so that "la la la" is one word.
    words = {word.strip(PUNCTUATION) for word in text.casefold().split()}
    n_letters = sum(map(str.isalpha, "".join(words)))
    has_few_words = n_letters < 4 or len(words) < 3
    if n_letters < 12 and has_few_words:
        return False
    return not (is_name(text) or is_name(target))


def is_name(text: str) -> bool:
    """Return whether a text has at most `MAX_NAME` words, all capitalized."""
    return text.istitle() and len(text.split()) <= MAX_NAME


def numbers_differ(source: str, target: str) -> bool:
    """Return whether each text has a long number that the other text lacks.

    It is no fault if only one text has such a number, because the other text may spell it out.
    """
    source_numbers, target_numbers = numbers_of(source), numbers_of(target)
    if "".join(source_numbers) == "".join(target_numbers):  # same digits, grouped differently: 555-1234, 555 12 34
        return False
    in_source = Counter(map(in_twelve_hours, source_numbers))
    in_target = Counter(map(in_twelve_hours, target_numbers))
    return has_long_number(in_source - in_target) and has_long_number(in_target - in_source)


def numbers_of(text: str) -> list[str]:
    """Return the numbers of a text, see `digits`."""
    numbers: list[str] = []
    for number in NUMBER.findall(text):
        date = DATE.fullmatch(number)
        numbers += map(digits, date.groups() if date else [number])
    return numbers


def has_long_number(numbers: Iterable[str]) -> bool:
    return any(len(number.replace(".", "")) >= LONG_NUMBER for number in numbers)


def digits(number: str) -> str:
    """Return a number in ASCII digits, without group separators, leading zeros, or zeros at the end of the decimals.

    A full stop is before the decimals, except in a short number. This may be a time, such as 22:45, 22.45 or 2245.
    """
    if not number.isascii():
        number = DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), number)
    decimals = ""
    match = DECIMAL.fullmatch(number)
    if match:
        number, decimals = match.groups()
        decimals = decimals.rstrip("0")
    whole = re.sub(r"\D", "", number).lstrip("0")
    mark = "." if decimals and len(whole) > MAX_CLOCK else ""
    return whole + mark + decimals


def in_twelve_hours(number: str) -> str:
    """Return a number that may be a time in hours from 0 to 11, such as 1045 for 2245. Return others as they are."""
    return f"{int(number) % 1200:04d}" if TIME.fullmatch(number) else number


def placeholders_differ(source: str, target: str) -> bool:
    """Return whether the texts differ in their placeholders. Numbers are not compared here."""
    return sorted(PLACEHOLDER.findall(source)) != sorted(PLACEHOLDER.findall(target))


def final(text: str) -> str:
    """Return the kind of punctuation at the end of a text.

    It is "." for full stops and exclamation marks, "?" for question marks, "," for marks such as commas, and "" for no
    punctuation.
    """
    last = text.rstrip(CLOSERS)[-1:] or " "
    name = unicodedata.name(last, "")
    if PAUSE.search(name):
        return ","
    if "QUESTION MARK" in name:
        return "?"
    # All punctuation of other scripts counts as a full stop, such as the marks of Tibetan and Khmer.
    is_stop = last in ".!" if last.isascii() else unicodedata.category(last) == "Po"
    return "." if is_stop else ""


def repeats(text: str) -> bool:
    """Return whether a text contains a repetition.

    - A letter, ! or ? occurs five times in a row.
    - Two to four letters occur four times in a row.
    - One to four words, the first of which begins with a letter, occur three times in a row.
    """
    # 1. Look for repeated characters and letters.
    if REPEATED_CHARACTER.search(text):
        return True
    words = text.lower().split()
    for word in words:
        if len(word) >= 8 and REPEATED_LETTERS.search(word):
            return True
    # 2. Look for repeated words. A phrase that occurs three times repeats at least two words.
    if len(words) < len(set(words)) + 2:
        return False
    bare_words = " ".join([word.strip(PUNCTUATION) for word in words])
    return REPEATED_WORDS.search(bare_words) is not None


def repetition_differs(source: str, target: str) -> bool:
    """Return whether only one of the texts contains a repetition."""
    source_repeats = repeats(source)
    if source_repeats == repeats(target):
        return False
    # In a script without spaces, "ha ha ha" may be three equal characters. `repeats` does not find these.
    return not TRIPLED.search(target if source_repeats else source)


def has_no_words(text: str) -> bool:
    """Return whether a text has hardly any words.

    It has no three letters in a row, and under 30 % of its characters are letters or vowel signs. A Chinese character
    counts as three letters, because it is often a word.
    """
    n_characters = len(text) - text.count(" ")
    if n_characters < MIN_NO_WORDS or THREE_LETTERS.search(text):
        return False
    n_in_words = 0
    for character in text:
        if unicodedata.category(character)[0] in "LM":
            n_in_words += 3 if unicodedata.east_asian_width(character) == "W" else 1
    return n_in_words < 0.3 * n_characters


def cut_off(source: str, target: str, z: float, without_stop: tuple[float, float]) -> bool:
    """Return whether one text is too short and lacks final punctuation, while the other text has it.

    The evidence is z²/2 - log(share). The share is that of `without_stop` for the side of the short text.

    Args:
        z: the z-score of the length ratio, NaN if a text is empty.
        without_stop: for each side, the share of lines that lack final punctuation.
    """
    if not abs(z) > SHORT_PARTNER:
        return False
    is_target_short = z < 0
    evidence = z * z / 2 - math.log(without_stop[is_target_short])
    if evidence < MIN_CUT_OFF_EVIDENCE:
        return False
    short, long = (target, source) if is_target_short else (source, target)
    return final(short) in ("", ",") and final(long) in (".", "?")


TESTS: dict[str, Callable[[str, str], bool]] = {
    "copy": is_copy,
    "numbers": numbers_differ,
    "placeholders": placeholders_differ,
    "repetition": repetition_differs,
    "blank": lambda source, target: is_blank(source) or is_blank(target),
    "no-words": lambda source, target: has_no_words(source) or has_no_words(target),
    "long": lambda source, target: max(len(source), len(target)) > MAX_CHARACTERS,
}
