"""The result of reading a document in any format: parts to copy, and segments of plain text with elements.

An element is opaque if it is copied as a whole, such as code. In the plain text, one private character is the stand-in
of an opaque element. So a model reads nothing of the element, and the translation shows where it belongs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

import regex

from nmt.text.spans import Span

# This function is called after each segment that is parsed or written. A server processes other requests in it. An
# exception in it ends the work on the document.
between_segments: ContextVar[Callable[[], object]] = ContextVar("between_segments", default=lambda: None)

# The stand-ins of the opaque elements of a segment, in ascending order. Fonts of icons use other private characters.
STAND_INS = [chr(code) for code in range(0x10F000, 0x10FFFE)]
_ANY = f"{STAND_INS[0]}-{STAND_INS[-1]}"
STAND_IN = regex.compile(f"[{_ANY}]")
# Stand-ins with at most signs between them, such as those of `<kbd>Ctrl</kbd>+<kbd>C</kbd>`. They stay together.
_NO_SIGN = r"\w\s\p{Ps}\p{Pe}"  # the content of a character class
STAND_IN_RUN = regex.compile(f"[{_ANY}](?:[^{_NO_SIGN}{_ANY}]*+[{_ANY}])*+")


@dataclass(slots=True)
class Element:
    """An opening tag, a closing tag, and the content between them. The content may be empty, as in `<br/>`."""

    opening: str
    closing: str
    start: int  # the start of the content in the plain text, in characters
    end: int  # the end of the content
    children: list["Element"] = field(default_factory=list)
    verbatim: str | None = None  # the content of an opaque element, which is written instead of a translation
    shown: str = ""  # the text that a reader sees of an opaque element
    name: str = ""  # the name in both tags, or an empty string if there is no closing tag
    first_piece: int = 0  # the start of the content in `Parser.pieces`


@dataclass(frozen=True)
class Match:
    """A unit of a translation memory whose source is equal or similar to a text; see `nmt.translate.matches`."""

    source: str
    target: str
    similarity: float  # 0-1; only an equal text has 1
    is_taken: bool = False  # whether the target is the translation of the text


@dataclass(slots=True)
class Segment:
    """A text to translate, and the elements in it."""

    text: str  # the plain text, without tags
    root: Element  # an element without tags that contains all elements of the segment
    finish: Callable[[str], str] = str  # this function is applied to the translation with its tags
    context: str = ""  # what tells apart segments with equal texts, such as the msgctxt of PO
    note: Callable[[Match], str] | None = None  # a function that returns a text about a match, for `NotesPlace`


class NotesPlace(str):
    """The place of the notes about matches: those of the segments between the last and the next `ReviewState`."""


class ReviewState(str):
    """A text to copy, unless confidences are known: then it says whether any of the next translations is doubtful.

    The next translations are those of the segments up to the next state.
    """

    __slots__ = ("doubtful", "sure")  # saves memory: in a PO file, each message has a state
    sure: str
    doubtful: str

    def __new__(cls, unknown: str, sure: str, doubtful: str) -> "ReviewState":
        state = super().__new__(cls, unknown)
        state.sure, state.doubtful = sure, doubtful
        return state

    def written(self, doubts: list[str] | None) -> str:
        """Return what is written, given the doubts about the next translations; see `Translation.doubts`."""
        if doubts is None:
            return self
        if doubts:
            return self.doubtful
        return self.sure


Part = str | Segment  # a string is copied, a segment is translated
# A function that gets a document before and after the translation. It returns the new document with corrections, and
# what is wrong with the translations.
Review = Callable[[str, str], tuple[str, list[str]]]
Replacement = tuple[Span, Sequence[Part]]  # a span of a text, and the parts that replace it


@dataclass(frozen=True)
class Format:
    """The functions that read and write one kind of markup."""

    parse: Callable[[str], list[Part]]  # returns the parts of a document
    escape: Callable[[str], str]  # returns translated plain text as markup
    protects: bool = False  # whether placeholders such as {name} are kept without the option
    review: Review = lambda _, translated: (translated, [])


def parts_of_text(text: str, replacements: Iterable[Replacement]) -> list[Part]:
    """Replace spans of a text by parts, and copy the rest. The spans must be in ascending order."""
    parts = []
    copied = 0  # the end of the text that has been copied or replaced
    for (start, end), new_parts in replacements:
        parts += [text[copied:start], *new_parts]
        copied = end
    return [*parts, text[copied:]]


def segments_in(parts: Sequence[Part]) -> list[Segment]:
    """Return the parts that are segments to translate."""
    return [part for part in parts if isinstance(part, Segment)]


def has_segment(parts: Sequence[Part]) -> bool:
    """Return whether any of the parts is a segment to translate."""
    return bool(segments_in(parts))


def descendants(element: Element) -> Iterator[Element]:
    """Yield all descendants of an element, in the order of their opening tags."""
    for child in element.children:
        yield child
        yield from descendants(child)


def shown_by_stand_in(root: Element, text: str) -> dict[int, str]:
    """Return what a reader sees of the opaque elements in a text, by their stand-ins, for `str.translate`."""
    opaque = [element for element in descendants(root) if element.verbatim is not None]
    return {ord(text[element.start]): element.shown for element in opaque if element.start < element.end}
