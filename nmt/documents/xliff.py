"""XLIFF 1 and 2: the translation of each source becomes the target. Finished targets stay unchanged.

Inline elements are read as tags. The library translate-toolkit is not used, because it loses elements that it does not
know.
"""

import re
from html import unescape

from nmt.documents.html import ConstructKind, Parser, escape_html
from nmt.documents.markup import Format, Part
from nmt.documents.tables import read_string
from nmt.documents.xml import XmlNode, read_xml

AROUND = ("g", "mrk", "pc")  # inline elements that contain text; others contain code or nothing
# Inline elements that come in pairs. Each element is read as an opening or a closing tag.
PAIRED: dict[str, ConstructKind] = {
    "bpt": "start",
    "bx": "start",
    "sc": "start",
    "ec": "end",
    "ept": "end",
    "ex": "end",
}
VERSION = re.compile(r"""\sversion\s*=\s*["'][12]\.""")
PROTECTED = re.compile(r"""\s(?:translate\s*=\s*["']no|mtype\s*=\s*["']protected)\b""")
UNFINISHED = re.compile(r"""\sstate\s*=\s*["'](?:new|initial|needs-translation)\b""")
KEY = re.compile(r"""\s(id|rid|startRef)\s*=\s*["']([^"']*)""")
CDATA = "<![CDATA["


def parse_xliff(text: str) -> list[Part]:
    """Return the parts of an XLIFF file. Raises ValueError if the file is damaged, or is no XLIFF."""
    document = read_xml(text)
    if not any(node.local_name == "xliff" and VERSION.search(node.opening) for node in document.children):
        raise ValueError("it is no XLIFF of version 1 or 2")
    parts: list[Part] = []

    def visit(node: XmlNode) -> None:
        if node.name and PROTECTED.search(node.opening):  # copy the node with its content
            parts.append(node.raw)
        elif node.local_name in ("trans-unit", "segment"):
            parts.extend(parts_of_unit(node))
        else:
            parts.append(node.opening)
            for child in node.children:
                visit(child)
            parts.append(node.closing)

    visit(document)
    return parts


def parts_of_unit(unit: XmlNode) -> list[Part]:
    """Return the parts of a unit. The parts of the source replace the content of the target.

    A missing target is added. A unit with a finished target is copied.
    """
    children = {child.local_name: child for child in unit.children}
    source, target = children.get("source"), children.get("target")
    if source is None:
        raise ValueError(f"there is no source in {unit.opening:.60}")
    if target is None:
        name = source.name.removesuffix("source") + "target"
        target = XmlNode(name, f"<{name}>")
        # In version 1, a segmented source (`seg-source`) can follow the source.
        source_end = unit.children.index(children.get("seg-source", source)) + 1
        unit.children.insert(source_end, target)
    if target.content.strip() and not UNFINISHED.search(unit.opening + target.opening):
        return [unit.raw]

    # Replace the content of the target by the parts of the source.
    parser = Parser()
    read_inline(parser, source.children)
    parser.finish()
    parts: list[Part] = [unit.opening]
    for child in unit.children:
        if child is target:  # the file may write the target as an empty element, `<target/>`
            parts += [target.opening.rstrip("/> \t\r\n"), ">", *parser.parts, f"</{target.name}>"]
        else:
            parts.append(child.raw)
    return [*parts, unit.closing]


def read_inline(parser: Parser, nodes: list[XmlNode]) -> None:
    """Let a parser read the text and the inline elements of a source. A pair of codes (`PAIRED`) is one element."""
    for node in nodes:
        name, raw = node.local_name, node.opening
        if raw.startswith(CDATA):
            read_string(parser, raw.removeprefix(CDATA).removesuffix("]]>"), escape_html)
        elif not raw.startswith("<"):  # the node is text
            read_string(parser, unescape(raw), escape_html)
        elif name in AROUND and node.closing:
            parser.read(raw, "verbatim" if PROTECTED.search(raw) else "start", f"{name} ")
            read_inline(parser, node.children)
            parser.read(node.closing, "end", f"{name} ")
        elif name in PAIRED or parser.kept:
            # Several attributes can identify the pair. The first choice is `startRef`, then `rid`, then `id`.
            _, key = max(KEY.findall(raw), default=("", ""))
            parser.read(node.raw, PAIRED.get(name, "empty"), f"code {key}")
        else:  # the node is a code or a comment
            parser.copy(node.raw)


XLIFF = Format(parse_xliff, escape_html, protects=True)
