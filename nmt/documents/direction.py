"""The direction of Word and HTML documents whose translation runs in another direction than the source.

Word marks paragraphs with `w:bidi` and runs with `w:rtl`. HTML marks the root element with `dir`.
"""

import re
from functools import partial

import regex

from nmt.text.words import RIGHT_TO_LEFT_LETTER

LETTERS, RIGHT_TO_LEFT = regex.compile(r"\p{L}"), regex.compile(RIGHT_TO_LEFT_LETTER)
NO_TEXT = re.compile(r"<[^>]*>|&\w+;")
# The start of a tag in HTML, and its direction. The root element may have no direction. Code keeps its direction.
_ATTRIBUTES = r"""(?:(?!\sdir\s*=)(?:"[^"<]*+"|'[^'<]*+'|[^<>"']))*+"""
_DIRECTION = r"""\sdir\s*+=\s*+(?:"[^"<]*+"|'[^'<]*+'|[^\s"'<>]++)"""
_TEXT_TAG = rf"<(?!(?:bdo|code|kbd|pre|samp)\b)[a-z]{_ATTRIBUTES}"
HTML_TAG = regex.compile(
    rf"(?i)(<html(?=[\s>]){_ATTRIBUTES})(?:{_DIRECTION})?|({_TEXT_TAG})\sdir\s*+=\s*+([\"']?)(?:ltr|rtl)\3(?=[\s/>])"
)
MARKS = {"w:p": "<w:bidi/>", "w:r": "<w:rtl/>"}
OLD_MARK = regex.compile(r"<w:(?:bidi|rtl)(?:\s[^<>]*)?/>|<w:[pr]Pr\s*/>")  # and the properties of a node without any
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


def is_right_to_left(markup: str, share: float = 0.5) -> bool:
    """Return whether more than a share of the letters of a text are in scripts that run from right to left, 0-1.

    Tags do not count.
    """
    text = NO_TEXT.sub("", markup)
    return len(RIGHT_TO_LEFT.findall(text)) > share * len(LETTERS.findall(text))


def redirected_html(text: str, direction: str) -> str:
    """Set the direction of the root element, and of all elements that have a direction. `direction` is rtl or ltr."""
    return HTML_TAG.sub(rf'\1\2 dir="{direction}"', text)


def redirected_word(text: str, direction: str) -> str:
    """Mark the paragraphs and runs that run from right to left, and remove all other marks.

    In a document that runs from right to left, most letters of a paragraph may be those of a Latin name.
    """
    share = 0.0 if direction == "rtl" else 0.5
    text = PARAGRAPH.sub(partial(marked, share=share), OLD_MARK.sub("", text))
    return RUN.sub(marked, text)


def marked(node: regex.Match[str], share: float = 0.5) -> str:
    """Return a paragraph or run with a mark in its properties, if its text runs from right to left.

    See `is_right_to_left` for `share`.
    """
    start, properties, content = node.groups("")
    if not is_right_to_left(content, share):
        return node[0]
    name = start[1:4]  # w:p or w:r
    if properties:
        return start + properties + MARKS[name] + content
    return f"{start}<{name}Pr>{MARKS[name]}</{name}Pr>{content}"


REDIRECTED = {".docx": redirected_word, ".htm": redirected_html, ".html": redirected_html}
