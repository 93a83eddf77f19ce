"""The main script of a text, in classes that tell whether words are written with spaces between them."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Literal

import regex

from nmt.languages import script_of
from nmt.text.words import UNSPACED_CHARACTER

Script = Literal["spaced", "Hangul", "Han", "kana", "unspaced"]
# The letters of each script. The first pattern that matches a letter counts. All other letters belong to "spaced".
LETTERS: dict[Script, regex.Pattern[str]] = {
    "Hangul": regex.compile(r"\p{Hangul}"),
    "Han": regex.compile(r"\p{Han}"),
    "kana": regex.compile(r"[\p{scx=Hiragana}\p{scx=Katakana}]"),
    "unspaced": regex.compile(UNSPACED_CHARACTER),
}
# ISO 15924 codes of the scripts of languages.
CODES: dict[Script, str] = {
    "Hangul": "Kore Hang",
    "Han": "Hans Hant Hani",
    "kana": "Jpan Hira Kana",
    "unspaced": "Thai Laoo Khmr Mymr Tibt Java Bali Lana Talu Tale Tavt Cham Yiii Bopo",
}
# A text is not "spaced" if at least this share of its letters, 0-1, is in scripts without spaces or in Hangul.
MAJORITY = 0.5  # this share if the language is unknown, or is written with spaces and not in Hangul
SOME = 0.05  # this share if the language is written without spaces or in Hangul; the other letters may be foreign names
KANA = 0.1  # a text in Han is Japanese if more than this share of its letters is kana; "spaced" letters do not count


def main_script(language: str, lines: Iterable[str]) -> Script:
    """Return the main script of a text, which the letters and the language of the text determine.

    `language` is a code, or empty if unknown. The language matters where the letters alone do not determine the script:
    in a text in Han, which may be Chinese or Japanese; in a text in two scripts; and in a text without letters.
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
    """Return the script of a language, given by its code; "spaced" if the code is unknown."""
    code = script_of(language)
    for script, codes in CODES.items():
        if code and code in codes.split():
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
    """Return the script of a letter."""
    for script, pattern in LETTERS.items():
        if pattern.match(letter):
            return script
    return "spaced"
