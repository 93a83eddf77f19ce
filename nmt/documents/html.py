"""HTML and XML fragments as segments of text with inline elements; see `markup`.

Tags, comments and everything between two segments are copied as they are written. Block tags and declarations separate
segments. The content of scripts, styles and the like is not translated; inside of a sentence, neither is that of
`<code>` and of elements with `translate="no"`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from html import escape, unescape
from typing import NamedTuple

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
TAG_NAME = re.compile(r"</?([^\s/>]+)")
NOT_TRANSLATED = re.compile(r"""(?i)\s(?:translate\s*=\s*["']?no\b|class\s*=\s*(?:"[^"]*|'[^']*|)\bnotranslate\b)""")
MAX_DEPTH = 100
SPACES = " \t\r\n\f"  # what HTML shows as one space
WHITE_SPACE = re.compile(f"[{SPACES}]+")


class Kind(Enum):
    """The kind of a construct; the first four are tags."""

    START = "start"
    END = "end"
    EMPTY = "empty"  # an element without content
    VERBATIM = "verbatim"  # the start of an element whose content is copied
    # These are named as the groups of `CONSTRUCT`.
    COMMENT = "comment"
    DECLARATION = "declaration"
    TEXT = "text"


class Construct(NamedTuple):
    """A tag, a comment, a declaration or the text between two of them."""

    raw: str  # as written
    kind: Kind
    name: str = ""  # of a tag


def constructs(text: str) -> Iterator[Construct]:
    """Yield the constructs of a text, which cover it without gaps."""
    cursor = 0
    # No tag or comment begins after this position. Without this check, a text of many "<" would take quadratic time.
    last_end = max(text.rfind(">"), text.rfind("<!--"))
    while cursor <= last_end:
        match = CONSTRUCT.match(text, cursor)
        assert match  # any character is text, at least
        construct = classified(match)
        yield construct
        cursor = match.end()

        # The content of a script is one text up to its closing tag.
        if construct.name in RAW and construct.kind in (Kind.START, Kind.VERBATIM):
            closing = re.compile(f"</{construct.name}", re.IGNORECASE).search(text, cursor)
            end = closing.start() if closing else len(text)
            if cursor < end:
                yield Construct(text[cursor:end], Kind.TEXT)
            cursor = end
    if cursor < len(text):
        yield Construct(text[cursor:], Kind.TEXT)


def classified(match: re.Match[str]) -> Construct:
    """Return the construct of a match of `CONSTRUCT`."""
    raw = match[0]
    if match.lastgroup != "tag":
        return Construct(raw, Kind(match.lastgroup))
    name = TAG_NAME.match(raw)[1].lower()  # type: ignore[index]
    if raw.startswith("</"):
        kind = Kind.END
    elif raw.endswith("/>") or name in VOID:
        kind = Kind.EMPTY
    elif name in CODE or NOT_TRANSLATED.search(raw):
        kind = Kind.VERBATIM
    else:
        kind = Kind.START
    return Construct(raw, kind, name)


class Parser:
    """Builds the parts of a fragment from its constructs; `finish_segment` is applied to each translation."""

    def __init__(self, finish_segment: Callable[[str], str] = str) -> None:
        self.finish_segment = finish_segment
        self.parts: list[Part] = []
        self.begin()

    def begin(self) -> None:
        """Begin a segment."""
        self.raw = ""  # as the source writes the segment
        self.text = ""  # without tags
        self.root = Element("", "", 0, 0)
        self.open = [self.root]  # the root and the elements that are open, the innermost last
        self.depth = 0  # how deeply elements are nested
        self.kept: list[str] = []  # names of the open elements whose content is copied, the outermost first

    @property
    def innermost(self) -> Element:
        """The innermost open element."""
        return self.open[-1]

    @property
    def last_child(self) -> Element | None:
        """The last element inside of the innermost one."""
        children = self.innermost.children
        return children[-1] if children else None

    def read(self, raw: str, kind: Kind, name: str = "") -> None:
        """Read the next construct."""
        if self.kept:  # inside of an element that is copied whole
            self.keep(raw, kind, name)
        elif name in COPIED or name in BLOCK or kind is Kind.DECLARATION:
            self.finish()  # blocks separate segments
            self.parts.append(raw)
            if kind is Kind.VERBATIM or (kind is Kind.START and name in COPIED):
                self.kept = [name]
        elif kind is Kind.TEXT:
            self.write(raw, unescape(raw))
        else:
            self.raw += raw
            self.mark(raw, kind, name)

    def write(self, raw: str, text: str) -> None:
        """Add text to the segment; `raw` is how the source writes it."""
        self.raw += raw
        text = WHITE_SPACE.sub(" ", text)
        # White space is shown as one space, even if there are tags in between.
        if text.startswith(" ") and (not self.text or self.text.endswith(" ")):
            text = text[1:]
            last = self.last_child
            # An element without text, such as an image, has the space on both sides.
            if last and last.start == len(self.text):
                last.closing += " "
        self.text += text

    def copy(self, raw: str, text: str = "") -> None:
        """Add a construct that is copied; `text` takes its place in the sentence that is translated."""
        start = len(self.text)
        self.write(raw, text)
        end = len(self.text)
        last = self.last_child
        if last and last.verbatim is not None and last.end == start:
            # One element for both: a target word belongs to one element only.
            last.closing += raw
            last.end = end
            return
        element = Element("", "", start, end, verbatim=raw) if text else Element("", raw, start, end)
        self.innermost.children.append(element)

    def keep(self, raw: str, kind: Kind, name: str = "") -> None:
        """Copy a construct inside of an element whose content is copied."""
        if name == self.kept[0]:  # elements of one name may be inside of each other
            if kind is Kind.END:
                self.kept.pop()
            elif kind is not Kind.EMPTY:
                self.kept.append(name)
        element = self.innermost
        if element.verbatim is None:  # in a block, which is outside of segments
            self.parts.append(raw)
            return
        self.raw += raw
        if not self.kept:  # this is the closing tag of the element
            self.close(name, raw)
            return
        element.verbatim += raw
        if kind is Kind.TEXT:
            self.text += WHITE_SPACE.sub(" ", unescape(raw))

    def mark(self, raw: str, kind: Kind, name: str) -> None:
        """Read a tag or comment inside of a segment."""
        if kind is Kind.END:
            self.close(name, raw)
            return
        # Comments and empty elements have no content; the others get their end when they are closed.
        position = len(self.text)
        element = Element(raw, "", position, position)
        self.innermost.children.append(element)
        if kind in (Kind.START, Kind.VERBATIM):
            element.name = name
            self.open.append(element)
            self.depth = max(self.depth, len(self.open))
        if kind is Kind.VERBATIM:
            element.verbatim = ""
            self.kept = [name]

    def close(self, name: str, raw: str) -> None:
        """Close the innermost element of this name, and the elements that are open inside of it."""
        if self.depth > MAX_DEPTH:  # `finish` copies the segment, so nothing reads its elements
            return
        end = len(self.text)
        if all(element.name != name for element in self.open):
            # The element began before this segment: all that its parent has so far is inside of it.
            parent = self.innermost
            self.depth += 1
            parent.children = [Element("", raw, parent.start, end, parent.children)]
            return
        while self.innermost.name != name:  # a closing tag is missing
            self.open.pop().end = end
        element = self.open.pop()
        element.end = end
        element.closing = raw

    def finish(self) -> None:
        """End the segment. If it has no letters, or too many elements inside of each other, it is copied."""
        if re.search(LETTER, self.text) and self.depth <= MAX_DEPTH:
            self.add_segment()
        else:
            self.parts.append(self.raw)
        self.begin()
        between_segments.get()()

    def add_segment(self) -> None:
        """Add the segment to the parts, with its text stripped, between two parts that are copied."""
        # 1. Elements that are still open end here.
        for element in self.open:
            element.end = len(self.text)

        # 2. The space at the end of an element goes before the elements without text that follow this space.
        for parent in (self.root, *descendants(self.root)):
            is_spaced = parent.start < parent.end and self.text[parent.end - 1] == " "
            at_end = [child for child in parent.children if child.start == parent.end]
            if is_spaced and at_end:
                at_end[0].opening = " " + at_end[0].opening
                if parent is self.root:
                    at_end[-1].closing = at_end[-1].closing.rstrip(" ")

        # 3. Strip the text; the white space at its ends is copied.
        text = self.text.strip(" ")
        move(self.root, len(self.text) - len(self.text.lstrip(" ")), len(text))
        before = self.raw[: len(self.raw) - len(self.raw.lstrip(SPACES))]
        after = self.raw[len(self.raw.rstrip(SPACES)) :]

        # 4. A tag without its partner stays at the edge of the segment instead of following a word.
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
    """Return whether an element is one tag whose partner is missing, with nothing inside."""
    is_empty = element.start == element.end and not element.children and not element.verbatim
    is_opening_tag = element.name and not element.closing
    is_closing_tag = element.closing and not element.opening
    return is_empty and bool(is_opening_tag or is_closing_tag)


def move(element: Element, shift: int, length: int) -> None:
    """Move the element and its descendants to the left, into a text of this length."""
    element.start = min(max(element.start - shift, 0), length)
    element.end = min(max(element.end - shift, 0), length)
    for child in element.children:
        move(child, shift, length)


def parse_constructs(items: Iterable[Construct], finish: Callable[[str], str] = str) -> list[Part]:
    """Return the parts of a fragment with these constructs, which cover it without gaps; see `Parser`."""
    parser = Parser(finish)
    for construct in items:
        parser.read(*construct)
    parser.finish()
    return [part for part in parser.parts if part]


def parse_html(text: str) -> list[Part]:
    """Return the parts of a fragment of HTML."""
    return parse_constructs(constructs(text))


def escape_html(text: str) -> str:
    """Return text as the content of an element."""
    return escape(text, quote=False)


HTML = Format(parse_html, escape_html)
