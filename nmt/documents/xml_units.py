"""XML formats as tables of units: each format names the element with a source text, and the element that gets it.

The libraries translate-toolkit and lxml are not used, because they lose elements that they do not know or rewrite tags.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import unescape

from nmt.documents.html import ConstructKind, Parser, escape_html
from nmt.documents.markup import Format, Part, Segment, has_segment
from nmt.documents.messages import MessagePiece, message_pieces
from nmt.documents.tables import TAG_START, read_string
from nmt.documents.xml import XmlNode, read_xml

# Inline elements of XLIFF and TMX that come in pairs. Each element is read as an opening or a closing tag.
PAIRED: dict[str, ConstructKind] = {
    "bpt": "start",
    "bx": "start",
    "sc": "start",
    "sm": "start",
    "ec": "end",
    "em": "end",
    "ept": "end",
    "ex": "end",
}
# Angular writes the two tags of an element as two `<x>`, and numbers those whose attributes differ.
ANGULAR_TAG = re.compile(r"""\sid\s*=\s*["'](START|CLOSE)_(.+?)(?:_\d+)?["']""")
LINE_BREAK = re.compile(r"""\s(?:ctype\s*=\s*["']lb|subType\s*=\s*["']xlf:lb|id\s*=\s*["']LINE_BREAK)\b""")
PAIR_KEY = re.compile(r"""\s(i|id|rid|startRef)\s*=\s*["']([^"']*)""")
PROTECTED = re.compile(r"""\s(?:translate\s*=\s*["']no|mtype\s*=\s*["']protected)\b""")
TRANSLATE = re.compile(r"""\stranslat(?:e|able)\s*=\s*["'](yes|true|no|false)\b""")
SPACE = re.compile(r"""\sxml:space\s*=\s*["'](preserve|default)\b""")
# The ends of paragraphs in texts, and in texts in which all spaces count.
PARAGRAPH_END, SPACED_PARAGRAPH_END = r"(\r?\n|\t)", r"(\s{2,}|\n|\t)"
BRANCHES = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")
# The mark of the access key in a label, such as `E&xit`. Names such as AT&T, entities and addresses have another `&`.
ACCESS_KEY = re.compile(r"(?<!&)(?<![A-Z](?=&[A-Z]))&(?=\w)(?!\w+[;=])")
CDATA, CDATA_END = "<![CDATA[", "]]>"
ELEMENT = "\0"  # stands for an element in a text; XML does not allow this character


@dataclass(frozen=True)
class UnitTable:
    """Where the units of an XML format are, and how their texts are written."""

    title: str  # the name of the format in messages
    root: str  # a regular expression that matches the beginning of the tag of the root element
    units: Sequence[str]  # local names of the elements that contain units
    # A function that returns pairs of elements for an element with units: the content of the first is replaced by the
    # translation of the second. Both can be the same element. The function may add elements.
    pairs: Callable[[XmlNode], Iterable[tuple[XmlNode, XmlNode]]]
    around: str = ""  # a regular expression of inline elements that contain text; others contain code or nothing
    decode: Callable[[str], str] = str  # returns the text that is meant by the text of an element
    encode: Callable[[str], str] = str  # the reverse of `decode`
    has_access_keys: bool = False
    keeps_spaces: bool = False  # whether several spaces are not one space, unless `xml:space` says so

    def escape(self, text: str) -> str:
        """Return a text as the content of an element."""
        return escape_html(self.encode(text))

    def format(self) -> Format:
        """Return the functions that read and write this format."""
        return Format(partial(parse_units, table=self), self.escape, protects=True)


def parse_units(text: str, table: UnitTable) -> list[Part]:
    """Return the parts of an XML file. Raises ValueError if the file is damaged, or has another format."""
    document = read_xml(text)
    root = next(child for child in document.children if child.name)
    if not re.match(rf"<(?:[^\s:>]+:)?{table.root}", root.opening, re.DOTALL):
        raise ValueError(f"it is no {table.title}")
    parts: list[Part] = []
    sources: dict[XmlNode, XmlNode] = {}  # the source of each element that gets a translation

    def visit(node: XmlNode, table: UnitTable, is_translated: bool) -> None:
        # 1. The nearest element with an attribute decides whether a text is translated, and whether its spaces count.
        if node.name:
            if translate := TRANSLATE.search(node.opening):
                is_translated = translate[1] in ("yes", "true")
            if space := SPACE.search(node.opening):
                table = replace(table, keeps_spaces=space[1] == "preserve")
            if node.local_name in table.units and is_translated:
                sources.update(table.pairs(node))

        # 2. Replace the content of the element, or copy its tags.
        if node in sources:
            parts.extend(filled(node, sources[node], table))
            return
        parts.append(node.opening)
        for child in node.children:
            visit(child, table, is_translated)
        parts.append(node.closing)

    visit(document, table, is_translated=True)
    return parts


def filled(target: XmlNode, source: XmlNode, table: UnitTable) -> list[Part]:
    """Return the parts of an element `target` with the content of another element."""
    parser = Parser()
    # A source in a single CDATA section is written as such.
    texts = [child.opening for child in source.children if child.opening.strip()]
    is_cdata = len(texts) == 1 and texts[0].startswith(CDATA)
    read_content(parser, source.children, table)
    parser.finish()
    parts = [part for part in parser.parts if part]
    if is_cdata:
        parts = [CDATA, *map(as_cdata, parts), CDATA_END]
    if target is source and not has_segment(parts):
        return [target.raw]
    open_tag(target)
    return [target.opening, *parts, target.closing]


def open_tag(node: XmlNode) -> None:
    """Write an empty element, such as `<target/>`, with two tags."""
    if not node.closing:
        node.opening = node.opening.rstrip("/> \t\r\n") + ">"
        node.closing = f"</{node.name}>"


def as_cdata(part: Part) -> Part:
    """Convert a part of the content of an element to a part of a CDATA section."""
    if isinstance(part, Segment):
        return replace(part, finish=unescaped_cdata)
    return unescaped_cdata(part)


def unescaped_cdata(text: str) -> str:
    """Return markup as the text of a CDATA section, which must not contain the end of the section."""
    return unescape(text).replace(CDATA_END, f"]]{CDATA_END}{CDATA}>")


def text_of(node: XmlNode, table: UnitTable) -> str:
    """Return the text of a text node or of a CDATA section, or `ELEMENT` for any other node."""
    if node.opening.startswith(CDATA):
        return table.decode(node.opening.removeprefix(CDATA).removesuffix(CDATA_END))
    return ELEMENT if node.opening.startswith("<") else table.decode(unescape(node.opening))


def is_empty(node: XmlNode, table: UnitTable) -> bool:
    """Return whether an element contains no text and no code."""
    for child in node.children:
        is_around = re.fullmatch(table.around, child.local_name) and child.name
        is_blank = not text_of(child, table).strip() or child.opening.startswith("<!--")
        if not is_blank and not (is_around and is_empty(child, table)):
            return False
    return True


def read_content(parser: Parser, nodes: Sequence[XmlNode], table: UnitTable) -> None:
    """Let a parser read the text and the inline elements of a source."""
    # 1. Join the texts. A message with branches can contain elements.
    texts = [text_of(node, table) for node in nodes]
    whole = "".join(texts)
    elements = [node for node, text in zip(nodes, texts, strict=True) if text == ELEMENT]
    if whole.count(ELEMENT) != len(elements):
        raise ValueError("a text contains the character U+0000")
    whole.encode()  # raises UnicodeEncodeError, a ValueError, for half of a surrogate pair
    pieces = [MessagePiece(whole, "text")]
    if BRANCHES.search(whole) and not parser.kept:
        try:
            pieces = message_pieces(whole)
        except ValueError:  # it looks like a message, but is none
            pieces = [MessagePiece(whole, "syntax")]

    # 2. Read the texts, and the elements between them. The syntax of a message separates segments.
    tags = set(TAG_START.findall(whole.lower()))
    has_access_key = table.has_access_keys and len(ACCESS_KEY.findall(whole)) == 1
    remaining = iter(elements)
    for piece in pieces:
        if piece.kind == "syntax":
            parser.finish()
        for i, text in enumerate(piece.raw.split(ELEMENT)):
            if i > 0:
                read_element(parser, next(remaining), table, is_copied=piece.kind == "syntax")
            if piece.kind == "text":
                read_text(parser, text, table, tags, has_access_key)
            elif piece.kind == "number":
                parser.copy(table.escape(text))
            else:
                parser.parts.append(table.escape(text))


def read_text(parser: Parser, text: str, table: UnitTable, tags: set[str], has_access_key: bool) -> None:
    """Let a parser read a text between two inline elements. `tags` are those of the whole text, see `read_string`."""
    runs = ACCESS_KEY.split(text) if has_access_key and not parser.kept else [text]
    paragraph_end = SPACED_PARAGRAPH_END if table.keeps_spaces else PARAGRAPH_END
    for i, run in enumerate(runs):
        if i > 0:
            parser.copy(table.escape("&"))
        read_string(parser, run, table.escape, tags, paragraph_end)


def read_element(parser: Parser, node: XmlNode, table: UnitTable, *, is_copied: bool) -> None:
    """Let a parser read an inline element or a comment. A pair of codes (`PAIRED`) is read as one element."""
    name, raw = node.local_name, node.opening
    if is_copied:
        parser.parts.append(node.raw)
        return
    if node.closing and re.fullmatch(table.around, name):
        parser.read(raw, "verbatim" if PROTECTED.search(raw) else "start", f"{name} ")
        read_content(parser, node.children, table)
        parser.read(node.closing, "end", f"{name} ")
        return
    # Several attributes can identify the pair. The first choice is `startRef`, then `rid`, then `id`.
    _, key = max(PAIR_KEY.findall(raw), default=("", ""))
    kind = PAIRED.get(name)
    if angular := ANGULAR_TAG.search(raw) if name == "x" else None:
        key = angular[2]
        kind = "start" if angular[1] == "START" else "end"
    if name == "sm" and PROTECTED.search(raw):
        kind = "verbatim"
    if LINE_BREAK.search(raw) and not parser.kept:
        parser.finish()
        parser.parts.append(node.raw)
    elif kind or parser.kept:
        parser.read(node.raw, kind or "empty", f"code {key}")
    else:  # the node is a code or a comment
        parser.copy(node.raw)
