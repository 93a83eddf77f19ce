"""OpenDocument (LibreOffice): paragraphs with spans, links and other inline elements, which are read as tags.

The library odfpy is not used, because it writes all XML anew.
"""

import re
from html import unescape

from nmt.documents.html import Parser
from nmt.documents.markup import Part
from nmt.documents.xml import XmlNode, field_text, nested_formats

PARAGRAPHS = (
    "text:p",
    "text:h",
    "text:index-title-template",
    "presentation:footer-decl",
    "presentation:header-decl",
)
# Inline elements that contain text.
AROUND = ("loext:content-control", "text:a", "text:meta", "text:ruby-base", "text:span", "text:text-input")
BREAKS = ("text:line-break", "text:tab")
COPIED = ("office:annotation", "table:tracked-changes", "text:tracked-changes")  # these contain paragraphs
# A cell with a value, such as a number or a date, or with a formula. Programs show the value, not its paragraphs.
VALUE = re.compile(r"""\s[^\s=:]*:(?:value-type\s*=\s*["'](?!string\b)|formula\s*=)""")

# The text of a cell, which LibreOffice shows instead of the paragraph after it. The result of a formula is copied.
TEXT_VALUE = (
    r"""\s[\w.-]+:string-value(?<!:formula\s*=[^<>]*)\s*=\s*(?:"[^"<]*"|'[^'<]*')(?=[^<>]*>\s*<[\w.-]+:p[\s>])"""
)


def is_copied(node: XmlNode) -> bool:
    """Return whether a node is copied with its paragraphs."""
    return node.name in COPIED or (node.name == "table:table-cell" and VALUE.search(node.opening) is not None)


def parts_of_paragraph(paragraph: XmlNode) -> list[Part]:
    """Return the parts of the content of a paragraph."""
    parser = Parser()
    add_nodes(parser, paragraph)
    parser.finish()
    return parser.parts


def add_nodes(parser: Parser, parent: XmlNode) -> None:
    """Let a parser read the content of a paragraph or of an inline element."""
    for child in parent.children:
        node = child.around("text:ruby-base")
        text = XmlNode(children=[node]).escaped_text if not node.name else ""
        if node.name in AROUND and node.closing:
            parser.read(node.opening, "start", node.name)
            add_nodes(parser, node)
            parser.read(node.closing, "end", node.name)
        elif node.name in BREAKS:
            parser.finish()
            parser.parts.append(node.raw)
        elif text:
            parser.write(text, unescape(text))
        elif node.name == "text:s" and parser.text and not parser.text.endswith(" "):
            parser.write(node.raw, " ")
        else:  # a field, whose text stands for it, or an image or note
            is_field = all(not inner.name for inner in node.children)
            parser.copy(node.raw, field_text(parser, unescape(node.escaped_text)) if is_field else "")


ODF = nested_formats(lambda node: node.name in PARAGRAPHS, parts_of_paragraph, is_copied, TEXT_VALUE)
