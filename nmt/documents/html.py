"""HTML and XML fragments as segments of text with inline elements; see `markup`.

Tags, comments and everything between two segments are copied as they are written. Block tags and declarations separate
segments. The content of scripts, styles and the like is not translated; inside of a sentence, neither is that of
`<code>` and of elements with `translate="no"`.
"""

import re
from collections.abc import Iterable, Iterator
from html import escape, unescape

from nmt.documents.markup import Element, Format, Part, Segment, between_segments, descendants

_BLOCK = """
address article aside audio blockquote body br button canvas caption center col colgroup dd details dialog div dl dt
fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html iframe legend li link main
map menu meta nav noscript object ol optgroup option p param section select source summary table tbody td tfoot th thead
title tr track ul video
"""
_VOID = "area base br col embed hr img input link meta param source track wbr"
BLOCK, VOID = frozenset(_BLOCK.split()), frozenset(_VOID.split())
COPIED = frozenset(["math", "pre", "script", "style", "svg", "template", "textarea"])  # block elements, copied whole
CODE = frozenset(["code", "kbd", "samp", "var"])
RAW = frozenset(["script", "style", "textarea"])  # their content is no markup
CONSTRUCT = re.compile(
    r"""(?P<comment> <!--.*?(?:-->|\Z) | <!\[[^>]*+> | <\?(?!xml\b)[^>]*+> )
    | (?P<declaration> <[!?][^>]*+> )
    | (?P<tag> </?[a-zA-Z](?:[^<>"'] | "[^"]*" | '[^']*')*> )
    | (?P<text> [^<]+ | < )""",
    re.DOTALL | re.VERBOSE,
)
NOT_TRANSLATED = re.compile(r"""(?i)\s(?:translate\s*=\s*["']?no\b|class\s*=\s*(?:"[^"]*|'[^']*|)\bnotranslate\b)""")
MAX_DEPTH = 100
LETTER = re.compile(r"[^\W\d_]")
SPACE = re.compile(r"[ \t\r\n\f]+")  # what HTML shows as one space


def constructs(text: str) -> Iterator[tuple[str, str, str]]:
    """Cut a text into tags, comments, declarations and what is between them: as written, kind, and name of a tag.

    Kinds of tags: start, end, empty, and verbatim, which starts an element whose content is copied.
    """
    at, last = 0, max(text.rfind(">"), text.rfind("<!--"))  # after these, no tag or comment begins
    while at < len(text):
        if at > last:
            yield text[at:], "text", ""
            return
        found = CONSTRUCT.match(text, at)
        assert found  # any character is text, at least
        raw, kind, name = found[0], str(found.lastgroup), ""
        if kind == "tag":
            name = re.match(r"</?([^\s/>]+)", raw)[1].lower()  # type: ignore[index]
            kind = "end" if raw.startswith("</") else "empty" if raw.endswith("/>") or name in VOID else "start"
            if kind == "start" and (name in CODE or NOT_TRANSLATED.search(raw)):
                kind = "verbatim"
        yield raw, kind, name
        at = found.end()
        if name in RAW and kind in ("start", "verbatim"):
            closing = re.compile(f"</{name}", re.IGNORECASE).search(text, at)
            start, at = at, closing.start() if closing else len(text)
            if start < at:
                yield text[start:at], "text", ""


