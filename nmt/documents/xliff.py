"""XLIFF 1 and 2, and TMX: the translation of each source becomes the target. Finished targets stay unchanged."""

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import partial

from nmt.documents.markup import Format, Part
from nmt.documents.xml import XmlNode
from nmt.documents.xml_units import UnitTable, is_empty, open_tag, parse_units
from nmt.languages import base_language

UNFINISHED = re.compile(r"""(\sstate\s*=\s*["'])(?:new|initial|needs-translation)\b""")
SUBSTATE = re.compile(r"""\ssubState\s*=\s*(?:"[^"]*"|'[^']*')""")  # it refines the state that is replaced
APPROVED = re.compile(r"""\sapproved\s*=\s*["']yes\b""")
SEGMENT = re.compile(r"""\smtype\s*=\s*["']seg\b""")
SEGMENT_ID = re.compile(r"""\smid\s*=\s*["']([^"']*)""")
LANGUAGE = re.compile(r"""\s(?:xml:)?lang\s*=\s*["']([^"']*)""")
CHANGED_BY = re.compile(r"""\schangeid\s*=\s*(?:"[^"]*"|'[^']*')""")
AROUND = "g|mrk|pc|hi"
Pairs = Iterator[tuple[XmlNode, XmlNode]]


def xliff_pairs(unit: XmlNode) -> Pairs:
    """Yield pairs of a target to fill and its source. A missing target is added.

    In a segmented unit, these are segments, which are elements `<mrk mtype="seg">` with the same `mid`.
    """
    # 1. Find the source and the target.
    children = {child.local_name: child for child in unit.children}
    source, target = children.get("source"), children.get("target")
    if source is None:
        raise ValueError(f"there is no source in {unit.opening:.60}")
    if APPROVED.search(unit.opening):
        return
    segmented = children.get("seg-source", source)
    if target is None:
        name = source.name.removesuffix("source") + "target"
        target = XmlNode(name, f"<{name}>", [], f"</{name}>")
        unit.children.insert(unit.children.index(segmented) + 1, target)

    # 2. Pair the segments of the source with those of the target.
    is_new = UNFINISHED.search(unit.opening + target.opening) is not None
    is_open = is_new or is_empty(target, XLIFF_TABLE)
    pairs = [(target, source)] if is_open else []
    if segments_of(segmented) and (is_open or segments_of(target)):
        pairs = segment_pairs(segmented, target, is_new)

    # 3. A new translation is to be reviewed. Only a state that the file declares is replaced.
    state = "needs-review-translation" if unit.local_name == "trans-unit" else "translated"
    for node in (unit, target):
        if pairs and UNFINISHED.search(node.opening):
            node.opening = SUBSTATE.sub("", UNFINISHED.sub(rf"\g<1>{state}", node.opening))
    yield from pairs


def segments_of(node: XmlNode) -> dict[str, XmlNode]:
    """Return the segments of a source or target by their identifiers."""
    segments = {}
    for child in node.children:
        if child.local_name == "mrk" and SEGMENT.search(child.opening):
            identifier = SEGMENT_ID.search(child.opening)
            segments[identifier[1] if identifier else ""] = child
        else:
            segments |= segments_of(child)
    return segments


def segment_pairs(segmented: XmlNode, target: XmlNode, is_new: bool) -> list[tuple[XmlNode, XmlNode]]:
    """Return pairs of segments. Segments that the target lacks are added at its end.

    Empty segments are to be filled. If there are none in a new target, all of its segments are.
    """
    segments = segments_of(segmented)
    if not segments_of(target):
        open_tag(target)
        target.children = deepcopy(segmented.children)
    done = segments_of(target)
    pairs = []
    for identifier, segment in segments.items():
        if identifier not in done:
            open_tag(target)
            target.children += deepcopy(with_space_before(segmented, segment))
            done[identifier] = target.children[-1]
            done[identifier].children = []
        if is_empty(done[identifier], XLIFF_TABLE):
            pairs.append((done[identifier], segment))
    if is_new and not pairs:
        pairs = [(done[identifier], segment) for identifier, segment in segments.items()]
    return pairs


def with_space_before(parent: XmlNode, node: XmlNode) -> list[XmlNode]:
    """Return a descendant of an element, and before it the space between it and the child before it."""
    if node not in parent.children:  # it is inside of another child
        return [node]
    index = parent.children.index(node)
    before = parent.children[max(index - 1, 0) : index]
    return [child for child in (*before, node) if child.name or child.opening.isspace()]


def tmx_pairs(unit: XmlNode, source_language: str, target_language: str) -> Pairs:
    """Yield the pair of a text to fill and its source, if the unit has a source. A missing text is added after it.

    Regions and scripts of languages do not count. The author of a new text is `nmt`.
    """
    # 1. Find the versions of the text.
    versions: dict[str, XmlNode] = {}
    for child in unit.children:
        if child.local_name == "tuv" and (language := LANGUAGE.search(child.opening)):
            versions.setdefault(base_language(language[1]), child)
    source = versions.get(base_language(source_language))
    target = versions.get(base_language(target_language))
    if source is None:
        return

    # 2. Add a version, or mark one without text as changed.
    if target is None:
        target = XmlNode("tuv", f'<tuv xml:lang="{target_language}" creationid="nmt">', [], "</tuv>")
        target.children.append(XmlNode("seg", "<seg/>"))
        index = unit.children.index(source) + 1
        unit.children[index:index] = [*with_space_before(unit, source)[:-1], target]
    elif is_empty(segment_of(target), XLIFF_TABLE):
        target.opening = CHANGED_BY.sub("", target.opening).removesuffix(">") + ' changeid="nmt">'
    if is_empty(segment_of(target), XLIFF_TABLE):
        yield segment_of(target), segment_of(source)


def segment_of(version: XmlNode) -> XmlNode:
    """Return the element of a version in TMX that contains its text."""
    for child in version.children:
        if child.local_name == "seg":
            return child
    raise ValueError(f"there is no seg in {version.opening:.60}")


def parse_tmx(text: str, source_language: str, target_language: str) -> list[Part]:
    """Return the parts of a TMX file. Each unit with a text in the source language gets one in the target language.

    Raises ValueError if the file is damaged, or if no text is in the source language.
    """
    languages = set(LANGUAGE.findall(text))
    if base_language(source_language) not in map(base_language, languages):
        raise ValueError(f"it has no texts in {source_language}, but in {', '.join(sorted(languages))}"[:200])
    pairs = partial(tmx_pairs, source_language=source_language, target_language=target_language)
    return parse_units(text, UnitTable("TMX", r"tmx\b", ("tu",), pairs, AROUND))


XLIFF_TABLE = UnitTable(
    "XLIFF of version 1 or 2",
    r"""xliff\s(?:.*\s)?version\s*=\s*["'][12]\.""",
    ("trans-unit", "segment"),
    xliff_pairs,
    AROUND,
)
XLIFF = XLIFF_TABLE.format()


def tmx_format(source_language: str, target_language: str) -> Format:
    """Return the format of TMX files that are translated from one language to another."""
    parse = partial(parse_tmx, source_language=source_language, target_language=target_language)
    return Format(parse, XLIFF.escape, protects=True)
