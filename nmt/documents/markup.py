"""What the readers of all formats make of a text: parts that are copied, and segments of plain text with elements."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from nmt.text.spans import Span

# Called after each segment that is parsed or written; what it raises ends the work. So a server can let other requests
# go first in the middle of a document, whatever its format.
between_segments: ContextVar[Callable[[], object]] = ContextVar("between_segments", default=lambda: None)


@dataclass
class Element:
    """An opening and a closing tag with what is between them; without content, for example `<br/>` or an empty span."""

    opening: str
    closing: str
    start: int  # in the plain text, in characters
    end: int
    children: list["Element"] = field(default_factory=list)
    verbatim: str | None = None  # written instead of the translation of the content, such as code
    name: str = ""  # of the tag; a closing tag has the same name. Empty for what no tag closes


@dataclass
class Segment:
    """A text to translate, and the elements in it."""

    text: str
    root: Element  # without tags; contains all elements of the segment
    finish: Callable[[str], str] = str  # applied to the translation after the tags are written


Part = str | Segment  # a str is copied
Replacement = tuple[Span, Sequence[Part]]  # a span of a text, and the parts in its place


@dataclass(frozen=True)
class Format:
    """How a kind of markup is read and written."""

    parse: Callable[[str], list[Part]]
    escape: Callable[[str], str]  # from translated text to markup


def parts_of_text(text: str, replacements: Iterable[Replacement]) -> list[Part]:
    """Return the parts of a text that is copied but for some spans, which are in order."""
    parts = []
    copied = 0  # the end of what is copied or replaced
    for (start, end), new_parts in replacements:
        parts += [text[copied:start], *new_parts]
        copied = end
    return [*parts, text[copied:]]


def has_segment(parts: Sequence[Part]) -> bool:
    """Return whether any of the parts is translated."""
    return any(isinstance(part, Segment) for part in parts)


def descendants(element: Element) -> Iterator[Element]:
    """Yield the children of an element, each followed by its own descendants."""
    for child in element.children:
        yield child
        yield from descendants(child)
