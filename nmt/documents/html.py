"""HTML and XML fragments as segments of text with inline elements; see `markup`.

Tags, comments and everything between two segments are copied as they are written. Block tags separate segments. The
content of scripts, styles and the like is not translated; inside of a sentence, neither is that of `<code>` and of
elements with `translate="no"`.
"""

import re
from html import escape, unescape
from html.parser import HTMLParser
from itertools import accumulate

from nmt.documents.markup import Element, Format, Part, Segment

_BLOCK = """
address article aside audio blockquote body br button canvas caption center col colgroup dd details dialog div dl dt
fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html iframe legend li link main
map menu meta nav noscript object ol optgroup option p param section select source summary table tbody td tfoot th thead
title tr track ul video
"""
_VOID = "area base br col embed hr img input link meta param source track wbr"
BLOCK, VOID = frozenset(_BLOCK.split()), frozenset(_VOID.split())
COPIED = frozenset(["math", "pre", "script", "style", "svg", "template", "textarea"])  # blocks, with their content
CODE = frozenset(["code", "kbd", "samp", "var"])
MAX_DEPTH = 100
SPACE = re.compile(r"[ \t\r\n\f]+")  # what HTML shows as one space


class Events(HTMLParser):
    """Collects the constructs of a fragment: where each begins, its kind, and the name of a tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[int, str, str]] = []
        self.lines = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
        self.feed(text)
        self.close()

    def add(self, kind: str, name: str = "") -> None:
        line, column = self.getpos()
        self.found.append((self.lines[line - 1] + column, kind, name))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        kept = tag in CODE or values.get("translate") == "no" or "notranslate" in (values.get("class") or "").split()
        self.add("kept" if kept else "start", tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.add("empty", tag)

    def handle_endtag(self, tag: str) -> None:
        self.add("end", tag)

    def handle_data(self, data: str) -> None:  # noqa: ARG002 - `parse` takes it from the text, as it is written
        self.add("text")

    def handle_comment(self, data: str) -> None:  # noqa: ARG002
        self.add("comment")

    def handle_decl(self, decl: str) -> None:  # noqa: ARG002
        self.add("declaration")

    def handle_pi(self, data: str) -> None:  # noqa: ARG002
        self.add("declaration")

    def unknown_decl(self, data: str) -> None:  # noqa: ARG002
        self.add("declaration")


class Parser:
    """Builds the parts of a fragment from its constructs."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.begin()

    def begin(self) -> None:
        """Begin a segment."""
        self.raw, self.text = "", ""
        self.open: list[tuple[str, Element]] = [("", Element("", "", 0, 0))]  # the root and the open elements, by name
        self.depth = 0  # the most elements inside of each other
        self.kept: list[str] = []  # names of the open tags whose content is copied, the outermost first

    def read(self, raw: str, kind: str, name: str) -> None:
        """Read the next construct, which is written as `raw`."""
        is_empty = kind == "empty" or (name in VOID and kind != "end")
        if self.kept:
            self.keep(raw, kind, name, is_empty=is_empty)
        elif name in COPIED or name in BLOCK or kind == "declaration":
            self.finish()
            self.parts.append(raw)
            if not is_empty and kind != "end" and (name in COPIED or kind == "kept"):
                self.kept = [name]
        elif kind == "text":
            self.raw += raw
            text = SPACE.sub(" ", unescape(raw))
            self.text += text[1:] if text[:1] == " " and self.text[-1:] in ("", " ") else text
        else:
            self.raw += raw
            self.mark(raw, kind, name, is_empty=is_empty)

    def keep(self, raw: str, kind: str, name: str, *, is_empty: bool) -> None:
        """Copy a construct inside of one whose content is copied."""
        if name == self.kept[0] and not is_empty:
            self.kept = self.kept[:-1] if kind == "end" else [*self.kept, name]
        _, element = self.open[-1]
        if element.verbatim is None:  # in a block
            self.parts.append(raw)
            return
        self.raw += raw
        if not self.kept:
            self.close(name, raw)
            return
        element.verbatim += raw
        if kind == "text":
            self.text += SPACE.sub(" ", unescape(raw))

    def mark(self, raw: str, kind: str, name: str, *, is_empty: bool) -> None:
        """Read a tag or comment inside of a segment."""
        at = len(self.text)
        if kind == "end":
            self.close(name, raw)
        elif kind == "comment" or is_empty:
            self.open[-1][1].children.append(Element(raw, "", at, at))
        else:
            element = Element(raw, "", at, at, verbatim="" if kind == "kept" else None)
            self.open[-1][1].children.append(element)
            self.open.append((name, element))
            self.depth = max(self.depth, len(self.open))
            self.kept = [name] if kind == "kept" else []

    def close(self, name: str, raw: str) -> None:
        """Close the innermost element of this name, and what is open inside of it."""
        names = [open_name for open_name, _ in self.open]
        if name not in names[1:]:  # it was opened before the segment: the tag ends what is here so far
            _, parent = self.open[-1]
            self.depth += 1
            parent.children = [Element("", raw, parent.start, len(self.text), parent.children)]
            return
        while True:
            open_name, element = self.open.pop()
            element.end = len(self.text)
            if open_name == name:
                element.closing = raw
                return

    def finish(self) -> None:
        """End the segment. Without letters or digits, or with too many elements inside of each other, it is copied."""
        text = self.text.strip(" ")
        if not re.search(r"\w", text) or self.depth > MAX_DEPTH:
            self.parts.append(self.raw)
        else:
            for _, element in self.open:
                element.end = len(self.text)
            root = self.open[0][1]
            shift = len(self.text) - len(self.text.lstrip(" "))
            move(root, shift, len(text))
            before, after = (len(self.raw) - len(strip(" \t\r\n\f")) for strip in (self.raw.lstrip, self.raw.rstrip))
            self.parts += [self.raw[:before], Segment(text, root), self.raw[len(self.raw) - after :]]
        self.begin()


def move(element: Element, shift: int, length: int) -> None:
    """Move the element and its descendants to the left, into a text of this length."""
    element.start, element.end = (min(max(edge - shift, 0), length) for edge in (element.start, element.end))
    for child in element.children:
        move(child, shift, length)


def parse(text: str) -> list[Part]:
    """Return the parts of a fragment; joined, with segments as they are written, they are the fragment."""
    parser, found = Parser(), Events(text).found
    edges = [*(start for start, _, _ in found), len(text)]
    for (start, kind, name), end in zip(found, edges[1:], strict=True):
        parser.read(text[start:end], kind, name)
    parser.finish()
    return [part for part in parser.parts if part]


HTML = Format(parse, lambda text: escape(text, quote=False))
