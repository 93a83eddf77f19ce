"""Accelerators: the sign before the letter that chooses a label by the keyboard, as in `_Save` or `E&xit`.

The sign is taken out before the translation. The translation gets it before its first letter. A language without
letters of the keyboard has it after the text, with the letter of the source: `保存(_S)`.
"""

from typing import NamedTuple

import regex

from nmt.text.placeholders import SPAN
from nmt.text.words import KEY_LETTER

# The sign of an accelerator. In the middle of a word, `_` needs a capital before it, because `file_name` is a name in
# code, and `&` needs a small letter after it, because of "Q&A". `&amp;` is an entity, and `&b=1` is part of an address.
SIGN = regex.compile(
    r"(?:(?<![\w&])[_&](?=[^\W\d_])|(?<=(?<!\w)\p{Lu}\p{Ll}*+)_(?=\p{Ll})|(?<=\p{L})&(?=\p{Ll}))(?!\w*+[;=])"
)
# Chinese and Japanese labels have the sign and the letter in parentheses.
APPENDED = regex.compile(r"\(([_&])(\w)\)")
MAX_LENGTH = 100  # a longer text is no label
LETTER = regex.compile(rf"(?:{SPAN.pattern})(*SKIP)(*FAIL)|{KEY_LETTER}")
END = regex.compile(r"(?<![\s:：.…])[\s:：.…]*+\Z")


class Accelerator(NamedTuple):
    """The sign and the letter of an accelerator. Both are empty if a text has none."""

    sign: str = ""
    letter: str = ""

    def restored(self, text: str) -> str:
        """Write the sign into a translation."""
        if not self.sign:
            return text
        letter = LETTER.search(text)
        if letter:
            return text[: letter.start()] + self.sign + text[letter.start() :]
        end = END.search(text).start()  # type: ignore[union-attr]
        return f"{text[:end]}({self.sign}{self.letter.upper()}){text[end:]}"


def without_accelerator(text: str) -> tuple[str, Accelerator]:
    """Return a text without its accelerator, and the accelerator. A text with several signs has none."""
    if len(text) > MAX_LENGTH or not ("_" in text or "&" in text):
        return text, Accelerator()
    # Placeholders such as {file_name} have other signs. Blank them.
    blanked = SPAN.sub(lambda span: " " * len(span[0]), text)
    appended = APPENDED.search(blanked)
    if appended:
        return text[: appended.start()] + text[appended.end() :], Accelerator(appended[1], appended[2])
    signs = list(SIGN.finditer(blanked))
    if len(signs) != 1 or blanked.count("_") > 1:
        return text, Accelerator()
    start, end = signs[0].span()
    return text[:start] + text[end:], Accelerator(text[start], text[end])
