"""Scripts by what they say about the borders of words: whether text is written with spaces between words."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Literal

Script = Literal["spaced", "Hangul", "Han", "kana", "unspaced"]
# The script of a letter, by the beginning of its Unicode name. All others are spaced.
SCRIPTS: dict[str, Script] = {
    "HANGUL": "Hangul",
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "HIRAGANA": "kana",
    "KATAKANA": "kana",
    "HALFWIDTH KATAKANA": "kana",
    "THAI": "unspaced",
    "LAO": "unspaced",
    "KHMER": "unspaced",
    "MYANMAR": "unspaced",
    "TIBETAN": "unspaced",
    "TAI": "unspaced",  # Tai Le, Tai Tham, Tai Viet
    "NEW TAI LUE": "unspaced",
    "JAVANESE": "unspaced",
    "BALINESE": "unspaced",
}
# Chinese languages by ISO 639 code: Literary Chinese, Wu, Min Nan, Hakka, Gan, Xiang and Min Dong are regional.
MANDARIN_AND_CANTONESE = ("zh", "zho", "chi", "cmn", "yue")
REGIONAL_CHINESE = ("lzh", "wuu", "nan", "hak", "gan", "hsn", "cdo")
# The script of languages that are written without spaces, and of Korean.
SCRIPT_OF_LANGUAGE: dict[str, Script] = {
    **dict.fromkeys((*MANDARIN_AND_CANTONESE, *REGIONAL_CHINESE), "Han"),
    **dict.fromkeys(("ja", "jpn"), "kana"),
    **dict.fromkeys(("ko", "kor"), "Hangul"),
    **dict.fromkeys(("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur"), "unspaced"),
    **dict.fromkeys(("bo", "bod", "tib", "dz", "dzo"), "unspaced"),
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
    expected = SCRIPT_OF_LANGUAGE.get(language, "spaced")
    counts = count_scripts(lines)
    n_letters = counts.total()
    if n_letters == 0:
        return expected
    n_unspaced = n_letters - counts.pop("spaced", 0)
    enough = MAJORITY if expected == "spaced" else SOME
    if n_unspaced < enough * n_letters or n_unspaced == 0:
        return "spaced"
    script, _ = counts.most_common(1)[0]
    # Japanese mixes Han with kana; a short line may have no kana.
    is_japanese = expected == "kana" or counts["kana"] > KANA * n_unspaced
    if script == "Han" and is_japanese:
        return "kana"
    return script


def count_scripts(lines: Iterable[str]) -> Counter[Script]:
    """Count the letters of each script. Marks, digits and punctuation are no letters."""
    characters = Counter(chain.from_iterable(lines))
    counts: Counter[Script] = Counter()
    for character, n in characters.items():
        if character.isalpha():
            counts[script_of(character)] += n
    return counts


def script_of(letter: str) -> Script:
    name = unicodedata.name(letter, "")
    for beginning, script in SCRIPTS.items():
        if name.startswith(beginning):
            return script
    return "spaced"
