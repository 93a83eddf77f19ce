"""Delimiters of Markdown: emphasis opens and closes whatever its neighbors are, and reference links keep their labels.

CommonMark does not close `**` between punctuation and a letter, as in `**…？**我`. In scripts without spaces, this
is usual. A link such as `[book]` is identified by its text, so with another text, it needs a label. Delimiters are
marked until the translation is known.
"""

import regex

from nmt.text.words import CJK_CLAUSE_MARKS, END_MARKS

OPENED, CLOSED, LABEL = "\ufdd0", "\ufdd1", "\ufdd2"  # Unicode keeps these three for use inside of programs
MARKS = str.maketrans("", "", OPENED + CLOSED)
REFERENCE = regex.compile(rf"(\](?:\[\])?+){LABEL}([^{LABEL}]*){LABEL}")
SPACE = "&#8203;"  # no width; for CommonMark, its "&" and ";" are punctuation
_OPENERS, _CLOSERS = rf"(?:{OPENED}[*_~]+)++", rf"(?:[*_~]++{CLOSED})++"
_LETTER = r"[^\s\p{P}\p{S}]"
EMPTY = regex.compile(rf"{OPENED}([*_~]+)\1{CLOSED}")
IN_WORD = regex.compile(rf"{_LETTER}{OPENED}_|_{CLOSED}{_LETTER}")
UNDERSCORES = regex.compile(rf"(?<={OPENED})_+|_+(?={CLOSED})")
SENTENCE_END = regex.compile(rf"([{END_MARKS}{CJK_CLAUSE_MARKS},:]++)({_CLOSERS})(?={_LETTER})")
UNCLOSED = regex.compile(
    rf"(?<=(?![*_~])[\p{{P}}\p{{S}}]){_CLOSERS}(?={_LETTER})|{CLOSED}(?={OPENED}[*_~])|(?<=`)(?={OPENED}`)"
)
UNOPENED = regex.compile(rf"(?<=[^\s\p{{P}}\p{{S}}{CLOSED}])(?={_OPENERS}{OPENED}?[\p{{P}}\p{{S}}])")


def close_emphasis(text: str) -> str:
    """Correct the marked delimiters of a translation, and remove the marks."""
    text = EMPTY.sub("", text)  # all words have left the emphasis
    # 1. In a word, "_" is no delimiter, but "*" is one.
    if IN_WORD.search(text):
        text = UNDERSCORES.sub(lambda run: "*" * len(run[0]), text)
    # 2. Move the end of a sentence out of the emphasis. Put a space of no width beside other punctuation.
    text = SENTENCE_END.sub(r"\2\1", text)
    text = UNCLOSED.sub(rf"\g<0>{SPACE}", text)
    text = UNOPENED.sub(SPACE, text)
    return unmarked(text)


def link_end(text: str, end: str) -> str:
    """Return `end`, the source of a link after its text.

    If the link has neither an address nor a label, as in `[book]`, append its text as a marked label.
    """
    if end not in ("]", "][]"):
        return end.replace("\n", " ")
    label = " ".join(text.split())
    return f"{end}{LABEL}{label}{LABEL}"


def with_label(reference: regex.Match[str]) -> str:
    """Return the end of a reference link. It needs no label if its text is the label."""
    end, label = reference.groups()
    is_same = reference.string.endswith(f"[{label}", 0, reference.start())
    return str(end) if is_same else f"][{label}]"


def unmarked(text: str) -> str:
    """Remove the marks of delimiters from a text."""
    return REFERENCE.sub(with_label, text.translate(MARKS))