class Parser:
    """Builds the parts of a fragment from its constructs."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.begin()

    def begin(self) -> None:
        """Begin a segment."""
        self.raw, self.text = "", ""
        self.open: list[tuple[str, Element]] = [("", Element("", "", 0, 0))]  # the root and the open elements, by name
        self.depth = 0  # how deeply elements are nested
        self.kept: list[str] = []  # names of the open elements whose content is copied, the outermost first

    def read(self, raw: str, kind: str, name: str) -> None:
        """Read the next construct, which is written as `raw`."""
        if self.kept:
            self.keep(raw, kind, name)
        elif name in COPIED or name in BLOCK or kind == "declaration":
            self.finish()
            self.parts.append(raw)
            if kind == "verbatim" or (kind == "start" and name in COPIED):
                self.kept = [name]
        elif kind == "text":
            self.write(raw, unescape(raw))
        else:
            self.raw += raw
            self.mark(raw, kind, name)

    def write(self, raw: str, text: str) -> None:
        """Add text to the segment; `raw` is how the source writes it."""
        self.raw += raw
        text = SPACE.sub(" ", text)
        if text[:1] == " " and self.text[-1:] in ("", " "):
            text = text[1:]
            for last in self.open[-1][1].children[-1:]:
                if last.start == len(self.text):  # what has no text, such as an image, has space on both sides
                    last.closing += " "
        self.text += text

    def copy(self, raw: str, text: str = "") -> None:
        """Add a construct that is copied; the sentence has `text` in its place. At a segment's edge, it stays there."""
        start, siblings = len(self.text), self.open[-1][1].children
        self.write(raw, text)
        edges = start, len(self.text)
        if siblings and siblings[-1].verbatim is not None and siblings[-1].end == start:
            siblings[-1].closing += raw  # one element for both: a target word belongs to one element only
            siblings[-1].end = edges[1]
        else:
            siblings.append(Element("", "", *edges, verbatim=raw) if text else Element("", raw, *edges))

    def keep(self, raw: str, kind: str, name: str) -> None:
        """Copy a construct inside of one whose content is copied."""
        if name == self.kept[0] and kind != "empty":
            self.kept.pop() if kind == "end" else self.kept.append(name)
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

    def mark(self, raw: str, kind: str, name: str) -> None:
        """Read a tag or comment inside of a segment."""
        at = len(self.text)
        if kind == "end":
            self.close(name, raw)
        elif kind in ("comment", "empty"):
            self.open[-1][1].children.append(Element(raw, "", at, at))
        else:
            element = Element(raw, "", at, at, verbatim="" if kind == "verbatim" else None)
            self.open[-1][1].children.append(element)
            self.open.append((name, element))
            self.depth = max(self.depth, len(self.open))
            self.kept = [name] if kind == "verbatim" else []

    def close(self, name: str, raw: str) -> None:
        """Close the innermost element of this name, and what is open inside of it."""
        if self.depth > MAX_DEPTH:  # `finish` copies the segment, so nothing reads its elements
            return
        if name not in [one for one, _ in self.open[1:]]:  # it was opened before: the tag ends what is here so far
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
        """End the segment. Without letters, or with too many elements inside of each other, it is copied."""
        text = self.text.strip(" ")
        if not LETTER.search(text) or self.depth > MAX_DEPTH:
            self.parts.append(self.raw)
        else:
            for name, element in self.open:
                element.end, element.is_open = len(self.text), bool(name)
            root = self.open[0][1]
            for parent in (root, *descendants(root)):
                is_spaced = parent.start < parent.end and self.text[parent.end - 1] == " "
                at_end = [child for child in parent.children if is_spaced and child.start == parent.end]
                for first, last in zip(at_end[:1], at_end[-1:], strict=True):
                    first.opening = " " + first.opening
                    last.closing = last.closing.rstrip(" ") if parent is root else last.closing
            shift = len(self.text) - len(self.text.lstrip(" "))
            move(root, shift, len(text))
            before, after = (len(self.raw) - len(strip(" \t\r\n\f")) for strip in (self.raw.lstrip, self.raw.rstrip))
            # A tag without its partner stays at the edge of the segment instead of following a word.
            edges, inner = {0: "", len(text): ""}, list[Element]()
            for child in root.children:
                if child.end in edges and is_half_tag(child):
                    edges[child.end] += child.opening + child.closing
                else:
                    inner.append(child)
            root.children = inner
            self.parts += [self.raw[:before] + edges[0], Segment(text, root)]
            self.parts.append(edges[len(text)] + self.raw[len(self.raw) - after :])
        self.begin()
        between_segments.get()()


def is_half_tag(element: Element) -> bool:
    """Whether an element is one tag whose partner is missing, with nothing inside."""
    is_half = element.is_open or (not element.opening and bool(element.closing))
    return is_half and element.start == element.end and not element.children and not element.verbatim


def move(element: Element, shift: int, length: int) -> None:
    """Move the element and its descendants to the left, into a text of this length."""
    element.start, element.end = (min(max(edge - shift, 0), length) for edge in (element.start, element.end))
    for child in element.children:
        move(child, shift, length)


def parse(found: Iterable[tuple[str, str, str]]) -> list[Part]:
    """Return the parts of a fragment with these constructs, which cover it without gaps."""
    parser = Parser()
    for construct in found:
        parser.read(*construct)
    parser.finish()
    return [part for part in parser.parts if part]


HTML = Format(lambda text: parse(constructs(text)), lambda text: escape(text, quote=False))
