"""Emphasis of Markdown: delimiters such as `**` are written so that they open and close, whatever their neighbors are.

CommonMark does not close `**` between punctuation and a letter, as in `**…？**我`. In scripts without spaces, this is
usual. `OPENED` and `CLOSED` mark delimiters in a translation until all characters beside them are known.
"""

import regex

OPENED, CLOSED = "\ufdd0", "\ufdd1"  # Unicode keeps these two for use inside of programs
MARKS = str.maketrans("", "", OPENED + CLOSED)
SPACE = "&#8203;"  # no width; for CommonMark, its "&" and ";" are punctuation
_OPENERS, _CLOSERS = rf"(?:{OPENED}[*_~]+)++", rf"(?:[*_~]++{CLOSED})++"
_LETTER = r"[^\s\p{P}\p{S}]"
IN_WORD = regex.compile(rf"{_LETTER}{OPENED}_|_{CLOSED}{_LETTER}")
UNDERSCORES = regex.compile(rf"(?<={OPENED})_+|_+(?={CLOSED})")
SENTENCE_END = regex.compile(rf"([。，、？！；：…,.!?:]++)({_CLOSERS})(?={_LETTER})")
UNCLOSED = regex.compile(rf"(?<=[\p{{P}}\p{{S}}]){_CLOSERS}(?={_LETTER})|{CLOSED}(?={OPENED})")
UNOPENED = regex.compile(rf"(?<=[^\s\p{{P}}\p{{S}}{CLOSED}])(?={_OPENERS}[\p{{P}}\p{{S}}])")


def close_emphasis(text: str) -> str:
    """Correct the marked delimiters of a translation, and remove the marks."""
    # 1. In a word, "_" is no delimiter, but "*" is one.
    if IN_WORD.search(text):
        text = UNDERSCORES.sub(lambda run: "*" * len(run[0]), text)
    # 2. Move the end of a sentence out of the emphasis. Put a space of no width beside other punctuation.
    text = SENTENCE_END.sub(r"\2\1", text)
    text = UNCLOSED.sub(rf"\g<0>{SPACE}", text)
    text = UNOPENED.sub(SPACE, text)
    return unmarked(text)


def unmarked(text: str) -> str:
    """Remove the marks of delimiters from a text."""
    return text.translate(MARKS)
