"""A parser of HTML and XML, which returns segments of text with inline elements.

Block tags and declarations separate segments. Everything between two segments is copied. The contents of scripts,
styles, `<code>` and elements with `translate="no"` are also copied, as are templates such as `{{ name }}`, and readings
of ruby text.
"""

import re
from collections.abc import Callable, Iterable
from html import escape, unescape
from typing import NamedTuple

import regex

from nmt.documents.constructs import COPIED, IMPLIED_ENDS, READINGS, Construct, ConstructKind, constructs, is_block
from nmt.documents.markup import (
    STAND_IN,
    STAND_INS,
    Element,
    Format,
    Part,
    Segment,
    between_segments,
    descendants,
    shown_by_stand_in,
)
from nmt.text.words import LETTER, SENTENCE_MARK, SPACED_LETTER, WORD_CHARACTER

IS_LETTER = regex.compile(LETTER)
IN_WORD = regex.compile(WORD_CHARACTER)
# A text that touches the text before it may still begin a new segment, as in `<a>Save</a><a>Back</a>`. The pattern is
# matched against the tags in between, the last two characters before them, and the first character after them. Between
# links, any letter after a word begins a segment. Between other elements, a lower-case letter continues the word, and
# so does a capital after a capital, as in `<b>H</b><i>TML</i>`.
_PHRASE = "(?:a|abbr|b|cite|em|i|label|mark|small|span|strong|time|u)>"
_NOT_CAPITAL = r"(?!\p{Lu})"
_END = r"[\p{Pe}\p{Pf}.:!?;…\"]"
_NEW_WORD = r"(?!\p{Ll})" + SPACED_LETTER
NEW_SEGMENT = regex.compile(
    rf"</(?:a|label)>.*<(?:a|label)>.*(?:\w|{_END}){LETTER}\Z"
    rf"|(?:<img>|</{_PHRASE}.*<{_PHRASE}).*(?:\w{_NOT_CAPITAL}\w|{_END}){_NEW_WORD}\Z"
)
SENTENCE_MARKS = regex.compile(f"{SENTENCE_MARK}*+")
TOUCHES = regex.compile(r"[^\s\p{Ps}\p{Pi}]\Z")  # the end of a text to which a mark after it belongs


MAX_DEPTH = 100
MAX_TAGS = 200  # of `Parser.tags`, in characters
SPACES = " \t\r\n\f"  # white space of HTML, which browsers show as one space
NOT_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # a character that XML does not allow
WHITE_SPACE = re.compile(f"[{SPACES}]+")


class Scope(NamedTuple):
    """An open element that decides whether its content is copied."""

    name: str
    copies: str  # "inside" or "outside" of segments, or an empty string if the content is translated

    def ends_before(self, tag: str) -> bool:
        """Return whether the element, if its end tag was left out, ends before a tag such as `li` or `/ul`."""
        return tag in IMPLIED_ENDS.get(self.name, "").split()


