"""Tests for faults of a pair that can be found in any language.

Examples are numbers or placeholders that differ between the two texts.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

from nmt.text.lines import is_blank
from nmt.text.placeholders import KINDS
from nmt.text.words import UNSPACED_CHARACTER

MAX_CHARACTERS = 1_000  # longest text that is no fault; about as long as `data.max_length` pieces
MAX_Z = 5.0  # greatest absolute z-score of a length ratio, see `lengths.Lengths.z`, that is no fault
MIN_LONGER = 20  # characters; a pair of shorter texts, such as single words, may have any length ratio
SHORT_PARTNER = 1.5  # a text may be cut off only if the absolute z-score of the length ratio is greater
MIN_CUT_OFF_EVIDENCE = 5.5  # nats; with less evidence, a text does not count as cut off
LONG_NUMBER = 4  # digits; years and sums of money have this many or more, most times and measures fewer
MAX_NAME = 4  # most words of a name
MIN_NO_WORDS = 5  # characters; `has_no_words` does not judge shorter texts

# A number in digits of any script. It may contain a space only before a group of three digits, so that two numbers in a
# row do not count as one.
NUMBER = re.compile(r"(?:\d{1,3}(?:[ \xa0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:[.,:’'٫٬]\d+)*")
DIGIT = re.compile(r"\d")
DECIMAL = re.compile(r"(.*)[.,٫](\d{1,2})")
# All kinds of placeholder except the last, which is numbers: `numbers_differ` compares numbers. The first pattern is
# for %(name)s with an ending after it, as in Esperanto and Uzbek.
PLACEHOLDER = re.compile("|".join([r"%\(\w+\)[-+0#]*+\d*(?:\.\d+)?[sdifguxc@]", *KINDS[:-1]]))
THREE_LETTERS = re.compile(r"[^\W\d_]{3}")
REPEATED_LETTERS = re.compile(r"([^\W\d_]{2,4}?)\1{3}")
TRIPLED = re.compile(rf"({UNSPACED_CHARACTER})\1\1")
PUNCTUATION = ".,;:!?\"'”’“„"  # stripped from the ends of words
CLOSERS = " \t\u3000\u200b\u200e\u200f\"'”’»)]}）】」』“›*_"
# The kind of final punctuation, by character.
ENDS = {
    **dict.fromkeys(".。．!！…।", "."),
    **dict.fromkeys("?？؟;፧", "?"),
    **dict.fromkeys(":：,，、;；-–—،؛၊፣፤፥", ","),
}


def is_copy(source: str, target: str) -> bool:
    """Return whether the texts are equal, case aside, and are more than placeholders, a name or a few short words."""
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

    Separators of digits do not count. A shorter number is no fault, and if only one text has a number that the other
    lacks, that is no fault either: the other text may spell it out, or convert it to another unit.
    """
    source_numbers = [digits(number) for number in NUMBER.findall(source)]
    target_numbers = [digits(number) for number in NUMBER.findall(target)]
    if "".join(source_numbers) == "".join(target_numbers):  # the same digits in other groups: 555-1234 and 555 12 34
        return False
    in_source, in_target = Counter(source_numbers), Counter(target_numbers)
    return has_long_number(in_source - in_target) and has_long_number(in_target - in_source)


def has_long_number(numbers: Iterable[str]) -> bool:
    return any(len(number) >= LONG_NUMBER for number in numbers)


def digits(number: str) -> str:
    """Return a number in ASCII digits, without separators, leading zeros, or zeros at the end of its decimals."""
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

    It is "." for full stops and exclamation marks, "?" for question marks, "," for other marks in `ENDS`, or "".
    """
    last = text.rstrip(CLOSERS)[-1:]
    if last in ENDS or last.isascii():
        return ENDS.get(last, "")
    # Other punctuation counts as a full stop, because many scripts have one of their own, such as Tibetan and Burmese.
    return "." if unicodedata.category(last) == "Po" else ""


def repeats(text: str) -> bool:
    """Return whether a text contains a repetition.

    A repetition is a letter, ! or ? five times in a row, two to four letters four times, or one to four words three
    times.
    Substrings and slices are compared, because regular expressions with back references take ten times as long.
    """
    # 1. Look for repeated characters and letters.
    for character in set(text):
        if character * 5 in text and (character.isalpha() or character in "!?"):
            return True
    words = text.lower().split()
    for word in words:
        if len(word) >= 8 and REPEATED_LETTERS.search(word):
            return True
    # 2. Look for repeated words. If a word occurs three times, there are two fewer distinct words than words.
    if len(words) < len(set(words)) + 2:
        return False
    words = [word.strip(PUNCTUATION) for word in words]
    return any(repeats_words(words, n) for n in range(1, 5))


def repeats_words(words: list[str], n: int) -> bool:
    """Return whether a phrase of `n` words occurs three times in a row."""
    for start in range(len(words) - 3 * n + 1):
        phrase = words[start : start + n]
        is_repeated = words[start : start + 3 * n] == phrase * 3
        if is_repeated and phrase[0][:1].isalpha():
            return True
    return False


def repetition_differs(source: str, target: str) -> bool:
    """Return whether one text contains a repetition, and the other does not."""
    source_repeats = repeats(source)
    if source_repeats == repeats(target):
        return False
    # In a script without spaces, "ha ha ha" may be one character three times, which `repeats` does not count.
    unrepeated = target if source_repeats else source
    return not TRIPLED.search(unrepeated)


def has_no_words(text: str) -> bool:
    """Return whether a text has hardly any words.

    It has no three letters in a row, and under 30 % of its characters are letters or vowel signs. A Chinese character,
    which is often a word, counts as three letters.
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
    """Return whether one text is cut off: it is too short for its partner, and lacks final punctuation.

    The partner must have final punctuation. The evidence is the sum of two terms: -log of the share of lines on the
    short side that lack final punctuation, and z²/2.

    Args:
        z: the z-score of the length ratio; NaN if a text is empty, which is then not cut off.
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
