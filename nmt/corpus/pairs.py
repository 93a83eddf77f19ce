"""Faults of a pair that show in any language: numbers, placeholders and so on that differ between the two texts."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

from nmt.text.lines import is_blank
from nmt.text.placeholders import KINDS
from nmt.text.words import UNSPACED_CHARACTER

MAX_CHARACTERS = 1_000  # about data.max_length pieces
MAX_Z = 5.0  # standard deviations of the logarithm of the length ratio
MIN_LONGER = 20  # characters of the longer text: words of a dictionary have very different lengths
SHORT_PARTNER = 1.5  # standard deviations below the usual length of a translation
MIN_CUT_OFF_EVIDENCE = 5.5  # nats of evidence that a text is cut off
LONG_NUMBER = 4  # digits of years and sums; times, measures and small numbers have fewer
MAX_NAME = 4  # words
MIN_NO_WORDS = 5  # characters; `has_no_words` does not judge shorter texts

# Digits of any script. Spaces separate groups of three digits only, so that two numbers in a row stay two.
NUMBER = re.compile(r"(?:\d{1,3}(?:[ \xa0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:[.,:’'٫٬]\d+)*")
DIGIT = re.compile(r"\d")
DECIMAL = re.compile(r"(.*)[.,٫](\d{1,2})")
# Numbers, the last of the kinds, have a test of their own. An ending may follow %(name)s, as in Esperanto and Uzbek.
PLACEHOLDER = re.compile("|".join([r"%\(\w+\)[-+0#]*+\d*(?:\.\d+)?[sdifguxc@]", *KINDS[:-1]]))
THREE_LETTERS = re.compile(r"[^\W\d_]{3}")
REPEATED_LETTERS = re.compile(r"([^\W\d_]{2,4}?)\1{3}")
TRIPLED = re.compile(rf"({UNSPACED_CHARACTER})\1\1")
PUNCTUATION = ".,;:!?\"'”’“„"  # around words
CLOSERS = " \t\u3000\u200b\u200e\u200f\"'”’»)]}）】」』“›*_"
ENDS = {
    **dict.fromkeys(".。．!！…।", "."),
    **dict.fromkeys("?？؟;፧", "?"),
    **dict.fromkeys(":：,，、;；-–—،؛၊፣፤፥", ","),
}


def is_copy(source: str, target: str) -> bool:
    """Return whether the texts are the same, and have words that are neither placeholders nor a name."""
    if source.casefold() != target.casefold():
        return False
    text = PLACEHOLDER.sub(" ", source)
    words = {word.strip(PUNCTUATION) for word in text.casefold().split()}  # "la la la" is the same in all languages
    n_letters = sum(map(str.isalpha, "".join(words)))
    has_few_words = n_letters < 4 or len(words) < 3
    if n_letters < 12 and has_few_words:
        return False
    return not (is_name(text) or is_name(target))


def is_name(text: str) -> bool:
    """Return whether a few words all begin with a capital letter and go on in small ones."""
    return text.istitle() and len(text.split()) <= MAX_NAME


def numbers_differ(source: str, target: str) -> bool:
    """Return whether each text has a number of `LONG_NUMBER` digits or more that the other lacks, separators aside.

    A shorter number, or one on one side only, may be spelled in words or converted to another unit.
    """
    source_numbers = [digits(number) for number in NUMBER.findall(source)]
    target_numbers = [digits(number) for number in NUMBER.findall(target)]
    if "".join(source_numbers) == "".join(target_numbers):  # grouped: 555-1234 and 555 12 34
        return False
    in_source, in_target = Counter(source_numbers), Counter(target_numbers)
    return has_long_number(in_source - in_target) and has_long_number(in_target - in_source)


def has_long_number(numbers: Iterable[str]) -> bool:
    return any(len(number) >= LONG_NUMBER for number in numbers)


def digits(number: str) -> str:
    """Return a number in ASCII digits, without separators, leading zeros, and zeros at the end of the decimals."""
    if not number.isascii():
        number = DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), number)
    decimal = DECIMAL.fullmatch(number)
    if decimal:
        number = decimal[1] + decimal[2].rstrip("0")
    return re.sub(r"\D", "", number).lstrip("0")


def placeholders_differ(source: str, target: str) -> bool:
    """Return whether what `nmt translate --protect-placeholders` keeps differs, numbers excepted."""
    return sorted(PLACEHOLDER.findall(source)) != sorted(PLACEHOLDER.findall(target))


def final(text: str) -> str:
    """Return the kind of punctuation that ends a text: . ? , or "" for none."""
    last = text.rstrip(CLOSERS)[-1:]
    if last in ENDS or last.isascii():
        return ENDS.get(last, "")
    # Scripts have their own full stops, such as Tibetan, Khmer, Burmese and Ethiopic ones.
    return "." if unicodedata.category(last) == "Po" else ""


def repeats(text: str) -> bool:
    """Return whether a text repeats a character five times, two to four letters four times, or a few words three times.

    Compares substrings and slices: regular expressions with back references take ten times as long.
    """
    # Characters and letters.
    for character in set(text):
        if character * 5 in text and (character.isalpha() or character in "!?"):
            return True
    words = text.lower().split()
    for word in words:
        if len(word) >= 8 and REPEATED_LETTERS.search(word):
            return True
    # Words. Of three in a row, two have occurred before.
    if len(words) < len(set(words)) + 2:
        return False
    words = [word.strip(PUNCTUATION) for word in words]
    return any(repeats_words(words, n) for n in range(1, 5))


def repeats_words(words: list[str], n: int) -> bool:
    """Return whether some `n` words come three times in a row."""
    for start in range(len(words) - 3 * n + 1):
        phrase = words[start : start + n]
        is_repeated = words[start : start + 3 * n] == phrase * 3
        if is_repeated and phrase[0][:1].isalpha():
            return True
    return False


def repetition_differs(source: str, target: str) -> bool:
    """Return whether only one of the texts repeats something."""
    source_repeats = repeats(source)
    if source_repeats == repeats(target):
        return False
    # "Ha ha ha" may be three characters in a script without spaces.
    unrepeated = target if source_repeats else source
    return not TRIPLED.search(unrepeated)


def has_no_words(text: str) -> bool:
    """Return whether no three letters follow each other, and under 30 % of the characters are letters or vowel signs.

    A Chinese character, which is often a word, counts as three.
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
    """Return whether one text is cut off: it is too short for its partner, and lacks the partner's final punctuation.

    The evidence is the sum of two terms: -log of the share of lines on its side that lack final punctuation, and z²/2,
    where z is the deviation of the length ratio in standard deviations; NaN if a text is empty.
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
