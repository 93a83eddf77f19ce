"""XML as a tree whose nodes keep their source text, and the paragraphs in such a tree.

lxml is not used, because it does not give the places of tags.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from xml.parsers import expat

import regex

from nmt.documents.html import Parser, escape_html
from nmt.documents.markup import Format, Match, Part, between_segments, has_segment
from nmt.documents.tables import check_depth
from nmt.text.words import LETTER

# The prefix in `XmlNode.name` for each namespace of Office documents. A document may bind any prefix to a namespace.
# Strict OOXML has its own namespaces.
_PREFIXES = """
a http://schemas.openxmlformats.org/drawingml/2006/main
c http://schemas.openxmlformats.org/drawingml/2006/chart
cx http://schemas.microsoft.com/office/drawing/2014/chartex
mc http://schemas.openxmlformats.org/markup-compatibility/2006
w http://schemas.openxmlformats.org/wordprocessingml/2006/main
x http://schemas.openxmlformats.org/spreadsheetml/2006/main
a http://purl.oclc.org/ooxml/drawingml/main
c http://purl.oclc.org/ooxml/drawingml/chart
w http://purl.oclc.org/ooxml/wordprocessingml/main
x http://purl.oclc.org/ooxml/spreadsheetml/main
loext urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0
office urn:oasis:names:tc:opendocument:xmlns:office:1.0
presentation urn:oasis:names:tc:opendocument:xmlns:presentation:1.0
table urn:oasis:names:tc:opendocument:xmlns:table:1.0
text urn:oasis:names:tc:opendocument:xmlns:text:1.0
"""
PREFIXES = {line.split()[1]: line.split()[0] for line in _PREFIXES.strip().split("\n")}
MAX_NESTED = 3  # maximum number of paragraphs inside of each other, such as a note in a text box

TOKEN = re.compile(
    r"""<!--.*?--> | <\?.*?\?> | <!\[CDATA\[.*?\]\]> | <!DOCTYPE(?:[^>"'] | "[^"]*" | '[^']*')*> | [^<]+
    | <(?P<end>/?)(?P<name>(?P<prefix>[^\s/>:]+:)?[^\s/>]+)(?:[^>"'] | "[^"]*" | '[^']*')*>""",
    re.DOTALL | re.VERBOSE,
)
CDATA_OR_TAG = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<[^>]*+>", re.DOTALL)
ENCODING = re.compile(r"""\ufeff?<\?xml[^>]*\sencoding\s*=\s*["'](?!utf-(?:8|16)["'])""", re.IGNORECASE)


@dataclass(eq=False, slots=True)
class XmlNode:
    """An element, a text, a comment or a processing instruction. Only elements have a name."""

    name: str = ""  # the name with the prefix of its namespace in `PREFIXES`, or else with the prefix of the source
    opening: str = ""  # the opening tag, or the whole text or comment, as the source writes it
    children: list["XmlNode"] = field(default_factory=list)
    closing: str = ""  # the closing tag as the source writes it
    prefix: str = ""  # the prefix of the source with its colon, or an empty string
    note: Callable[[Match], str] | None = None  # of the only segment of the translation; see `Segment`

    @property
    def local_name(self) -> str:
        """The name without the namespace prefix."""
        return self.name.rpartition(":")[2]

    @property
    def content(self) -> str:
        """The content between the tags, as the source writes it."""
        return "".join(child.raw for child in self.children)

    @property
    def raw(self) -> str:
        """The node with its content, as the source writes it."""
        return self.opening + self.content + self.closing

    @property
    def escaped_text(self) -> str:
        """The text of an element as escaped markup, without tags and comments."""
        return CDATA_OR_TAG.sub(lambda match: escape_html(match[1] or ""), self.content)

    def around(self, name: str) -> "XmlNode":
        """Return the first child `name`. Its tags contain the rest of this node. Returns this node if there is none."""
        inner = next((child for child in self.children if child.name == name), None)
        if inner is None:
            return self
        before, _, after = self.raw.partition(inner.raw)
        return XmlNode(name, before + inner.opening, inner.children, inner.closing + after)


def read_xml(text: str) -> XmlNode:
    """Return a nameless node that contains a whole document. Raises ValueError as `names_of`, and if it is too deep."""
    names = iter(names_of(text))
    root = XmlNode()
    open_nodes = [root]  # the nodes that are open; the last one is the innermost
    # The document is well-formed, so each closing tag closes the innermost node.
    for token in TOKEN.finditer(text):
        if token["end"]:
            open_nodes.pop().closing = token[0]
            continue
        node = XmlNode(opening=token[0], prefix=token["prefix"] or "")
        open_nodes[-1].children.append(node)
        if token["name"]:
            node.name = next(names) or token["name"]
            if not node.opening.endswith("/>"):
                open_nodes.append(node)
        check_depth(len(open_nodes), text, token.start())
    return root


def names_of(text: str) -> list[str]:
    """Return the names of all elements, in the order of their opening tags. Outside of `PREFIXES`, a name is empty.

    Raises ValueError if the document is malformed, declares entities, or has another encoding than UTF-8. A
    document type may name a file, which is not read. It is refused if it contains declarations.
    """
    if "\0" in text or ENCODING.match(text):  # expat would read some texts with NUL as UTF-16
        raise ValueError("it has another encoding than UTF-8")
    names: list[str] = []

    def add(name: str, _: object) -> None:
        namespace, _, local_name = name.rpartition(" ")
        prefix = PREFIXES.get(namespace)
        names.append(sys.intern(f"{prefix}:{local_name}") if prefix else "")

    def check_document_type(_name: str, _system_id: object, _public_id: object, has_declarations: bool) -> None:
        if has_declarations:
            raise ValueError("a document type is not allowed to contain declarations")

    def refuse_entity(name: str, _is_parameter: bool) -> None:
        raise ValueError(f"line {parser.CurrentLineNumber}: the entity &{name}; is unknown")

    parser = expat.ParserCreate("utf-8", " ")  # " " turns on namespaces, so undeclared prefixes are errors
    parser.StartElementHandler = add
    parser.StartDoctypeDeclHandler = check_document_type
    parser.SkippedEntityHandler = refuse_entity
    try:
        parser.Parse(text.encode(errors="surrogatepass"), True)
    except expat.ExpatError as error:
        raise ValueError(f"line {error.lineno}: {expat.ErrorString(error.code)}") from error
    return names


def field_text(parser: Parser, text: str) -> str:
    """Return the text that stands for a field in the text to translate.

    Letters at the beginning do not, since a paragraph of only fields, such as a date, has nothing to translate.
    """
    return text if parser.text or not re.search(LETTER, text) else ""


def nested_formats(
    is_paragraph: Callable[[XmlNode], object],
    parts_of: Callable[[XmlNode], list[Part]],
    is_copied: Callable[[XmlNode], object],
    shown_instead: str,
) -> list[Format]:
    """Return the formats that read a document one after the other. Paragraphs inside of others come first.

    Args:
        is_paragraph: whether a node is a paragraph.
        parts_of: a function that returns the parts of the content of a paragraph.
        is_copied: whether a node is copied with its content.
        shown_instead: a regular expression. What it matches is removed, because programs would show it instead of a
            paragraph.
    """

    def parse(text: str, depth: int) -> list[Part]:
        """Return the parts of a document. Its segments are the paragraphs inside of `depth` others."""
        parts: list[Part] = []

        def visit(node: XmlNode, n_around: int) -> None:
            if is_copied(node):
                parts.append(node.raw)
                return
            content: list[Part] = []
            if is_paragraph(node):
                between_segments.get()()
                if n_around == depth:
                    content = parts_of(node)
                n_around += 1
                if n_around > MAX_NESTED:
                    raise ValueError(f"over {MAX_NESTED} paragraphs are inside of each other")
            parts.append(node.opening)
            if has_segment(content):
                parts.extend(content)
            else:
                for child in node.children:
                    visit(child, n_around)
            parts.append(node.closing)

        visit(read_xml(regex.sub(shown_instead, "", text)), 0)
        return parts

    return [Format(partial(parse, depth=depth), escape_html) for depth in reversed(range(MAX_NESTED))]
