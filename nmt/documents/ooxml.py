"""Word and PowerPoint: a paragraph (`w:p`, `a:p`) consists of runs (`w:r`, `a:r`), and each run has a format.

A translation is written in the base style, the style of most characters of the paragraph. A run in another style is an
element. Its opening tag ends the run in the base style and begins a run in the other style. Its closing tag does the
reverse. Images and links are elements as well.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from html import unescape

from nmt.documents.html import Parser, escape_html
from nmt.documents.markup import Format, Part, Segment, between_segments, has_segment
from nmt.documents.xml import XmlNode, read_xml

RUNS = ("w:r", "a:r")
TEXTS = ("w:t", "a:t")
CONTAINERS = ("w:hyperlink", "w:ins", "w:moveTo", "w:smartTag")
FIELDS = ("w:fldSimple", "a:fld", "field")
DROPPED = ("w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen")  # Word creates these nodes anew
BREAKS = ("w:br", "w:cr", "w:tab", "a:br")
EMPTY_RUN = re.compile(r"<([wa]):r(?:\s[^>]*)?>(?:(?!<\1:[rt][\s>]).)*<\1:t[^>]*></\1:t></\1:r>", re.DOTALL)
CDATA_OR_TAG = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<[^>]*+>", re.DOTALL)
RUN_TEXT = re.compile(r"<[wa]:t(?:\s[^>]*)?>([^<]*)<")
EMPTY_FORMAT = re.compile(r"<.:rPr(/>|></.:rPr>)")
INVISIBLE = re.compile(
    r'<w:(lang|noProof)\b[^>]*/>|<w:rFonts( w:hint="\w*")?/>|\s(lang|altLang|dirty|err|noProof|smtClean|w:hint)="[^"]*"'
)


@dataclass(frozen=True)
class RunStyle:
    """The formatting of a run: the tags before and after its text. Styles that look the same are equal."""

    start: str = field(compare=False)
    end: str = field(compare=False)
    look: str  # the XML of the format, without its invisible parts


def style_of(run: XmlNode) -> RunStyle:
    """Return the formatting of a run."""
    prefix = run.name[:2]  # w: or a:
    raw = "".join(child.raw for child in run.children if child.name == f"{prefix}rPr")
    look = INVISIBLE.sub("", raw)
    if EMPTY_FORMAT.fullmatch(look):
        look = ""
    space = ' xml:space="preserve"' if prefix == "w:" else ""
    return RunStyle(f"{run.opening}{raw}<{prefix}t{space}>", f"</{prefix}t></{prefix}r>", look)


def main_style(nodes: Sequence[XmlNode]) -> RunStyle | None:
    """Return the style of most characters in the runs among `nodes`.

    If these runs have no text, return the main style of the first hyperlink or similar node with text, or None.
    """
    n_characters = Counter[RunStyle]()  # of equal styles, the first one is the key
    for node in nodes:
        if node.name in RUNS:
            n = sum(len(unescape(child.content)) for child in node.children if child.name in TEXTS)
            if n:
                n_characters[style_of(node)] += n
    if n_characters:
        return max(n_characters, key=n_characters.__getitem__)
    # All text is in hyperlinks and similar nodes.
    inner = (main_style(node.children) for node in nodes if node.name in CONTAINERS)
    return next(filter(None, inner), None)


def parse_ooxml(text: str, *, of_boxes: bool) -> list[Part]:
    """Return the parts of a document. Its segments are paragraphs.

    With `of_boxes`, these are the paragraphs in text boxes, otherwise all others. A paragraph inside of another one is
    in a text box.
    """
    parts: list[Part] = []

    def visit(node: XmlNode, is_inside: bool) -> None:
        is_paragraph = node.name in ("w:p", "a:p")
        content = []
        if is_paragraph:
            between_segments.get()()
            base = main_style(node.children) if is_inside == of_boxes else None
            if base:
                content = Paragraph(node.children, base).parts
        parts.append(node.opening)
        if has_segment(content):
            parts.extend(content)
        else:
            for child in node.children:
                visit(child, is_inside or is_paragraph)
        parts.append(node.closing)

    visit(read_xml(text), False)
    return parts


class Paragraph(Parser):
    """A builder of the parts of a paragraph."""

    def __init__(self, nodes: Sequence[XmlNode], base: RunStyle) -> None:
        super().__init__()
        self.base = base  # the style outside of all elements
        self.empty = set[str]()  # the XML of an empty run in each style of the paragraph
        self.add(nodes, base)
        self.finish()

    def add(self, nodes: Sequence[XmlNode], base: RunStyle) -> None:
        """Add `nodes`, which are the children of a paragraph or of a hyperlink.

        Text in the style `base` is plain text. Text in another style becomes an element.
        """
        self.empty.add(base.start + base.end)
        style = base  # the style of the text that is added now
        for node in fields_joined(nodes):
            if node.name not in RUNS:
                style = self.switch(style, base, base)
                self.add_other(node, node.raw, base)
                continue
            # A child without text, such as an image, is copied within its own run of the same format.
            run_style = style_of(node)
            run_start = run_style.start.rpartition("<")[0]  # the start of the run, without the tag of its text
            for child in node.children:
                if child.name in TEXTS:
                    raw = CDATA_OR_TAG.sub(as_escaped, child.content)
                    if raw.strip():  # white space looks the same in any style
                        style = self.switch(style, run_style, base)
                    self.write(raw, unescape(raw))
                elif child.name not in ("", "w:rPr", "a:rPr"):  # leave out white space and the format
                    style = self.switch(style, base, base)
                    self.add_other(child, run_start + child.raw + node.closing, base)
        self.switch(style, base, base)

    def switch(self, style: RunStyle, new: RunStyle, base: RunStyle) -> RunStyle:
        """Write the tags that change the style of the text from `style` to `new`. Returns the new style."""
        if new == style:
            return style
        if style is not base:  # end the element of the old style
            self.read(style.end + base.start, "end", "run")
        if new == base:
            return base
        self.empty.add(new.start + new.end)
        self.read(base.end + new.start, "start", "run")
        return new

    def add_other(self, node: XmlNode, raw: str, base: RunStyle) -> None:
        """Add a node that is not text. `raw` is the XML that is written for this node."""
        inner = main_style(node.children) if node.name in CONTAINERS else None
        if inner:  # a node that contains text, such as a link, is an element
            self.read(base.end + node.opening + inner.start, "start", node.name)
            self.add(node.children, inner)
            self.read(inner.end + node.closing + base.start, "end", node.name)
        elif node.name in BREAKS and self.innermost is self.root:  # the break separates two texts
            self.finish()
            self.parts.append(raw)
        elif raw and node.name not in DROPPED:
            if node.name in BREAKS:  # a break inside of an element, such as a link, is a space in the text
                self.write("", " ")
            text = unescape("".join(RUN_TEXT.findall(raw))) if node.name in FIELDS else ""
            self.copy(base.end + raw + base.start, text)

    def finish(self) -> None:
        """End the segment. Copied parts are written within runs."""
        n_parts = len(self.parts)
        super().finish()
        # The parser has added a segment between two copied parts, or a single copied part.
        match self.parts[n_parts:]:
            case [str(before), Segment() as segment, str(after)]:
                segment.finish = partial(self.written, before, after)
                self.parts[n_parts:] = [segment]
            case [str(copied)]:
                self.parts[n_parts:] = [self.written(copied, "", "")]

    def written(self, before: str, after: str, text: str) -> str:
        """Return the XML of `before`, `text` and `after` in the base style, without empty runs."""
        runs = self.base.start + before + text + after + self.base.end
        return EMPTY_RUN.sub(lambda match: "" if match[0] in self.empty else match[0], runs)


def as_escaped(match: re.Match[str]) -> str:
    """Return the escaped text of a match of `CDATA_OR_TAG`. Tags and comments have no text."""
    return escape_html(match[1] or "")


def fields_joined(nodes: Sequence[XmlNode]) -> list[XmlNode]:
    """Merge the runs of each field, such as a page number, into one node."""
    joined, field_nodes = [], []
    depth = 0  # number of open fields, which can be nested
    for node in nodes:
        marks = [child.opening for child in node.children if child.name == "w:fldChar"]
        for mark in marks:
            depth += ('"begin"' in mark) - ('"end"' in mark)
        field_nodes.append(node)
        if depth <= 0:
            joined.append(XmlNode("field", children=field_nodes) if marks else node)
            field_nodes = []
            depth = 0
    # The last field ends in another paragraph, so do not merge it. Search its other nodes for further fields.
    if field_nodes:
        joined += [field_nodes[0], *fields_joined(field_nodes[1:])]
    return joined


BOXES = Format(partial(parse_ooxml, of_boxes=True), escape_html)
PARAGRAPHS = Format(partial(parse_ooxml, of_boxes=False), escape_html)
