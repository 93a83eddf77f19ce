"""Reader of XML formats that consist of units, which are pairs of a source text and the element for its translation.

A `UnitTable` says where the units of a format are.

The libraries translate-toolkit and lxml are not used, because they lose elements that they do not know or rewrite tags.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from html import unescape
from typing import NamedTuple

from nmt.documents.constructs import ConstructKind
from nmt.documents.html import Parser, escape_html
from nmt.documents.markup import Format, Part, segments_in
from nmt.documents.tables import BRANCHES, CODE_OR_BRANCHES, read_string
from nmt.documents.xml import XmlNode, read_xml

Pairs = Iterator[tuple[XmlNode, XmlNode]]
AROUND = "g|mrk|pc|hi"  # inline elements of XLIFF and TMX that contain text; others contain code or nothing
# Inline elements that come in pairs. Each element is read as an opening or a closing tag. Angular writes the two tags
# of an element as two `<x>`, and numbers opening tags whose attributes differ.
START = re.compile(r"""<(?:\w+:)?(?:bpt|bx|sc|sm|x\s+id\s*=\s*["']START_\w+)\b""")
END = re.compile(r"""<(?:\w+:)?(?:ept|ex|ec|em|x\s+id\s*=\s*["']CLOSE_\w+)\b""")
PAIR_KEY = re.compile(r"""\s(i|id|rid|startRef)\s*=\s*["'](?:START_|CLOSE_)?([^"']*?)(?:_\d+)?["']""")
# A line break, or a control character of Qt such as a tab.
LINE_BREAK = re.compile(r"""<byte\b|\s(?:ctype\s*=\s*["']lb|subType\s*=\s*["']xlf:lb|id\s*=\s*["']LINE_BREAK)\b""")
PROTECTED = re.compile(r"""\s(?:translate\s*=\s*["']no|mtype\s*=\s*["']protected)\b""")
# Attributes which say that the text of an element is to be translated, or that it stays.
TRANSLATED = re.compile(r"""\stranslat(?:e\s*=\s*["']yes|able\s*=\s*["']true)\b""")
FINISHED = re.compile(r"""\s(?:translate\s*=\s*["']no|translatable\s*=\s*["']false|approved\s*=\s*["']yes)\b""")
# The context of a unit, such as gettext's msgctxt, as translate-toolkit and Qt write it in XLIFF and TMX.
CONTEXT = re.compile(
    r"""<(?:\w+:)?(?:prop|context)\s[^<>]*type\s*=\s*["']x-(?:context|gettext-msgctxt|po-msgctxt)["'][^<>]*>([^<]*)"""
)
EMPTY = re.compile(rf"\A(?:\s|<!--.*?-->|</?(?:\w+:)?(?:{AROUND})\b[^>]*>|<!\[CDATA\[\s*\]\]>)*+", re.DOTALL)
PARAGRAPH_END = r"(\s{2,}|\n|\t)"  # so all spaces are kept
CDATA = "<![CDATA["


class UnitTable(NamedTuple):
    """Where the units of an XML format are, and how their texts are written."""

    title: str  # the name of the format in messages
    root: str  # a regular expression of the name of the root element, and of what follows
    units: tuple[str, ...]  # names of the elements that contain units
    # A function that yields pairs of elements in an element with units: the content of the first is replaced by the
    # translation of the second. Both can be the same element. The function may add elements.
    pairs: Callable[[XmlNode], Iterable[tuple[XmlNode, XmlNode]]]
    around: str = AROUND  # a regular expression of inline elements that contain text
    codes: str = r"(?!)"  # a regular expression of codes in texts, with a group if it is given
    decode: Callable[[str], str] = str  # returns the text that an element means
    escape: Callable[[str], str] = escape_html  # returns translated text as the content of an element

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
    context = ""  # of the last unit

    def visit(node: XmlNode, is_translated: bool) -> None:
        nonlocal context
        # 1. The nearest element with an attribute decides whether a text is translated.
        if node.name:
            is_translated = is_translated or TRANSLATED.search(node.opening) is not None
            is_translated = is_translated and not FINISHED.search(node.opening)
        if node.local_name in table.units and is_translated:
            context = context_of(node)
            sources.update(table.pairs(node))

        # 2. Replace the content of the element, or copy its tags.
        if node in sources:
            parts.extend(filled(node, sources.pop(node), table, context))
        else:
            parts.append(node.opening)
            for child in node.children:
                visit(child, is_translated)
            parts.append(node.closing)

        # 3. Free the memory of the unit.
        if node.local_name in table.units:
            node.children.clear()

    visit(document, is_translated=True)
    return parts


def context_of(unit: XmlNode) -> str:
    """Return what tells the source of a unit from an equal one, without that of proposals; see `CONTEXT`."""
    others = [child.raw for child in unit.children if child.local_name != "alt-trans"]
    context = CONTEXT.search("".join(others))
    return unescape(context[1]) if context else ""


def filled(target: XmlNode, source: XmlNode, table: UnitTable, context: str) -> list[Part]:
    """Return the parts of an element with the content of a source. Messages with branches are copied."""
    parser = Parser()
    if BRANCHES.search(source.content):
        parser.parts.append(source.content)
    else:
        read_content(parser, source, table)
        parser.finish()
    segments = segments_in(parser.parts)
    if target is source and not segments:
        return [target.raw]
    for segment in segments:
        segment.context = context
        if len(segments) == 1:  # the match is one of the whole source
            segment.note = target.note
    open_tag(target)
    return [target.opening, *parser.parts, target.closing]


def open_tag(node: XmlNode) -> str:
    """Give an element that is one tag, such as `<target/>`, an opening and a closing tag. Return the opening tag."""
    if not node.closing:
        node.opening = node.opening.rstrip("/> \t\r\n") + ">"
        node.closing = f"</{node.name}>"
    return node.opening


def child_named(node: XmlNode, name: str) -> XmlNode | None:
    """Return the first child with a local name, or None."""
    return next((child for child in node.children if child.local_name == name), None)


def is_empty(node: XmlNode) -> bool:
    """Return whether an element contains no text and no code."""
    return EMPTY.fullmatch(node.content) is not None


def read_content(parser: Parser, source: XmlNode, table: UnitTable) -> None:
    """Let a parser read the text and the inline elements of a source."""
    for node in source.children:
        raw = node.opening
        if raw.startswith(CDATA):
            read_text(parser, raw.removeprefix(CDATA).removesuffix("]]>"), table)
        elif not raw.startswith("<"):
            read_text(parser, unescape(raw), table)
        elif node.closing and re.fullmatch(table.around, node.local_name):
            name = f"{node.local_name} "
            parser.read(raw, "verbatim" if PROTECTED.search(raw) else "start", name)
            read_content(parser, node, table)
            parser.read(node.closing, "end", name)
        else:
            read_code(parser, node)


def read_text(parser: Parser, text: str, table: UnitTable) -> None:
    """Let a parser read a text between two inline elements."""
    text = table.decode(text)
    runs = [text] if CODE_OR_BRANCHES.fullmatch(text) else re.split(table.codes, text)
    for i, run in enumerate(runs):
        if i % 2 == 1 and not parser.kept:
            parser.copy(table.escape(run))
        else:
            read_string(parser, run, table.escape, paragraph_end=PARAGRAPH_END)


def read_code(parser: Parser, node: XmlNode) -> None:
    """Let a parser read an element that contains no text, or a comment. A pair of codes is read as one element."""
    kind: ConstructKind = "empty"
    if START.match(node.opening):
        kind = "verbatim" if PROTECTED.search(node.opening) else "start"
    elif END.match(node.opening):
        kind = "end"
    # Several attributes can identify the pair. The first choice is `startRef`, then `rid`, then `id`.
    _, key = max(PAIR_KEY.findall(node.opening), default=("", ""))
    if kind != "empty" or parser.kept:
        parser.read(node.raw, kind, f"code {key}")
    elif LINE_BREAK.search(node.opening):
        parser.finish()
        parser.parts.append(node.raw)
    else:
        parser.copy(node.raw)
