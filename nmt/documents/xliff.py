"""XLIFF 1 and 2: each source without a finished target is translated into it. Inline elements are tags in the text.

translate-toolkit would write the whole file anew, and lose what it does not know.
"""

import re
from html import unescape

from nmt.documents.html import HTML, Parser
from nmt.documents.markup import Format, Part
from nmt.documents.tables import read_string
from nmt.documents.xml import Node, read_xml

AROUND = ("g", "mrk", "pc")  # inline elements that contain text; others contain code, or nothing
PAIRS = {"bpt": "start", "bx": "start", "sc": "start", "ec": "end", "ept": "end", "ex": "end"}  # one tag each
VERSION = re.compile(r"""\sversion\s*=\s*["'][12]\.""")
NOT_TRANSLATED = re.compile(r"""\s(?:translate\s*=\s*["']no|mtype\s*=\s*["']protected)\b""")
UNFINISHED = re.compile(r"""\sstate\s*=\s*["'](?:new|initial|needs-translation)\b""")
KEY = re.compile(r"""\s(id|rid|startRef)\s*=\s*["']([^"']*)""")


def local(node: Node) -> str:
    return node.name.rpartition(":")[2]


def parse(text: str) -> list[Part]:
    """Return the parts of a file. Raises ValueError if it is damaged, or no XLIFF."""
    document, parts = read_xml(text), list[Part]()
    if not any(local(node) == "xliff" and VERSION.search(node.opening) for node in document.children):
        raise ValueError("it is no XLIFF of version 1 or 2")

    def visit(node: Node) -> None:
        if NOT_TRANSLATED.search(node.opening) and node.name:
            parts.append(node.raw)
        elif local(node) in ("trans-unit", "segment"):
            parts.extend(parts_of_unit(node))
        else:
            parts.append(node.opening)
            for child in node.children:
                visit(child)
            parts.append(node.closing)

    visit(document)
    return parts


def parts_of_unit(unit: Node) -> list[Part]:
    """Return the parts of a unit. Its target, which follows the source if it is new, has the source as text."""
    found = {local(child): child for child in unit.children}
    source, target = found.get("source"), found.get("target")
    if source is None:
        raise ValueError(f"there is no source in {unit.opening:.60}")
    if target is None:
        target = Node(source.name.removesuffix("source") + "target")
        unit.children.insert(unit.children.index(found.get("seg-source", source)) + 1, target)
    elif any(child.raw.strip() for child in target.children) and not UNFINISHED.search(unit.opening + target.opening):
        return [unit.raw]
    parser = Parser()
    read_inline(parser, source.children)
    parser.finish()
    opening = (target.opening or f"<{target.name}").rstrip("/> \t\r\n") + ">"
    written = [opening, *parser.parts, f"</{target.name}>"]
    parts = [part for child in unit.children for part in (written if child is target else [child.raw])]
    return [unit.opening, *parts, unit.closing]


def read_inline(parser: Parser, nodes: list[Node]) -> None:
    """Read the text and the inline elements of a source. Codes that come in pairs are one element."""
    for node in nodes:
        name, raw = local(node), node.opening
        if not name and (raw.startswith("<![CDATA[") or raw[0] != "<"):
            read_string(parser, raw[9:-3] if raw[0] == "<" else unescape(raw), HTML.escape)
        elif name in AROUND and node.closing:
            parser.read(raw, "verbatim" if NOT_TRANSLATED.search(raw) else "start", f"{name} ")
            read_inline(parser, node.children)
            parser.read(node.closing, "end", f"{name} ")
        elif name not in PAIRS and not parser.kept:
            parser.copy(node.raw)
        else:
            _, key = max(KEY.findall(raw), default=("", ""))  # the names are in the order of their precedence
            parser.read(node.raw, PAIRS.get(name, "empty"), f"code {key}")


XLIFF = Format(parse, HTML.escape)
