"""Word and PowerPoint: paragraphs (`w:p`, `a:p`) of runs (`w:r`, `a:r`), each with a format.

A translation is written in the format that most of its paragraph has. A run of another format is an element: its
opening tag ends the run of that base and begins its own. So does what is no text, or contains runs as a link does.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import unescape

from nmt.documents.html import HTML, Parser
from nmt.documents.markup import Format, Part, Segment, between_segments
from nmt.documents.xml import Node, read_xml

CONTAINERS = ("w:hyperlink", "w:ins", "w:moveTo", "w:smartTag")
FIELDS = ("w:fldSimple", "a:fld", "field")
DROPPED = ("w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen")  # Word sets them anew
BREAKS = ("w:br", "w:cr", "w:tab", "a:br")
EMPTY_RUN = re.compile(r"<([wa]):r(?:\s[^>]*)?>(?:(?!<\1:[rt][\s>]).)*<\1:t[^>]*></\1:t></\1:r>", re.DOTALL)
NOT_TEXT = re.compile(r"<!\[CDATA\[(.*?)\]\]>|<!--.*?-->|<[^>]*>", re.DOTALL)
INVISIBLE = re.compile(
    r'<w:(lang|noProof)\b[^>]*/>|<w:rFonts( w:hint="\w*")?/>|\s(lang|altLang|dirty|err|noProof|smtClean|w:hint)="[^"]*"'
)


@dataclass(frozen=True)
class Style:
    """The formatting of a run, as the tags before and after its text."""

    start: str
    end: str
    look: str  # equal for formats that look the same


def style_of(run: Node) -> Style:
    prefix = run.name[:2]
    raw = "".join(child.raw for child in run.children if child.name == f"{prefix}rPr")
    look = re.sub(r"^<.:rPr(/>|></.:rPr>)$", "", INVISIBLE.sub("", raw))
    space = ' xml:space="preserve"' if prefix == "w:" else ""
    return Style(f"{run.opening}{raw}<{prefix}t{space}>", f"</{prefix}t></{prefix}r>", look)


def main_style(nodes: Sequence[Node]) -> Style | None:
    """Return the most frequent style of runs by characters, else of those in a hyperlink; None if there is no text."""
    sizes, styles = Counter[str](), dict[str, Style]()
    for node in nodes:
        if node.name in ("w:r", "a:r") and (
            text := text_of("".join(child.raw for child in node.children if child.name[2:] == "t"))
        ):
            style = style_of(node)
            sizes[styles.setdefault(style.look, style).look] += len(text)
    inner = (main_style(node.children) for node in nodes if node.name in CONTAINERS)
    return styles[sizes.most_common(1)[0][0]] if sizes else next((style for style in inner if style), None)


def parse(text: str, *, of_boxes: bool) -> list[Part]:
    """Return the parts of a document; segments are the paragraphs in text boxes, or all others."""
    parts: list[Part] = []

    def visit(node: Node, is_inside: bool) -> None:
        is_paragraph = node.name in ("w:p", "a:p")
        if is_paragraph:  # also one that is not read now
            between_segments.get()()
        base = main_style(node.children) if is_paragraph and is_inside == of_boxes else None
        content = Paragraph(node.children, base).parts if base else []
        parts.append(node.opening)
        if any(isinstance(part, Segment) for part in content):
            parts.extend(content)
        else:
            for child in node.children:
                visit(child, is_inside or is_paragraph)
        parts.append(node.closing)

    visit(read_xml(text), False)
    return parts


class Paragraph(Parser):
    """Builds the parts of a paragraph."""

    def __init__(self, nodes: Sequence[Node], base: Style) -> None:
        super().__init__()
        self.base = base  # the style outside of all elements
        self.empty = set[str]()  # the XML of an empty run, for each style in use
        self.add(nodes, base)
        self.finish()

    def add(self, nodes: Sequence[Node], base: Style) -> None:
        """Add the children of a paragraph or a hyperlink; `base` is the style of text outside of its elements."""
        style = base
        self.empty.add(base.start + base.end)

        def switch(new: Style) -> None:
            nonlocal style
            if new.look == style.look:
                return
            if style is not base:
                self.read(style.end + base.start, "end", "run")
            style = base if new.look == base.look else new
            if style is not base:
                self.empty.add(style.start + style.end)
                self.read(base.end + style.start, "start", "run")

        for node in fields_joined(nodes):
            if node.name not in ("w:r", "a:r"):
                switch(base)
                self.add_other(node, node.raw, base)
                continue
            own = style_of(node)
            for child in node.children:
                if child.name in ("w:t", "a:t"):
                    raw = NOT_TEXT.sub(lambda m: HTML.escape(m[1] or ""), "".join(one.raw for one in child.children))
                    switch(own if raw.strip() else style)
                    self.write(raw, unescape(raw))
                elif child.name not in ("", "w:rPr", "a:rPr"):
                    switch(base)
                    self.add_other(child, own.start.rpartition("<")[0] + child.raw + node.closing, base)
        switch(base)

    def add_other(self, node: Node, raw: str, base: Style) -> None:
        """Add a node that is not text; `raw` is what is written for it."""
        inner = main_style(node.children) if node.name in CONTAINERS else None
        if inner:
            self.read(base.end + node.opening + inner.start, "start", node.name)
            self.add(node.children, inner)
            self.read(inner.end + node.closing + base.start, "end", node.name)
        elif node.name in BREAKS and len(self.open) == 1:
            self.finish()
            self.parts.append(raw)
        elif raw and node.name not in DROPPED:
            self.write("", " " * (node.name in BREAKS))
            self.copy(base.end + raw + base.start, text_of(raw) if node.name in FIELDS else "")

    def finish(self) -> None:
        n_parts = len(self.parts)
        super().finish()
        before, *found = self.parts[n_parts:]
        self.parts[n_parts:] = found[:1] or [self.written(str(before), "", "")]
        for segment in found[:1]:
            assert isinstance(segment, Segment)
            segment.finish = partial(self.written, str(before), str(found[1]))

    def written(self, before: str, after: str, text: str) -> str:
        """Write a text with tags in the base style, and remove empty runs."""
        text = self.base.start + before + text + after + self.base.end
        return EMPTY_RUN.sub(lambda found: "" if found[0] in self.empty else found[0], text)


def text_of(raw: str) -> str:
    """The text of runs."""
    return unescape("".join(re.findall(r"<[wa]:t(?:\s[^>]*)?>([^<]*)<", raw)))


def fields_joined(nodes: Sequence[Node]) -> list[Node]:
    """Merge the runs of each field, such as a page number, into one node."""
    joined, inside, depth = list[Node](), list[Node](), 0
    for node in nodes:
        marks = [child.opening for child in node.children if child.name == "w:fldChar"]
        depth += sum(('"begin"' in mark) - ('"end"' in mark) for mark in marks)
        inside.append(node)
        if depth <= 0:
            joined.append(Node("field", children=inside) if marks else node)
            inside, depth = [], 0
    return joined + inside[:1] + (fields_joined(inside[1:]) if inside else [])  # the field ends in another paragraph


BOXES = Format(partial(parse, of_boxes=True), HTML.escape)
PARAGRAPHS = Format(partial(parse, of_boxes=False), HTML.escape)
