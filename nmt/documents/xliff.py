"""XLIFF 1 and 2, and TMX: the translation of each source becomes the target. Finished targets stay unchanged."""

import re
from copy import deepcopy
from dataclasses import replace
from functools import partial

from nmt.documents.html import escape_html
from nmt.documents.markup import Match, NotesPlace, Part, ReviewState
from nmt.documents.xml import XmlNode
from nmt.documents.xml_units import Pairs, UnitTable, child_named, is_empty, open_tag, parse_units
from nmt.languages import base_language

UNFINISHED = re.compile(r"""(\sstate\s*=\s*["'])(?:new|initial|needs-translation)\b""")
STATE = re.compile(r"""\sstate\s*=\s*(?:"[^"]*"|'[^']*')""")
DETAIL = r"""\s(?:state-qualifier|subState)\s*=\s*(?:"[^"]*"|'[^']*')"""  # removed when the state is set
SEGMENT = re.compile(r"""\smtype\s*=\s*["']seg\b""")
SEGMENT_ID = re.compile(r"""\smid\s*=\s*["']([^"']*)["']""")
# Template of a proposed translation. Fields: namespace prefix, attribute mid="…" of a segment or nothing, similarity in
# percent, source, target.
PROPOSAL = (
    '<{0}alt-trans{1} match-quality="{2:.0f}" origin="memory">'
    "<{0}source>{3}</{0}source><{0}target>{4}</{0}target></{0}alt-trans>"
)
TMX_DOUBTFUL = '<prop type="x-review">needs-review</prop>'  # stands before a translation
# The beginning of the root of version 2, if the root does not name the language of the targets.
ROOT_WITHOUT_TARGET = re.compile(r"""<(?:[\w.-]+:)?xliff\b(?=[^<>]*\sversion\s*=\s*["']2)(?![^<>]*\strgLang\s*=)""")
LANGUAGE = re.compile(r"""<tuv\s(?:[^<>]*\s)?(?:xml:)?lang\s*=\s*["']([^"']*)""")


def with_target_language(text: str, language: str) -> str:
    """Add the attribute `trgLang` to the root element of an XLIFF 2 file if it is missing.

    XLIFF 2 requires it in files that have targets. Files of other versions are returned unchanged. If `language` is
    empty, every file is.
    """
    if not language:
        return text
    return ROOT_WITHOUT_TARGET.sub(rf'\g<0> trgLang="{language}"', text, count=1)


def xliff_pairs(unit: XmlNode) -> Pairs:
    """Yield pairs of a target to fill and its source. A missing target is added.

    In a segmented unit, these are segments, which are elements `<mrk mtype="seg">` with the same `mid`.
    """
    # 1. Find the source and the target.
    source, target = child_named(unit, "source"), child_named(unit, "target")
    if source is None:
        raise ValueError(f"there is no source in {unit.opening:.60}")
    segmented = child_named(unit, "seg-source") or source
    if target is None:
        name = source.name.removesuffix("source") + "target"
        target = XmlNode(name, f"<{name}/>")
        unit.children.insert(unit.children.index(segmented) + 1, target)

    # 2. Keep the pairs whose target is empty. If none is empty, but the unit is declared as new, keep all pairs.
    is_new = UNFINISHED.search(unit.opening + target.opening) is not None
    pairs = [(target, source)]
    if segments_of(segmented) and (is_new or is_empty(target) or segments_of(target)):
        pairs = segment_pairs(segmented, target)
    empty = [pair for pair in pairs if is_empty(pair[0])]
    if not empty and not is_new:
        return

    # 3. Say whether the translation is to be reviewed. In version 2, this is a state of the segment.
    if unit.local_name == "segment":
        set_state(unit, "translated", "initial")
    else:
        set_state(target, "needs-review-translation", "needs-review-translation")
        unit.children.insert(unit.children.index(target) + 1, XmlNode(opening=NotesPlace()))
        for segment, _ in pairs:
            segment.note = partial(proposal, target=segment)
    yield from empty or pairs


def proposal(match: Match, target: XmlNode) -> str:
    """Return a match as a proposal for a target, or for a segment of it."""
    prefix = target.name.removesuffix(target.local_name)
    identifier = SEGMENT_ID.search(target.opening)
    attribute = identifier[0] if identifier else ""
    old, new = escape_html(match.source), escape_html(match.target)
    return PROPOSAL.format(prefix, attribute, 100 * match.similarity, old, new)


def set_state(node: XmlNode, unknown: str, doubtful: str) -> None:
    """Set the state of an element. Without confidences, only a state such as "new" is replaced."""
    tag = re.sub(DETAIL, "", open_tag(node))
    declared = UNFINISHED.sub(rf"\g<1>{unknown}", tag)
    bare = STATE.sub("", tag)[:-1]
    node.opening = ReviewState(declared, f'{bare} state="translated">', f'{bare} state="{doubtful}">')


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


def segment_pairs(segmented: XmlNode, target: XmlNode) -> list[tuple[XmlNode, XmlNode]]:
    """Return pairs of a segment of the target and its source. Segments that the target lacks are added."""
    sources, segments = segments_of(segmented), segments_of(target)
    open_tag(target)
    if not segments:
        target.children = deepcopy(segmented.children)
        segments = segments_of(target)
        for segment in segments.values():
            segment.children = []
    for identifier, source in sources.items():
        if identifier not in segments:
            segments[identifier] = replace(source, children=[])
            target.children += [XmlNode(opening=" "), segments[identifier]]
    return [(segments[identifier], source) for identifier, source in sources.items()]


def tmx_pairs(unit: XmlNode, source: str, target: str) -> Pairs:
    """Yield the text of a unit in the language `target` if it is empty, paired with the text in `source`.

    If the unit has no text in `target`, an empty one is added.

    Regions and scripts of languages do not count. The author of the new text is `nmt`.
    """
    versions: dict[str, XmlNode] = {}
    for child in unit.children:
        if language := LANGUAGE.match(child.opening):
            versions.setdefault(base_language(language[1]), child)
    version = versions.get(base_language(source))
    translation = versions.get(base_language(target))
    if version is None:
        return
    if translation is None:
        opening = f'<tuv xml:lang="{target}" creationid="nmt">'
        translation = XmlNode("tuv", opening, [XmlNode("seg", "<seg/>")], "</tuv>")
        unit.children.insert(unit.children.index(version) + 1, translation)
    new, old = child_named(translation, "seg"), child_named(version, "seg")
    if new and old and is_empty(new):
        tag = open_tag(new)
        new.opening = ReviewState(tag, tag, TMX_DOUBTFUL + tag)
        yield new, old


def parse_tmx(text: str, source: str, target: str) -> list[Part]:
    """Return the parts of a TMX file. Each unit with a text in the language `source` gets one in `target`.

    Raises ValueError if the file is damaged, or if it has no text in `source`.
    """
    languages = set(LANGUAGE.findall(text))
    if base_language(source) not in map(base_language, languages):
        raise ValueError(f"it has no texts in {source}, but in {', '.join(sorted(languages)):.100}")
    return parse_units(text, UnitTable("TMX", r"tmx\b", ("tu",), partial(tmx_pairs, source=source, target=target)))


XLIFF_ROOT = r"""xliff\b.*(?:\sversion\s*=\s*["']|\sxmlns\s*=\s*["']urn:oasis:names:tc:xliff:document:)[12]\."""
XLIFF = UnitTable("XLIFF of version 1 or 2", XLIFF_ROOT, ("trans-unit", "segment"), xliff_pairs).format()
