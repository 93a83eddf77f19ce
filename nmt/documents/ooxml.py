"""Word, PowerPoint and Excel: a paragraph (`w:p`, `a:p`, `x:si`) consists of runs, and each run has a format.

A translation is written in the base style, the style of most characters of the paragraph. A run in another style is an
element. Its opening tag ends the run in the base style and begins a run in the other style. Its closing tag does the
reverse. Images and links are elements as well. A text without runs (`LABELS`) is translated line by line.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from itertools import chain

from nmt.documents.html import Parser
from nmt.documents.markup import Format, Part, Segment
from nmt.documents.xml import XmlNode, field_text, nested_formats

LABELS = ("c:v", "cx:pt", "cx:v", "x:t", "x:v")  # texts without runs, such as labels of charts and plain cells
PARAGRAPHS = ("w:p", "a:p", *LABELS)
# These nodes are paragraphs if they contain runs. A text may be written twice, for programs that know an extension and
# for others.
PARENTS = ("x:si", "x:is", "mc:Choice", "mc:Fallback")
# Nodes that are copied: the numbers of charts, and in Excel phonetic readings and runs outside of paragraphs. Runs in a
# paragraph are translated together with it.
COPIED = ("c:numCache", "c:numLit", "cx:numDim", "x:r", "x:rPh")
RUNS = ("w:r", "a:r", "x:r")
TEXTS = ("w:t", "a:t", "x:t")
PROPERTIES = ("w:rPr", "a:rPr", "x:rPr")
CONTENTS = ("w:sdtContent", "w:ruby", "w:rubyBase")  # the nodes around them contain nothing else to translate
CONTAINERS = ("w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:bdo", "w:dir", *CONTENTS)
FIELDS = ("w:fldSimple", "a:fld", "field")
# Not needed in a translation: spelling errors that Word has marked, the page breaks of the source, and soft hyphens.
DROPPED = ("w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen")
BREAKS = ("w:br", "w:cr", "w:tab", "w:ptab", "a:br", "tab")
# Separators of texts. Forms are aligned by tabs or by several spaces. In Word, a line end in a text is a space.
TAB = re.compile(r"(\t+| {3,})")
LINE_END = re.compile(r"((?:[\t\n\r]|_x000[ABDabd]_)+| {3,})")
# A cell that contains its text, without a formula. Other cells contain a value or the number of a shared text.
CELL = re.compile(r"""<[^<>]*\st\s*=\s*["'](?:str|inlineStr)["'][^<>]*>\s*+(?!<(?:[^\s<>:]+:)?f[\s/>])""")
TABLE = re.compile(r"xl/(?:tables|pivotCache)/[^/]+\.xml")  # the members of Excel that name columns
COLUMN_NAME = re.compile(r"""\sname=["']((?<=")[^"]*|(?<=')[^']*)""")
EXCEL_TEXTS = ("c:v", "x:is", "x:si", "x:v")
EMPTY_RUN = re.compile(
    r"<((?:[^\s<>/:]+:)?)r(?:\s[^>]*)?>(?:(?!<\1[rt][\s>]).)*<\1t(?:\s[^>]*)?></\1t></\1r>", re.DOTALL
)
EMPTY_FORMAT = re.compile(r"<(?:[^\s<>/:]+:)?rPr(?:/>|></[^>]*>)")
INVISIBLE = re.compile(
    r"""<(?:[^\s<>/:]+:)?(?:(?:lang|noProof)\b[^>]*/>|rFonts(?: [^\s<>:]+:hint="\w*")?/>)"""
    r'|\s(?:lang|altLang|dirty|err|noProof|smtClean|[^\s<>:="]+:hint)="[^"]*"'
)
QUOTE = re.compile("[\"']")
# Binds a content control to a property of the document, whose text Word then shows.
BINDING = r"<[\w.-]+:dataBinding\s[^<>]*+(?:(?<=/)>|></[\w.-]+:dataBinding>)"
TEXT_FIELDS = ("BIBLIOGRAPHY", "FORMTEXT", "HYPERLINK", "INDEX", "TOC")  # fields whose result is text
FIELD_NAME = re.compile(
    r"""<(?:[^\s<>:]+:)?(?:instrText(?:\s[^<>]*)?>|fldSimple\s[^<>]*\binstr=["'])(?:\s|<[^<>]*>)*+(\w*)"""
)


@dataclass(frozen=True)
class RunStyle:
    """The formatting of a run: the tags before and after its text. Styles that look the same are equal."""

    start: str = field(compare=False)
    end: str = field(compare=False)
    look: str  # the XML of the format, without its invisible parts


def style_of(run: XmlNode) -> RunStyle:
    """Return the formatting of a run."""
    raw = "".join(child.raw for child in run.children if child.name in PROPERTIES)
    look = INVISIBLE.sub("", raw)
    if EMPTY_FORMAT.fullmatch(look):
        look = ""
    text = f"{run.prefix}t"
    space = "" if run.name == "a:r" else ' xml:space="preserve"'
    return RunStyle(f"{run.opening}{raw}<{text}{space}>", f"</{text}></{run.prefix}r>", look)


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
    inner = (main_style(content_of(node)) for node in nodes if is_container(node))
    return next(filter(None, inner), None)


def content_of(node: XmlNode) -> list[XmlNode]:
    """Return the runs, fields and other nodes in a paragraph or container. Fields and containers are one node each."""
    runs: list[XmlNode] = []
    for child in node.children:
        runs += divided(child)
    nodes = []
    for item in fields_joined(runs):
        node = item
        for name in CONTENTS:
            node = node.around(name)
        nodes.append(node)
    return nodes


def divided(run: XmlNode) -> list[XmlNode]:
    """Return a run as a list. Text beside ruby or marks of fields is divided into a run for each child."""
    names = [child.name for child in run.children if child.name in ("w:fldChar", "w:ruby", "w:t")]
    if len(set(names)) < 2 and names.count("w:ruby") < 2:
        return [run]
    properties = [child for child in run.children if child.name in PROPERTIES]
    runs = []
    for child in run.children:
        if child.name and child not in properties:
            runs.append(XmlNode(run.name, run.opening, [*properties, child], run.closing, run.prefix))
    return runs


def fields_joined(nodes: Sequence[XmlNode]) -> list[XmlNode]:
    """Merge the runs of each field, such as a page number, into one node. Fields may be nested.

    The opening tag of this node is the instruction of the field, and the content is its result.
    """
    levels: list[list[XmlNode]] = [[]]  # the nodes outside of fields, and the nodes of each open field
    for node in nodes:
        if marks(node, "begin"):
            levels.append([])
        levels[-1].append(node)
        if marks(node, "end") and len(levels) > 1:
            runs = levels.pop()
            # A field without a result has no mark "separate".
            separate = [index for index, run in enumerate(runs[:-1], start=1) if marks(run, "separate")]
            result = separate[0] if separate else len(runs) - 1
            opening = XmlNode(children=runs[:result]).content
            levels[-1].append(XmlNode("field", opening, runs[result:-1], node.raw))
    return list(chain.from_iterable(levels))  # do not merge fields that end in another paragraph


def marks(run: XmlNode, kind: str) -> bool:
    """Return whether a run contains a mark of a field. `kind` is begin, separate or end."""
    return any(child.name == "w:fldChar" and kind in QUOTE.split(child.opening) for child in run.children)


def is_container(node: XmlNode) -> bool:
    """Return whether a node contains runs to translate. The result of a field such as a link is also text."""
    if node.name in CONTAINERS:
        return True
    name = FIELD_NAME.search(node.opening) if node.name in FIELDS else None
    return name is not None and name[1].upper() in TEXT_FIELDS


def text_of(node: XmlNode) -> str:
    """Return the text of all runs in a node, without phonetic readings."""
    if node.name in TEXTS or node.name in LABELS:
        return unescape(node.escaped_text)
    return "".join(text_of(child) for child in node.children if child.name != "x:rPh")


def is_paragraph(node: XmlNode) -> bool:
    """Return whether a node is a paragraph, or a text without runs."""
    return node.name in PARAGRAPHS or (node.name in PARENTS and any(child.name in RUNS for child in node.children))


def is_copied(node: XmlNode, kept: Collection[str] = ()) -> bool:
    """Return whether a node is copied. `kept` has texts of Excel that are copied, as `squeezed` returns them."""
    if node.name == "x:c":
        return not CELL.match(node.raw)
    return node.name in COPIED or (bool(kept) and node.name in EXCEL_TEXTS and squeezed(text_of(node)) in kept)


def parts_of_paragraph(paragraph: XmlNode) -> list[Part]:
    """Return the parts of the content of a paragraph. Each line of a text without runs is a segment."""
    nodes = content_of(paragraph)
    base = main_style(nodes)
    if base:
        return Paragraph(nodes, base).parts
    parser = Parser()
    for line in LINE_END.split(paragraph.escaped_text if paragraph.name in LABELS else ""):
        if LINE_END.fullmatch(line):
            parser.parts.append(line)
        else:
            parser.write(line, unescape(line))
            parser.finish()
    return parser.parts


def squeezed(text: str) -> str:
    """Return a text without line ends and white space, which attributes and texts write in different ways."""
    return "".join(LINE_END.sub("", text).split())


def workbook_formats(members: Mapping[str, bytes]) -> list[Format]:
    """Return the formats of an Excel file with these members.

    Cells with the names of columns are copied. If they differ from the tables, Excel finds the file damaged.
    """
    names: set[str] = set()
    for member, content in members.items():
        if TABLE.match(member):
            names.update(squeezed(unescape(name)) for name in COLUMN_NAME.findall(content.decode(errors="replace")))
    return nested_formats(is_paragraph, parts_of_paragraph, partial(is_copied, kept=names), BINDING)


class Paragraph(Parser):
    """A builder of the parts of a paragraph."""

    def __init__(self, nodes: Sequence[XmlNode], base: RunStyle) -> None:
        super().__init__()
        self.base = base  # the style of the paragraph or of the innermost open container, such as a link
        self.start_style = base  # the style in which the segment begins
        self.empty = set[str]()  # the XML of an empty run in each style of the paragraph
        self.add(nodes, base)
        self.finish()

    def add(self, nodes: Sequence[XmlNode], base: RunStyle) -> None:
        """Add `nodes`, which are the content of a paragraph or container.

        Text in the style `base` is plain text. Text in another style becomes an element.
        """
        self.empty.add(base.start + base.end)
        style = base  # the style of the text that is added now
        for node in nodes:
            if node.name not in RUNS:
                style = self.switch(style, base, base)
                self.add_other(node, base)
                continue
            # A child without text, such as an image, is copied within its own run of the same format.
            run_style = style_of(node)
            run_start = run_style.start.rpartition("<")[0]  # the start of the run, without the tag of its text
            for child in node.children:
                copied = run_start + child.raw + node.closing
                if child.name in TEXTS:
                    style = self.add_text(child, style, run_style, base)
                elif child.name == "w:noBreakHyphen":
                    style = self.switch(style, run_style, base)
                    self.write(run_style.end + copied + run_style.start, "-")
                elif child.name and child.name not in PROPERTIES:  # leave out white space and the format
                    style = self.switch(style, base, base)
                    self.add_other(XmlNode(child.name, copied), base)
        self.switch(style, base, base)

    def add_text(self, node: XmlNode, style: RunStyle, run_style: RunStyle, base: RunStyle) -> RunStyle:
        """Add the text of a run. `style` is the style of the text before it. Returns the style of its end."""
        separator = TAB if node.name == "w:t" else LINE_END
        for raw in separator.split(node.escaped_text):
            if separator.fullmatch(raw):
                style = self.switch(style, base, base)
                self.add_other(XmlNode("tab", run_style.start + raw + run_style.end), base)
                continue
            if raw.strip():  # white space looks the same in any style
                style = self.switch(style, run_style, base)
            self.write(raw, unescape(raw))
        return style

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

    def add_other(self, node: XmlNode, base: RunStyle) -> None:
        """Add a node that is not text."""
        nodes = content_of(node) if is_container(node) else []
        inner = main_style(nodes)
        if inner:  # a node that contains text, such as a link, is an element
            self.read(base.end + node.opening + inner.start, "start", node.name)
            self.base = inner
            self.add(nodes, inner)
            self.base = base
            self.read(inner.end + node.closing + base.start, "end", node.name)
        elif node.name in BREAKS:  # the break separates two texts, which may be in one container
            self.finish()
            self.parts.append(node.raw)
        elif node.raw and node.name not in DROPPED:
            text = field_text(self, text_of(node)) if node.name in FIELDS else ""
            self.copy(base.end + node.raw + base.start, text)

    def finish(self) -> None:
        """End the segment. Copied parts are written within runs."""
        n_parts = len(self.parts)
        super().finish()
        # The parser has added a segment between two copied parts, or a single copied part.
        written = partial(self.written, self.start_style, self.base)
        match self.parts[n_parts:]:
            case [str(before), Segment() as segment, str(after)]:
                segment.finish = partial(written, before, after)
                self.parts[n_parts:] = [segment]
            case [str(copied)]:
                self.parts[n_parts:] = [written(copied, "", "")]
        self.start_style = self.base

    def written(self, start: RunStyle, end: RunStyle, before: str, after: str, text: str) -> str:
        """Return the XML of `before`, `text` and `after`, without empty runs.

        The XML begins in the style `start` and ends in the style `end`.
        """
        runs = start.start + before + text + after + end.end
        return EMPTY_RUN.sub(lambda match: "" if match[0] in self.empty else match[0], runs)


OOXML = nested_formats(is_paragraph, parts_of_paragraph, is_copied, BINDING)
