"""The main script of a text, in classes that tell whether words are written with spaces between them."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Literal

Script = Literal["spaced", "Hangul", "Han", "kana", "unspaced"]
# The Unicode name of each letter of a script begins with one of these strings. All other letters belong to "spaced".
LETTER_NAMES: dict[Script, tuple[str, ...]] = {
    "Hangul": ("HANGUL",),
    "Han": ("CJK", "IDEOGRAPHIC"),
    "kana": ("HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA"),
    # "TAI" covers Tai Le, Tai Tham and Tai Viet.
    "unspaced": ("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "TAI", "NEW TAI LUE", "JAVANESE", "BALINESE"),
}
# ISO 639 codes of Chinese languages. The list `REGIONAL_CHINESE` contains Literary Chinese, Wu, Min Nan, Hakka, Gan,
# Xiang and Min Dong.
MANDARIN_AND_CANTONESE = ["zh", "zho", "chi", "cmn", "yue"]
REGIONAL_CHINESE = ["lzh", "wuu", "nan", "hak", "gan", "hsn", "cdo"]
# ISO 639 codes of the languages that are written without spaces, and of Korean.
LANGUAGES: dict[Script, list[str]] = {
    "Han": MANDARIN_AND_CANTONESE + REGIONAL_CHINESE,
    "kana": ["ja", "jpn"],
    "Hangul": ["ko", "kor"],
    "unspaced": ["th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "bo", "bod", "tib", "dz", "dzo"],
}
# A text is not "spaced" if at least this share of its letters, 0-1, is in scripts without spaces or in Hangul.
MAJORITY = 0.5  # this share if the language is unknown, or is written with spaces and not in Hangul
SOME = 0.05  # this share if the language is written without spaces or in Hangul; the other letters may be foreign names
# A text that is mostly in Han is Japanese if kana are more than this share, 0-1, of its letters that are not "spaced".
KANA = 0.1


def main_script(language: str, lines: Iterable[str]) -> Script:
    """Return the main script of a text, which the letters and the language of the text determine.

    `language` is an ISO 639 code, or empty if unknown. The language matters where the letters alone do not determine
    the script: in a text in Han, which may be Chinese or Japanese; in a text in two scripts; and in a text without
    letters.
    """
    expected = script_of_language(language)
    counts = count_scripts(lines)
    n_letters = counts.total()
    if n_letters == 0:
        return expected

    # 1. Find out whether the text is in an unspaced script or in Hangul.
    n_unspaced = n_letters - counts.pop("spaced", 0)
    enough = MAJORITY if expected == "spaced" else SOME
    if n_unspaced < enough * n_letters or n_unspaced == 0:
        return "spaced"

    # 2. Choose the most frequent script except "spaced". A Japanese text may have more Han than kana, or no kana.
    script, _ = counts.most_common(1)[0]
    is_japanese = expected == "kana" or counts["kana"] > KANA * n_unspaced
    return "kana" if script == "Han" and is_japanese else script


def script_of_language(language: str) -> Script:
    """Return the script of a language, given by its ISO 639 code; "spaced" if the code is unknown."""
    for script, languages in LANGUAGES.items():
        if language in languages:
            return script
    return "spaced"


def count_scripts(lines: Iterable[str]) -> Counter[Script]:
    """Count the letters of each script. Marks, digits and punctuation do not count."""
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
