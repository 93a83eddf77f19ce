"""The direction of Word and HTML documents whose translation runs in another direction than the source.

Word marks paragraphs with `w:bidi` and runs with `w:rtl`. HTML marks the root element with `dir`.
"""

import re

import regex

from nmt.text.words import LETTER, RIGHT_TO_LEFT_LETTER

LETTERS, RIGHT_TO_LEFT = regex.compile(LETTER), regex.compile(RIGHT_TO_LEFT_LETTER)
NO_TEXT = re.compile(r"<[^>]*>|&\w+;")
# The start of the tag of the root element, and its direction, if it has one.
HTML_ROOT = regex.compile(
    r"""(?i)(<html(?=[\s>])(?:(?!\sdir\s*=)[^<>])*+)(?:\sdir\s*+=\s*+(?:"[^"<]*+"|'[^'<]*+'|[^\s"'<>]++))?"""
)
MARKS = {"w:p": "<w:bidi/>", "w:r": "<w:rtl/>"}
OLD_MARK = regex.compile(r"<w:(?:bidi|rtl)(?:\s[^<>]*+)?/>|<w:[pr]Pr/>")  # and the properties of a node without any
# A paragraph or run up to the next tag of a node of its kind, which may be inside of it. The groups are its opening
# tag; its properties before the mark, since OOXML prescribes their order; and the rest.
_NODE = (
    r"(<w:{0}(?:\s[^<>]*+)?(?<!/)>)(<w:{0}Pr(?:\s[^<>]*+)?>(?:<(?!w:(?:{1})\b|/w:{0}Pr>)[^<>]*+>)*+)?"
    r"([^<]*+(?:<(?!/?w:{0}[\s>])[^<]*+)*+)"
)
PARAGRAPH = regex.compile(
    _NODE.format(
        "p",
        "adjustRightInd|snapToGrid|spacing|ind|contextualSpacing|mirrorIndents|suppressOverlap|jc|textDirection"
        "|textAlignment|textboxTightWrap|outlineLvl|divId|cnfStyle|rPr|sectPr|pPrChange",
    )
)
RUN = regex.compile(_NODE.format("r", "cs|em|lang|eastAsianLayout|specVanish|oMath|rPrChange"))


def is_right_to_left(markup: str) -> bool:
    """Return whether most letters of a text, without its tags, are in scripts that run from right to left."""
    text = NO_TEXT.sub("", markup)
    return 2 * len(RIGHT_TO_LEFT.findall(text)) > len(LETTERS.findall(text))


def redirected_html(text: str, direction: str) -> str:
    """Set the direction of the root element, if there is one. `direction` is rtl or ltr."""
    return HTML_ROOT.sub(rf'\1 dir="{direction}"', text)


def redirected_word(text: str, _direction: str) -> str:
    """Mark the paragraphs and runs that run from right to left, and remove all other marks."""
    text = PARAGRAPH.sub(marked, OLD_MARK.sub("", text))
    return RUN.sub(marked, text)


def marked(node: regex.Match[str]) -> str:
    """Return a paragraph or run with a mark in its properties, if its text runs from right to left."""
    start, properties, content = node.groups("")
    if not is_right_to_left(content):
        return node[0]
    name = start[1:4]  # w:p or w:r
    if properties:
        return start + properties + MARKS[name] + content
    return f"{start}<{name}Pr>{MARKS[name]}</{name}Pr>{content}"


REDIRECTED = {".docx": redirected_word, ".htm": redirected_html, ".html": redirected_html}
