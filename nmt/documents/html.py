"""A parser of HTML and XML, which returns segments of text with inline elements.

Block tags and declarations separate segments. Everything between two segments is copied. The contents of scripts,
styles, `<code>` and elements with `translate="no"` are also copied.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from html import escape, unescape
from typing import Literal, NamedTuple, cast

from nmt.documents.markup import Element, Format, Part, Segment, between_segments, descendants
from nmt.text.words import LETTER

_BLOCK = """
address article aside audio blockquote body br button canvas caption center col colgroup dd details dialog div dl dt
fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html iframe legend li link main
map menu meta nav noscript object ol optgroup option p param section select source summary table tbody td tfoot th thead
title tr track ul video
"""
_VOID = "area base br col embed hr img input link meta param source track wbr"
BLOCK, VOID = frozenset(_BLOCK.split()), frozenset(_VOID.split())
COPIED = {"math", "pre", "script", "style", "svg", "template", "textarea"}  # blocks copied as a whole
CODE = {"code", "kbd", "samp", "var"}
RAW = {"script", "style", "textarea"}  # elements whose content contains no tags
CONSTRUCT = re.compile(
    r"""(?P<comment> <!--.*?(?:-->|\Z) | <!\[[^>]*+> | <\?(?!xml\b)[^>]*+> )
    | (?P<declaration> <[!?][^>]*+> )
    | (?P<tag> </?[a-zA-Z](?:[^<>"'] | "[^"]*" | '[^']*')*> )
    | (?P<text> [^<]+ | < )""",
    re.DOTALL | re.VERBOSE,
)
TAG_NAME = re.compile(r"</?([^\s/>]+)")
NOT_TRANSLATED = re.compile(r"""(?i)\s(?:translate\s*=\s*["']?no\b|class\s*=\s*(?:"[^"]*|'[^']*|)\bnotranslate\b)""")
MAX_DEPTH = 100
SPACES = " \t\r\n\f"  # white space of HTML, which browsers show as one space
WHITE_SPACE = re.compile(f"[{SPACES}]+")


# The kind of a construct. The first four kinds are tags. "empty" is the tag of an element without content, and
# "verbatim" the start tag of an element that is copied.
ConstructKind = Literal["start", "end", "empty", "verbatim", "comment", "declaration", "text"]


class Construct(NamedTuple):
    """A tag, a comment, a declaration, or a text between two of these."""

    raw: str  # the construct as the source writes it
    kind: ConstructKind
    name: str = ""  # the name of a tag in lower case, else empty


def constructs(text: str) -> Iterator[Construct]:
    """Yield the constructs that a text consists of. A text construct may be empty."""
    cursor = 0
    # No tag or comment begins after this position. Without this limit, many "<" would take quadratic time.
    last_end = max(text.rfind(">"), text.rfind("<!--"))
    while cursor <= last_end:
        match = CONSTRUCT.match(text, cursor)
        assert match  # the last alternative, text, matches any character
        construct = classified(match)
        yield construct
        cursor = match.end()

        # The content of a script is one text up to its closing tag.
        if construct.name in RAW and construct.kind in ("start", "verbatim"):
            closing = re.compile(f"</{construct.name}", re.IGNORECASE).search(text, cursor)
            end = closing.start() if closing else len(text)
            yield Construct(text[cursor:end], "text")
            cursor = end
    yield Construct(text[cursor:], "text")


def classified(match: re.Match[str]) -> Construct:
    """Return the construct that a match of `CONSTRUCT` has found."""
    raw = match[0]
    if match.lastgroup != "tag":
        return Construct(raw, cast("ConstructKind", match.lastgroup))
    name = TAG_NAME.match(raw)[1].lower()  # type: ignore[index]
    if raw.startswith("</"):
        return Construct(raw, "end", name)
    if raw.endswith("/>") or name in VOID:
        return Construct(raw, "empty", name)
    is_copied = name in CODE or NOT_TRANSLATED.search(raw)
    return Construct(raw, "verbatim" if is_copied else "start", name)


class Parser:
    """A reader of constructs that builds the parts of a fragment.

    `finish_segment` is applied to the translation of each segment.
    """

    def __init__(self, finish_segment: Callable[[str], str] = str) -> None:
        self.finish_segment = finish_segment
        self.parts: list[Part] = []
        self.begin()

    def begin(self) -> None:
        """Begin a new segment."""
        self.raw = ""  # the segment as the source writes it
        self.text = ""  # the text of the segment without tags
        self.root = Element("", "", 0, 0)
        self.open = [self.root]  # the root and all open elements; the last one is the innermost
        self.depth = 0  # the deepest nesting of elements so far
        # The name of the copied element: once for itself, and once for each open element of the same name inside.
        self.kept: list[str] = []

    @property
    def innermost(self) -> Element:
        """The innermost open element."""
        return self.open[-1]

    @property
    def last_child(self) -> Element | None:
        """The last child of the innermost open element, or None."""
        children = self.innermost.children
        return children[-1] if children else None

    def read(self, raw: str, kind: ConstructKind, name: str = "") -> None:
        """Read the next construct."""
        if self.kept:  # the construct is inside of an element that is copied as a whole
            self.keep(raw, kind, name)
        elif name in COPIED or name in BLOCK or kind == "declaration":
            self.finish()  # blocks separate segments
            self.parts.append(raw)
            if kind == "verbatim" or (kind == "start" and name in COPIED):
                self.kept = [name]
        elif kind == "text":
            self.write(raw, unescape(raw))
        else:
            self.raw += raw
            self.mark(raw, kind, name)

    def write(self, raw: str, text: str) -> None:
        """Add text to the segment. `raw` is the text as the source writes it, for example with entities."""
        self.raw += raw
        text = WHITE_SPACE.sub(" ", text)
        # Browsers show spaces with tags between them as one space, so drop a repeated space.
        if text.startswith(" ") and (not self.text or self.text.endswith(" ")):
            text = text[1:]
            last = self.last_child
            # An element without text, such as an image, keeps spaces on both sides.
            if last and last.start == len(self.text):
                last.closing += " "
        self.text += text

    def copy(self, raw: str, text: str = "") -> None:
        """Add a construct that is copied. `text` stands for it in the text to translate."""
        start = len(self.text)
        self.write(raw, text)
        end = len(self.text)
        last = self.last_child
        if last and last.verbatim is not None and last.end == start:
            # A copied element ends where this construct begins. A target word can belong to only one element, so extend
            # the copied element.
            last.closing += raw
            last.end = end
            return
        element = Element("", "", start, end, verbatim=raw) if text else Element("", raw, start, end)
        self.innermost.children.append(element)

    def keep(self, raw: str, kind: ConstructKind, name: str = "") -> None:
        """Copy a construct inside of an element that is copied."""
        if name == self.kept[0]:  # elements with the same name may be nested
            if kind == "end":
                self.kept.pop()
            elif kind != "empty":
                self.kept.append(name)
        element = self.innermost
        if element.verbatim is None:  # the copied element is a block, so it is outside of segments
            self.parts.append(raw)
            return
        self.raw += raw
        if not self.kept:  # this construct is the closing tag of the copied element
            self.close(name, raw)
            return
        element.verbatim += raw
        if kind == "text":
            self.text += WHITE_SPACE.sub(" ", unescape(raw))

    def mark(self, raw: str, kind: ConstructKind, name: str) -> None:
        """Read a tag or comment inside of a segment."""
        if kind == "end":
            self.close(name, raw)
            return
        # Comments and empty elements end where they begin. `close` sets the end of other elements.
        position = len(self.text)
        element = Element(raw, "", position, position)
        self.innermost.children.append(element)
        if kind in ("start", "verbatim"):
            element.name = name
            self.open.append(element)
            self.depth = max(self.depth, len(self.open))
        if kind == "verbatim":
            element.verbatim = ""
            self.kept = [name]

    def close(self, name: str, raw: str) -> None:
        """Close the innermost open element with this name, and all open elements inside of it."""
        if self.depth > MAX_DEPTH:  # `finish` will copy the whole segment, so elements do not matter
            return
        end = len(self.text)
        if all(element.name != name for element in self.open):
            # The element began before this segment. So it contains what the innermost open element contains so far.
            parent = self.innermost
            self.depth += 1
            parent.children = [Element("", raw, parent.start, end, parent.children)]
            return
        while self.innermost.name != name:  # the closing tag of the innermost element is missing
            self.open.pop().end = end
        element = self.open.pop()
        element.end = end
        element.closing = raw

    def finish(self) -> None:
        """End the segment. It is copied if it has no letters or too deeply nested elements."""
        if re.search(LETTER, self.text) and self.depth <= MAX_DEPTH:
            self.add_segment()
        else:
            self.parts.append(self.raw)
        self.begin()
        between_segments.get()()

    def add_segment(self) -> None:
        """Add the segment to the parts, between two copied parts."""
        # 1. End the elements that are still open.
        for element in self.open:
            element.end = len(self.text)

        # 2. Where children without text follow the last space of an element, write this space before the first of them.
        for parent in (self.root, *descendants(self.root)):
            is_spaced = self.text[parent.start : parent.end].endswith(" ")
            at_end = [child for child in parent.children if child.start == parent.end]
            if is_spaced and at_end:
                at_end[0].opening = " " + at_end[0].opening
                if parent is self.root:
                    at_end[-1].closing = at_end[-1].closing.rstrip(" ")

        # 3. Keep the white space at both ends of the text out of the translation.
        text = self.text.strip(" ")
        move(self.root, len(self.text) - len(self.text.lstrip(" ")), len(text))
        before = self.raw.removesuffix(self.raw.lstrip(SPACES))
        after = self.raw.removeprefix(self.raw.rstrip(SPACES))

        # 4. Copy unpaired tags at the edges of the segment, so that they do not move with a word.
        inner, tags_at_end = [], ""
        for child in self.root.children:
            if child.end == 0 and is_half_tag(child):
                before += child.opening + child.closing
            elif child.end == len(text) and is_half_tag(child):
                tags_at_end += child.opening + child.closing
            else:
                inner.append(child)
        self.root.children = inner
        self.parts += [before, Segment(text, self.root, self.finish_segment), tags_at_end + after]


def is_half_tag(element: Element) -> bool:
    """Return whether an element has no content, and only one of its two tags."""
    is_empty = element.start == element.end and not element.children and not element.verbatim
    is_half = not element.opening if element.closing else element.name
    return is_empty and bool(is_half)


def move(element: Element, shift: int, length: int) -> None:
    """Shift an element and its descendants to the left, and clip them to a text of `length` characters."""
    element.start = min(max(element.start - shift, 0), length)
    element.end = min(max(element.end - shift, 0), length)
    for child in element.children:
        move(child, shift, length)


def parse_constructs(items: Iterable[Construct], finish: Callable[[str], str] = str) -> list[Part]:
    """Return the parts of a fragment with these constructs. `finish` is applied to each translation."""
    parser = Parser(finish)
    for construct in items:
        parser.read(*construct)
    parser.finish()
    return [part for part in parser.parts if part]


def parse_html(text: str) -> list[Part]:
    """Return the parts of a fragment of HTML."""
    return parse_constructs(constructs(text))


def escape_html(text: str) -> str:
    """Escape a text so that it can be the content of an element."""
    return escape(text, quote=False)


HTML = Format(parse_html, escape_html)
