"""Tests for faults of a pair that can be found in any language.

Examples are numbers or placeholders that differ between the two texts.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

import regex

from nmt.text.lines import is_blank
from nmt.text.placeholders import KINDS
from nmt.text.words import UNSPACED_CHARACTER

MAX_CHARACTERS = 1_000  # length of the longest text that is no fault; about the length of `data.max_length` pieces
MAX_Z = 5.0  # greatest absolute z-score of a length ratio, see `lengths.Lengths.z`, that is no fault
MIN_LONGER = 20  # characters; if both texts of a pair are shorter, such as single words, any length ratio is right
SHORT_PARTNER = 1.5  # a text may be cut off only if the absolute z-score of the length ratio is greater
MIN_CUT_OFF_EVIDENCE = 5.5  # nats; with less evidence, a text does not count as cut off
# Minimum number of digits of a long number. Years and sums of money are long numbers; times of day and measures usually
# are not.
LONG_NUMBER = 4
MAX_NAME = 4  # maximum number of words of a name
MIN_NO_WORDS = 5  # characters; `has_no_words` does not judge shorter texts

# A number in digits of any script. It may contain a space only before a group of three digits, so that two consecutive
# numbers do not count as one number.
NUMBER = re.compile(r"(?:\d{1,3}(?:[ \xa0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:[.,:’'٫٬]\d+)*")
DIGIT = re.compile(r"\d")
DECIMAL = re.compile(r"(.*)[.,٫](\d{1,2})")
# All kinds of placeholder except the last kind. The last kind is numbers, which `numbers_differ` compares. The first
# pattern here is for %(name)s that is directly followed by a grammatical ending, as in Esperanto and Uzbek.
PLACEHOLDER = re.compile("|".join([r"%\(\w+\)[-+0#]*+\d*(?:\.\d+)?[sdifguxc@]", *KINDS[:-1]]))
THREE_LETTERS = re.compile(r"[^\W\d_]{3}")
REPEATED_LETTERS = re.compile(r"([^\W\d_]{2,4}?)\1{3}")
TRIPLED = regex.compile(rf"({UNSPACED_CHARACTER})\1\1")
PUNCTUATION = ".,;:!?\"'”’“„"  # marks that are stripped from the ends of words
# Characters that may follow the final punctuation of a text.
CLOSERS = " \t\u3000\u200b\u200e\u200f\"'”’»)]}）】」』“›*_"
# For each punctuation mark: the kind of final punctuation, see the function `final`.
ENDS = {
    **dict.fromkeys(".。．!！…।", "."),
    **dict.fromkeys("?？؟;፧", "?"),
    **dict.fromkeys(":：,，、;；-–—،؛၊፣፤፥", ","),
}


def is_copy(source: str, target: str) -> bool:
    """Return whether the texts are equal except for case, and have more than placeholders, a name or a few words."""
    if source.casefold() != target.casefold():
        return False
    text = PLACEHOLDER.sub(" ", source)
    # Count distinct words. So "la la la", which is the same in all languages, is one word.
    words = {word.strip(PUNCTUATION) for word in text.casefold().split()}
    n_letters = sum(map(str.isalpha, "".join(words)))
    has_few_words = n_letters < 4 or len(words) < 3
    if n_letters < 12 and has_few_words:
        return False
    return not (is_name(text) or is_name(target))


def is_name(text: str) -> bool:
    """Return whether a text has at most `MAX_NAME` words, each with a capital first letter and then small letters."""
    return text.istitle() and len(text.split()) <= MAX_NAME


def numbers_differ(source: str, target: str) -> bool:
    """Return whether each text has a number of `LONG_NUMBER` digits or more that the other text lacks.

    Separators of digits do not count. A difference in shorter numbers is no fault. If only one text has a number that
    the other text lacks, this is no fault either, because the other text may spell out the number, or convert the
    number to another unit.
    """
    source_numbers = list(map(digits, NUMBER.findall(source)))
    target_numbers = list(map(digits, NUMBER.findall(target)))
    if "".join(source_numbers) == "".join(target_numbers):  # same digits, grouped differently: 555-1234, 555 12 34
        return False
    in_source, in_target = Counter(source_numbers), Counter(target_numbers)
    return has_long_number(in_source - in_target) and has_long_number(in_target - in_source)


def has_long_number(numbers: Iterable[str]) -> bool:
    return any(len(number) >= LONG_NUMBER for number in numbers)


def digits(number: str) -> str:
    """Return a number in ASCII digits, without separators, leading zeros, or zeros at the end of the decimals."""
    if not number.isascii():
        number = DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), number)
    decimal = DECIMAL.fullmatch(number)
    if decimal:
        number = decimal[1] + decimal[2].rstrip("0")
    return re.sub(r"\D", "", number).lstrip("0")


def placeholders_differ(source: str, target: str) -> bool:
    """Return whether the texts have different placeholders, except numbers.

    Placeholders are what `nmt translate --protect-placeholders` keeps.
    """
    return sorted(PLACEHOLDER.findall(source)) != sorted(PLACEHOLDER.findall(target))


def final(text: str) -> str:
    """Return the kind of punctuation at the end of a text.

    The kind is "." for full stops and exclamation marks, "?" for question marks, "," for other marks in `ENDS`, and ""
    for a text without final punctuation.
    """
    last = text.rstrip(CLOSERS)[-1:]
    if last in ENDS or last.isascii():
        return ENDS.get(last, "")
    # Other punctuation counts as a full stop, because many scripts, such as Tibetan and Burmese, have a special full
    # stop.
    return "." if unicodedata.category(last) == "Po" else ""


def repeats(text: str) -> bool:
    """Return whether a text contains a repetition.

    A repetition is a letter, ! or ? five times in a row, two to four letters four times in a row, or one to four words
    three times in a row. Single characters and words are compared as substrings and slices, because regular expressions
    with back references take ten times as long.
    """
    # 1. Look for repeated characters and letters.
    for character in set(text):
        if character * 5 in text and (character.isalpha() or character in "!?"):
            return True
    words = text.lower().split()
    for word in words:
        if len(word) >= 8 and REPEATED_LETTERS.search(word):
            return True
    # 2. Look for repeated words. If a word occurs three times, there are at least two fewer distinct words than words.
    if len(words) < len(set(words)) + 2:
        return False
    words = [word.strip(PUNCTUATION) for word in words]
    return any(repeats_words(words, n) for n in range(1, 5))


def repeats_words(words: list[str], n: int) -> bool:
    """Return whether a phrase of `n` words, which begins with a letter, occurs three times in a row."""
    for start in range(len(words) - 3 * n + 1):
        phrase = words[start : start + n]
        is_repeated = words[start : start + 3 * n] == phrase * 3
        if is_repeated and phrase[0][:1].isalpha():
            return True
    return False


def repetition_differs(source: str, target: str) -> bool:
    """Return whether one text contains a repetition, and the other text does not."""
    source_repeats = repeats(source)
    if source_repeats == repeats(target):
        return False
    # In a script without spaces, the translation of "ha ha ha" may be three equal characters. `repeats` does not count
    # three equal characters as a repetition.
    return not TRIPLED.search(target if source_repeats else source)


def has_no_words(text: str) -> bool:
    """Return whether a text has hardly any words.

    Such a text has no three letters in a row, and under 30 % of its characters are letters or vowel signs. A Chinese
    character counts as three letters, because it is often a word.
    """
    n_characters = len(text) - text.count(" ")
    if n_characters < MIN_NO_WORDS or THREE_LETTERS.search(text):
        return False
    n_in_words = 0
    for character in text:
        if unicodedata.category(character)[0] in "LM":
            n_in_words += 3 if character > "\u2e7f" else 1
    return n_in_words < 0.3 * n_characters


def cut_off(source: str, target: str, z: float, without_stop: tuple[float, float]) -> bool:
    """Return whether one text is cut off: it is too short for the other text, and lacks final punctuation.

    The other text must have final punctuation. The evidence for a text that is cut off is the sum of two terms: z²/2,
    and -log of the share of lines that lack final punctuation on the side of the short text.

    Args:
        z: the z-score of the length ratio. If a text is empty, z is NaN, and neither text counts as cut off.
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
