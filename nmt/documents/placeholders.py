"""Placeholders as elements whose content is copied, for models that were not trained with them; see `markup`."""

from nmt.documents.markup import Element, Format, Pair, Part, Placement, Segment
from nmt.text.lines import one_line
from nmt.text.placeholders import Patterns, has_words, spans_of


def protecting(markup: Format, patterns: Patterns) -> Format:
    """A format whose segments keep the spans that match a pattern; one without other words is copied."""

    def parse(text: str) -> list[Part]:
        parts: list[Part] = []
        for part in markup.parse(text):
            if isinstance(part, Segment):
                spans = spans_of(part.text, patterns)
                for start, end in spans:
                    protect(part.root, Element("", "", start, end, verbatim=markup.escape(part.text[start:end])))
                if spans and not has_words(part.text, spans):
                    parts.append(unchanged(part, markup))
                    continue
            parts.append(part)
        return parts

    return Format(parse, markup.escape)


def protect(parent: Element, element: Element) -> None:
    """Add an element to the tree, unless a tag is inside of it or the text around it is copied."""
    start, end = element.start, element.end
    around = [child for child in parent.children if child.start <= start and end <= child.end]
    if parent.verbatim is not None or (not around and any(start < c.end and c.start < end for c in parent.children)):
        return
    if around:
        protect(around[0], element)
    else:
        parent.children = sorted([*parent.children, element], key=lambda child: (child.start, child.end))


def unchanged(segment: Segment, markup: Format) -> str:
    """The segment as it was parsed."""
    segment.sentences = [(0, len(segment.text))]
    pair = Pair.made(segment, [segment.text], "")
    pair.target = pair.source
    pair.links = [(i, i) for i in range(len(pair.source))]
    return Placement(pair, markup.escape).written()


def one_segment(text: str) -> list[Part]:
    """A line without markup, which the translator cuts into sentences if it is long."""
    segment = Segment(one_line(text), Element("", "", 0, len(text)))
    segment.sentences = [(0, len(text))]
    return [segment]


TEXT = Format(one_segment, str)
