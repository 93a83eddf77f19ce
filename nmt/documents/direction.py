"""The direction of documents whose translation runs in another direction than the source.

Word marks paragraphs with `w:bidi` and runs with `w:rtl`. HTML marks the root element with `dir`. In OpenDocument, the
styles of pages have a direction, and most other styles refer to it.
"""

import re
from functools import partial

import regex

from nmt.text.words import RIGHT_TO_LEFT_LETTER

LETTERS, RIGHT_TO_LEFT = regex.compile(r"\p{L}"), regex.compile(RIGHT_TO_LEFT_LETTER)
NO_TEXT = re.compile(r"<[^<>]*+>|&\w+;")
# The start of a tag in HTML, and its direction. The root element may have no direction. Code keeps its direction.
_ATTRIBUTES = r"""(?:(?!\sdir\s*=)(?:"[^"<]*+"|'[^'<]*+'|[^<>"']))*+"""
_DIRECTION = r"""\sdir\s*+=\s*+(?:"[^"<]*+"|'[^'<]*+'|[^\s"'<>]++)"""
_TEXT_TAG = rf"<(?!(?:bdo|code|kbd|pre|samp)\b)[a-z]{_ATTRIBUTES}"
HTML_TAG = regex.compile(
    rf"(?i)(<html(?=[\s>]){_ATTRIBUTES})(?:{_DIRECTION})?|({_TEXT_TAG})\sdir\s*+=\s*+([\"']?)(?:ltr|rtl)\3(?=[\s/>])"
)
WRITING_MODE = re.compile(r"""(:writing-mode\s*=\s*["'])(?:lr|rl)-tb""")
# The names of marks by the names of nodes, and an old mark or the properties of a node without any. Word's prefix is
# any but those of drawings and formulas.
MARKS = {"p": "bidi", "r": "rtl"}
_PREFIX = r"(?![am]:)(?:[^\s<>/:]++:)?"
OLD_MARK = regex.compile(rf"<{_PREFIX}(?:(?:bidi|rtl)(?:\s[^<>]*)?/>|[pr]Pr\s*/>)")
# A paragraph or run up to the next tag of a node of its kind, which may be inside of it. The groups are its opening
# tag; its prefix and name; its properties before the mark, since OOXML prescribes their order; and the rest.
_NODE = (
    rf"(<({_PREFIX})({{0}})(?:\s[^<>]*+)?(?<!/)>)(<\2{{0}}Pr(?:\s[^<>]*+)?>(?:<(?!\2(?:{{1}})\b|/\2{{0}}Pr>)[^<>]*+>)*+)?"
    r"([^<]*+(?:<(?!/?\2{0}[\s>])[^<]*+)*+)"
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


def redirected_odf(text: str, direction: str) -> str:
    """Set the direction of the pages, and of the styles that have a direction of their own."""
    return WRITING_MODE.sub(r"\1rl-tb" if direction == "rtl" else r"\1lr-tb", text)


def redirected_word(text: str, direction: str) -> str:
    """Mark the paragraphs and runs that run from right to left, and remove all other marks.

    In a document that runs from right to left, most letters of a paragraph may be those of a Latin name.
    """
    if "wordprocessingml" not in text:  # the text is that of a drawing
        return text
    share = 0.0 if direction == "rtl" else 0.5
    text = PARAGRAPH.sub(partial(marked, share=share), OLD_MARK.sub("", text))
    return RUN.sub(marked, text)


def marked(node: regex.Match[str], share: float = 0.5) -> str:
    """Return a paragraph or run with a mark in its properties, if its text runs from right to left.

    See `is_right_to_left` for `share`.
    """
    start, prefix, name, properties, content = node.groups("")
    if not is_right_to_left(content, share):
        return node[0]
    mark = f"<{prefix}{MARKS[name]}/>"
    if properties:
        return start + properties + mark + content
    return f"{start}<{prefix}{name}Pr>{mark}</{prefix}{name}Pr>{content}"


REDIRECTED = {
    ".docx": redirected_word,
    ".epub": redirected_html,
    ".htm": redirected_html,
    ".html": redirected_html,
    ".odp": redirected_odf,
    ".ods": redirected_odf,
    ".odt": redirected_odf,
}
