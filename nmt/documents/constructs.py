"""The constructs that HTML consists of: tags, comments, declarations, templates such as `{{ name }}`, and texts."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

_BLOCK = """
address article aside audio blockquote body br button canvas caption center col colgroup datalist dd details dialog div
dl dt embed fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe
input legend li link main map menu meta meter nav noscript object ol optgroup option p param progress search section
select source summary table tbody td tfoot th thead title tr track ul video
"""
_VOID = "area base br col embed hr img input link meta param source track wbr"
BLOCK, VOID = frozenset(_BLOCK.split()), frozenset(_VOID.split())
COPIED = {"math", "pre", "script", "style", "svg", "template", "textarea"}  # blocks copied as a whole
CODE = {"code", "kbd", "samp", "var"}
READINGS = {"rp", "rt", "rtc"}  # in ruby text, how the characters before are read
RAW = {"script", "style", "textarea"}  # elements whose content contains no tags
# HTML lets one leave out some end tags. Each line names such an element, and the tags before which it then ends.
_IMPLIED_ENDS = """
caption: td th tr tbody tfoot thead /table
dd: dd dt /dl
dt: dd dt /dl
li: li /menu /ol /ul
optgroup: optgroup hr /select
option: option optgroup hr /datalist /optgroup /select
rp: rb rp rt rtc /ruby
rt: rb rp rt rtc /ruby
rtc: rb rp rt rtc /ruby
tbody: tbody tfoot thead /table
td: td th tr /tr tbody tfoot thead /tbody /tfoot /thead /table
tfoot: tbody tfoot thead /table
th: td th tr /tr tbody tfoot thead /tbody /tfoot /thead /table
thead: tbody tfoot thead /table
tr: tr tbody tfoot thead /tbody /tfoot /thead /table
"""
IMPLIED_ENDS = dict(line.split(": ") for line in _IMPLIED_ENDS.strip().splitlines())
IMPLIED_ENDS["p"] = """
p address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure footer
form h1 h2 h3 h4 h5 h6 header hgroup hr li main menu nav ol pre search section summary table tbody td tfoot th thead
tr ul /address /article /aside /blockquote /body /caption /center /dd /details /dialog /div /dl /dt /fieldset
/figcaption /figure /footer /form /h1 /h2 /h3 /h4 /h5 /h6 /header /hgroup /hr /li /main /menu /nav /ol /pre /search
/section /summary /table /tbody /td /tfoot /th /thead /tr /ul
"""
# Expressions of template languages (Go, Jinja, Vue, ERB, PHP). No match contains the beginning of another one, or a
# closing tag, so that a search takes linear time, and braces without a partner are text.
_BRACES = r"(?:(?!\{[{%\#]|</[a-zA-Z]).)*?"
_TEMPLATE = rf"""\{{\{{-?\s*/\*(?:(?!/\*|\*/).)*\*/\s*-?\}}\}} | \{{\{{{_BRACES}\}}\}}\}}?
    | \{{%{_BRACES}%\}} | \{{\#{_BRACES}\#\}} | <%(?:(?!<%).)*?%> | <\?(?:php\b|=).*?(?:\?>|\Z)"""
# A template that encloses others or chooses between them must keep its place. All others, except notes, stand for text.
_NOTE = r"\{\#|\{\{-?\s*/\*|<%(?:\#|--)"
_STATEMENT = r"""\{%(?![-+~]?\s*(?:asset|cycle|firstof|link|now|ref|static|trans|translate|url)\b)
    | \{\{~?(?:[\#/^]|\s*else\b) | <%(?![=-]) | <\?php(?!\s+(?:echo|print)\b)"""
_TEMPLATE_OR_TEXT = rf"""(?P<note> (?={_NOTE})(?:{_TEMPLATE}) ) | (?P<statement> (?={_STATEMENT})(?:{_TEMPLATE}) )
    | (?P<template> {_TEMPLATE} ) | (?P<text> (?: [^<{{]++ | \{{(?![{{%\#]) )++ | . )"""
TAG_OR_COMMENT = rf"""(?P<comment> <!--.*?(?:-->|\Z) | <!\[CDATA\[(?:(?!<!\[CDATA\[).)*?\]\]>
        | <!\[[^>]*+> | <\?(?!xml\b|php\b|=)[^>]*+> )
    | (?P<declaration> <(?:!|\?xml\b)[^>]*+> )
    | (?P<tag> </?[a-zA-Z](?: [^<>={{]++ | {_TEMPLATE} | \{{
        | =\s*+(?: "(?: [^"{{<]++ | {_TEMPLATE} | [{{<] )*+" | '(?: [^'{{<]++ | {_TEMPLATE} | [{{<] )*+' )?+ )*+> )"""
TEMPLATE_OR_TEXT = re.compile(_TEMPLATE_OR_TEXT, re.DOTALL | re.VERBOSE)
CONSTRUCT = re.compile(f"{TAG_OR_COMMENT} | {_TEMPLATE_OR_TEXT}", re.DOTALL | re.VERBOSE)
KINDS_OF_TEMPLATES = {"note": "comment", "statement": "declaration"}
TAG_NAME = re.compile(r"</?([^\s/>]+)")
NOT_TRANSLATED = re.compile(r"""(?i)\s(?:translate\s*=\s*["']?no\b|class\s*=\s*(?:"[^"]*|'[^']*|)\bnotranslate\b)""")
TRANSLATED = re.compile(r"""(?i)\stranslate\s*=\s*(?:["']?yes\b|["']{2}|(?=[\s>]))""")


# The kind of a construct. The first five kinds are tags. "empty" is the tag of an element without content, "verbatim"
# the start tag of an element that is copied, and "translated" that of an element that is translated even in a copied
# one. A template that must keep its place is a "declaration".
ConstructKind = Literal["start", "end", "empty", "verbatim", "translated", "comment", "declaration", "template", "text"]


class Construct(NamedTuple):
    """A tag, a comment, a declaration, a template, or a text between two of these."""

    raw: str  # the construct as the source writes it
    kind: ConstructKind
    name: str = ""  # the name of a tag in lower case, else empty


def constructs(text: str) -> Iterator[Construct]:
    """Yield the constructs that a text consists of. A text construct may be empty."""
    cursor = 0
    # No tag or comment begins after this position. Without this limit, many "<" would take quadratic time.
    last_end = max(text.rfind(">"), text.rfind("<!--"))
    last_template = max(last_end, text.rfind("}"))
    while cursor <= last_template:
        match = (CONSTRUCT if cursor <= last_end else TEMPLATE_OR_TEXT).match(text, cursor)
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
        kind = KINDS_OF_TEMPLATES.get(match.lastgroup or "", match.lastgroup)
        return Construct(raw, cast("ConstructKind", kind))
    name = TAG_NAME.match(raw)[1].lower()  # type: ignore[index]
    tag_kind: ConstructKind = "start"
    if raw.startswith("</"):
        tag_kind = "end"
    elif raw.endswith("/>") or name in VOID:
        tag_kind = "empty"
    elif NOT_TRANSLATED.search(raw):
        tag_kind = "verbatim"
    elif TRANSLATED.search(raw):
        tag_kind = "translated"
    elif name in CODE:
        tag_kind = "verbatim"
    return Construct(raw, tag_kind, name)


def is_block(kind: ConstructKind, name: str) -> bool:
    """Return whether a construct separates segments. Elements with a hyphen in their names are custom elements."""
    is_custom = "-" in name and " " not in name
    return is_custom or name in COPIED or name in BLOCK or kind == "declaration"
