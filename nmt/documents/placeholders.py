"""Placeholders as elements of markup, for models that were not trained with them; see `markup`.

Such a model would garble `{name}` and what is around it. So the text is translated without it, and it goes beside the
word that it touches, as an element without content. Only numbers, which models know, stay in the text.
"""

from nmt.documents.markup import Element, Format, Pair, Part, Placement, Segment, descendants, words_of
from nmt.text.lines import one_line
from nmt.text.placeholders import NUMBER, Patterns, has_words, spans_of


def protecting(markup: Format, patterns: Patterns) -> Format:
    """A format whose segments keep the spans that match a pattern; one without other words is copied."""

    def parse(text: str) -> list[Part]:
        return [protected(part, markup, patterns) if isinstance(part, Segment) else part for part in markup.parse(text)]

    return Format(parse, markup.escape)


def protected(segment: Segment, markup: Format, patterns: Patterns) -> Part:
    """The segment with elements for its spans, except for spans around tags and in text that is copied."""
    elements = list(descendants(segment.root))
    edges = {edge for element in elements for edge in (element.start, element.end)}
    copied = [element for element in elements if element.verbatim is not None]
    new = [
        Element("", "", start, end, verbatim=markup.escape(segment.text[start:end]))
        for start, end in spans_of(segment.text, patterns)
        if not any(start < edge < end for edge in edges) and not any(c.start <= start < c.end for c in copied)
    ]
    if new and not has_words(segment.text, [(element.start, element.end) for element in new]):
        return unchanged(segment, markup)
    for element in new:
        add(segment.root, element)
    for element in reversed(new):
        if not NUMBER.fullmatch(segment.text, element.start, element.end):
            cut(segment, element)
    return segment


def cut(segment: Segment, element: Element) -> None:
    """Take the text of an element out of the segment, and a space beside it."""
    text, start, end = segment.text, element.start, element.end
    if text[:start].endswith(" ") and text[end : end + 1] in ("", " "):
        start -= 1
    elif not start and text.startswith(" ", end):
        end += 1
    segment.text = text[:start] + text[end:]
    for one in [segment.root, *descendants(segment.root)]:
        one.start, one.end = (min(at, max(start, at - (end - start))) for at in (one.start, one.end))


def add(parent: Element, element: Element) -> None:
    """Add an element to the tree, inside of the elements around it."""
    around = [c for c in parent.children if c.start <= element.start and element.end <= c.end and c.start < c.end]
    if around:
        add(around[0], element)
    else:
        parent.children = sorted([*parent.children, element], key=lambda child: (child.start, child.end))


def unchanged(segment: Segment, markup: Format) -> str:
    """The segment as it was parsed."""
    words = words_of(segment.text, (edge for one in descendants(segment.root) for edge in (one.start, one.end)))
    links = [(i, i) for i in range(len(words))]
    return Placement(Pair(segment, segment.text, [], words, words, links), markup.escape).written()


class Line(Segment):
    """A line without markup. The translator cuts it into sentences only if it is long."""

    @property
    def sentences(self) -> list[tuple[int, int]]:
        return [(0, len(self.text))]


TEXT = Format(lambda text: [Line(text, Element("", "", 0, len(text)))], one_line)
