"""Scripts by what they say about the borders of words: whether text is written with spaces between words."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Literal

Script = Literal["spaced", "Hangul", "Han", "kana", "unspaced"]
# How the Unicode names of a script's letters begin. Letters with other names are spaced.
LETTER_NAMES: dict[Script, tuple[str, ...]] = {
    "Hangul": ("HANGUL",),
    "Han": ("CJK", "IDEOGRAPHIC"),
    "kana": ("HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA"),
    # TAI is for Tai Le, Tai Tham and Tai Viet.
    "unspaced": ("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "TAI", "NEW TAI LUE", "JAVANESE", "BALINESE"),
}
# Chinese languages by ISO 639 code: Literary Chinese, Wu, Min Nan, Hakka, Gan, Xiang and Min Dong are regional.
MANDARIN_AND_CANTONESE = ["zh", "zho", "chi", "cmn", "yue"]
REGIONAL_CHINESE = ["lzh", "wuu", "nan", "hak", "gan", "hsn", "cdo"]
# Languages that are written without spaces, and Korean.
LANGUAGES: dict[Script, list[str]] = {
    "Han": MANDARIN_AND_CANTONESE + REGIONAL_CHINESE,
    "kana": ["ja", "jpn"],
    "Hangul": ["ko", "kor"],
    "unspaced": ["th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "bo", "bod", "tib", "dz", "dzo"],
}
# Shares of the letters, 0-1.
MAJORITY = 0.5  # a text is in an unspaced script whatever its language is said to be
SOME = 0.05  # a text in a language with an unspaced script really is in this script, with foreign names
KANA = 0.1  # of Han and kana: the text is Japanese, not Chinese


def main_script(language: str, lines: Iterable[str]) -> Script:
    """Return the script of a text, mostly by its letters.

    `language` is an ISO 639 code, empty if unknown. It decides what the letters leave open: whether Han is Chinese or
    Japanese, what a text in two scripts is, and what a text without letters would be in.
    """
    expected = script_of_language(language)
    counts = count_scripts(lines)
    n_letters = counts.total()
    if n_letters == 0:
        return expected

    # 1. Is it in an unspaced script, or in Hangul?
    n_unspaced = n_letters - counts.pop("spaced", 0)
    enough = MAJORITY if expected == "spaced" else SOME
    if n_unspaced < enough * n_letters or n_unspaced == 0:
        return "spaced"

    # 2. In which? Japanese mixes Han with kana; a short line may have no kana.
    script, _ = counts.most_common(1)[0]
    is_japanese = expected == "kana" or counts["kana"] > KANA * n_unspaced
    return "kana" if script == "Han" and is_japanese else script


def script_of_language(language: str) -> Script:
    """Return the script of a language by its ISO 639 code."""
    for script, languages in LANGUAGES.items():
        if language in languages:
            return script
    return "spaced"


def count_scripts(lines: Iterable[str]) -> Counter[Script]:
    """Count the letters of each script. Marks, digits and punctuation are no letters."""
    characters = Counter(chain.from_iterable(lines))
    counts: Counter[Script] = Counter()
    for character, n in characters.items():
        if character.isalpha():
            counts[script_of_letter(character)] += n
    return counts


def script_of_letter(letter: str) -> Script:
    """Return the script of a letter by its Unicode name."""
    name = unicodedata.name(letter, "")
    for script, beginnings in LETTER_NAMES.items():
        if name.startswith(beginnings):
            return script
    return "spaced"