class Parser:
    """A reader of constructs that builds the parts of a fragment.

    `finish_segment` is applied to the translation of each segment.
    """

    def __init__(self, finish_segment: Callable[[str], str] = str) -> None:
        self.finish_segment = finish_segment
        self.parts: list[Part] = []
        self.scopes = [Scope("", "")]  # the last one is the innermost
        self.begin()

    def begin(self) -> None:
        """Begin a new segment."""
        self.pieces: list[str] = []  # the segment as the source writes it
        self.text = ""  # the text of the segment without tags
        self.root = Element("", "", 0, 0)
        self.open = [self.root]  # the root and all open elements; the last one is the innermost
        self.depth = 0  # the deepest nesting of elements so far
        self.n_opaque = 0
        self.tags = ""  # the last tags since the last text, without attributes

    @property
    def scope(self) -> Scope:
        """The innermost scope."""
        return self.scopes[-1]

    @property
    def kept(self) -> bool:
        """Whether the next construct is inside of an element that is copied."""
        return self.scope.copies != ""

    @property
    def innermost(self) -> Element:
        """The innermost open element."""
        return self.open[-1]

    @property
    def child_at_end(self) -> Element | None:
        """The last child of the innermost open element if no text follows its beginning, or None."""
        children = self.innermost.children
        return children[-1] if children and children[-1].start == len(self.text) else None

    def read(self, raw: str, kind: ConstructKind, name: str = "") -> None:
        """Read the next construct."""
        tag = f"/{name}" if kind == "end" else name
        # End the elements whose end tags were left out.
        while self.scope.ends_before(tag):
            self.read("", "end", self.scope.name)
        if self.scope.copies == "outside":
            self.parts.append(raw)
        elif kind == "text":
            self.read_text(raw)
        elif kind == "template":
            self.copy(raw, raw)
        elif is_block(kind, name) and not self.kept:
            self.finish()  # blocks separate segments
            self.parts.append(raw)
        else:
            self.mark(raw, kind, name, tag)
        self.set_scope(kind, name)

    def set_scope(self, kind: ConstructKind, name: str) -> None:
        """Begin or end a scope at a tag."""
        scope = self.scope
        if kind == "translated":
            self.scopes.append(Scope(name, ""))
        elif kind == "verbatim" or (kind == "start" and name in COPIED | READINGS):
            copies = "outside" if is_block(kind, name) else "inside"
            self.scopes.append(Scope(name, scope.copies or copies))
        # Inside of a scope, count elements whose end tags would end it: of the same name, or a list in an item.
        elif kind == "start" and (name == scope.name or scope.ends_before(f"/{name}")):
            self.scopes.append(Scope(name, scope.copies))
        elif kind == "end" and name == scope.name:
            self.scopes.pop()
            if self.scope.copies == "outside":
                self.finish()

    def read_text(self, raw: str) -> None:
        """Read a text of HTML."""
        if self.kept:
            self.keep(raw)
        else:
            self.write(raw, unescape(raw))

    def write(self, raw: str, text: str) -> None:
        """Add text to the segment. `raw` is the text as the source writes it, for example with entities."""
        text = WHITE_SPACE.sub(" ", text)
        if text and self.is_separate(text):
            self.finish()
        self.pieces.append(raw)
        last = self.child_at_end
        # Browsers show spaces with tags between them as one space, so drop a repeated space.
        if not self.text or self.text.endswith(" "):
            rest = text.lstrip(" \xa0" if last else " ")
            # An element without text, such as an image, keeps spaces on both sides, and no-break spaces after it.
            if last:
                last.closing += text.removesuffix(rest)
            text = rest
        is_in_word = IN_WORD.match(text) and IN_WORD.match(self.text[-1:])
        if is_in_word and last and last.verbatim == last.shown:
            # A mark in a word, as in `H<sub>2</sub>O`, belongs to the word.
            self.text += last.shown
            last.end = len(self.text)
            last.verbatim = None
        if text:
            self.text += text
            self.tags = ""

    def is_separate(self, text: str) -> bool:
        """Return whether a text begins a new segment, although no space separates it from the text before."""
        around = self.tags + self.text[-2:] + text[0]
        return NEW_SEGMENT.search(around) is not None

    def copy(self, raw: str, shown: str = "") -> None:
        """Add a construct that is copied. A reader sees it as `shown`; without it, the construct takes no place."""
        self.write(raw, self.new_stand_in() if shown else "")
        end = len(self.text)
        element = Element("", "", end - 1, end, verbatim=raw, shown=shown)
        if not shown:
            element = Element("", raw, end, end)
        self.innermost.children.append(element)

    def keep(self, raw: str) -> None:
        """Copy a text inside of an element that is copied. Readings are not shown, because they repeat their base."""
        is_reading = self.scope.name in READINGS
        self.copy(raw, "" if is_reading else WHITE_SPACE.sub(" ", unescape(raw)))

    def new_stand_in(self) -> str:
        """Return the next stand-in of the segment."""
        self.n_opaque += 1
        return STAND_INS[self.n_opaque % len(STAND_INS)]

    def mark(self, raw: str, kind: ConstructKind, name: str, tag: str) -> None:
        """Read a tag or comment inside of a segment. `tag` is the name, with a slash if it is an end tag."""
        self.pieces.append(raw)
        if self.depth > MAX_DEPTH:  # `finish` will copy the whole segment, so elements do not matter
            return
        self.tags = f"{self.tags}<{tag}>"[-MAX_TAGS:]
        if kind == "end":
            self.close(name, raw)
            return
        # Comments and empty elements end where they begin. `close` sets the end of other elements.
        position = len(self.text)
        element = Element(raw, "", position, position)
        self.innermost.children.append(element)
        if kind in ("start", "verbatim", "translated"):
            element.name = name
            element.first_piece = len(self.pieces)
            self.open.append(element)
            self.depth = max(self.depth, len(self.open))

    def close(self, name: str, raw: str) -> None:
        """Close the innermost open element with this name, and all open elements inside of it."""
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
        self.hide(element)

    def hide(self, element: Element) -> None:
        """Make an element that ends here opaque if it has a text without letters, such as `<sup>[1]</sup>`.

        If it touches the text before it, it is a mark, which takes no place in the text. Else, it gets a stand-in.
        Marks of sentences stay in the text, because the model needs them.
        """
        content = self.text[element.start :]
        has_text = SENTENCE_MARKS.fullmatch(content) is None
        if IS_LETTER.search(content) or not (has_text or (element.children and not content)):
            return
        element.shown = content.strip().translate(shown_by_stand_in(element, self.text))
        element.verbatim = "".join(self.pieces[element.first_piece : -1]).strip(SPACES)
        element.children = []
        # White space at both ends of the content stays in the text.
        before, after = content.removesuffix(content.lstrip()), content.removeprefix(content.rstrip())
        self.text = self.text[: element.start] + before
        element.start = len(self.text)
        if STAND_IN.search(content) or (content and not TOUCHES.search(self.text)):
            self.text += self.new_stand_in()
        element.end = len(self.text)
        self.text += after

    def finish(self) -> None:
        """End the segment. It is copied if it has no letters or too deeply nested elements."""
        if IS_LETTER.search(self.text) and self.depth <= MAX_DEPTH:
            self.add_segment()
        else:
            self.parts.append("".join(self.pieces))
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
        raw = "".join(self.pieces)
        before = raw.removesuffix(raw.lstrip(SPACES))
        after = raw.removeprefix(raw.rstrip(SPACES))

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
    """Escape a text so that it can be the content of an element. Characters that XML does not allow are removed."""
    return escape(NOT_XML.sub("", text), quote=False)


HTML = Format(parse_html, escape_html)
