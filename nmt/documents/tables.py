"""Tables of strings, JSON and PO: only texts are replaced. Each line of a text is a paragraph, and may have tags.

json, polib and translate-toolkit would write the whole file anew, with other line breaks and escapes.
"""

import json
import re
from collections.abc import Callable, Iterator

from nmt.documents.html import BLOCK, VOID, Parser, constructs
from nmt.documents.markup import Format, Part, Segment

# An address, and a message whose branches are chosen by a number: {n, plural, one {# day} other {# days}}
COPIED = re.compile(r"\s*\w+://\S+\s*|.*\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,.*", re.DOTALL)
JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
JSON_KEY = re.compile(r"\s*:")
PO_STRING = r'"(?:[^"\\\r\n]|\\[^\r\n])*"'
PO_LINE = re.compile(
    rf"""[ \t]*(?:(?P<comment>\#[^\n]*)?
    | (?P<name>msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)[ \t]*
      (?P<value>{PO_STRING}(?:[ \t]*\r?\n[ \t]*{PO_STRING})*)[ \t]*)
    (?:\r?\n|\Z)""",
    re.VERBOSE,
)
PO_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
PO_ESCAPED = str.maketrans({character: f"\\{name}" for name, character in PO_ESCAPES.items()})
HTML_NAMES = BLOCK | VOID  # of tags that need no partner
FUZZY = re.compile(r"#,.*\bfuzzy\b")


def parts_of(text: str, encode: Callable[[str], str]) -> list[Part]:
    """Return the parts of a text, which `encode` writes as the file does.

    Entities such as `&amp;` are text, and so is a tag without its partner whose name HTML does not know: `<a@b.de>`.
    """
    if COPIED.fullmatch(text):
        return [encode(text)]
    text.encode()  # half a surrogate pair is an error
    parser, lowered = Parser(), text.lower()
    for line in re.split(r"(\r?\n)", text):
        for raw, kind, name in constructs(line):
            partner = f"<{name}" if kind == "end" else f"</{name}>"
            is_text = kind == "text" or (name and name not in HTML_NAMES and partner not in lowered)
            if is_text and not parser.kept:
                parser.write(raw, raw)
            else:
                parser.read(raw, kind, name)
        parser.finish()
    for part in parser.parts:
        if isinstance(part, Segment):
            part.finish = encode
    return [part if isinstance(part, Segment) else encode(part) for part in parser.parts if part]


def parse_json(text: str) -> list[Part]:
    """Return the parts of a JSON file: segments are the strings that are no keys. Raises ValueError if it is none."""
    json.loads(text.removeprefix("\ufeff"))
    parts, at = list[Part](), 0
    for found in JSON_STRING.finditer(text):
        if not JSON_KEY.match(text, found.end()):
            value = parts_of(json.loads(found[0], strict=False), as_json)
            if any(isinstance(part, Segment) for part in value):
                parts += [text[at : found.start() + 1], *value]
                at = found.end() - 1
    return [*parts, text[at:]]


def as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def parse_po(text: str) -> list[Part]:
    """Return the parts of a PO file: each empty or fuzzy `msgstr` becomes its `msgid`, as text to translate.

    Of plural forms, the first becomes `msgid` if there are others. Raises ValueError for what is no PO file.
    """
    parts, at, entry, is_fuzzy = list[Part](), 0, dict[str, str](), False
    lines = list(po_lines(text))
    for i, found in enumerate(lines):
        name, value = found["name"], found["value"]
        if "msgstr" in entry and name and not name.startswith("msgstr["):
            entry, is_fuzzy = {}, False
        if found["comment"]:
            if "msgstr" in entry:
                entry, is_fuzzy = {}, False
            is_fuzzy = is_fuzzy or bool(FUZZY.match(found["comment"]))
        elif name and name.startswith("msgstr"):
            if "msgid" not in entry:
                raise ValueError(f"line {line_number(text, found.start())} has no msgid before it")
            has_one_form = name == "msgstr[0]" and (lines[i + 1 :] or [found])[0]["name"] != "msgstr[1]"
            entry["msgstr"] = po_text(value)
            source = entry["msgid"]
            if source and (is_fuzzy or not entry["msgstr"]):
                if "msgid_plural" in entry and (name != "msgstr[0]" or has_one_form):
                    source = entry["msgid_plural"]
                parts += [text[at : found.start("value") + 1], *parts_of(source, as_po), '"']
                at = found.end("value")
        elif name:
            if name in entry:
                raise ValueError(f"line {line_number(text, found.start())} has no msgstr before it")
            entry[name] = po_text(value)
    if not any(found["name"] for found in lines) and text.strip():
        raise ValueError("it has no msgid")
    if entry and "msgstr" not in entry:
        raise ValueError("its last msgid has no msgstr")
    return [*parts, text[at:]]


def po_lines(text: str) -> Iterator[re.Match[str]]:
    """The comments, and the names with their values. Raises ValueError for another line."""
    at = int(text.startswith("\ufeff"))
    while at < len(text):
        found = PO_LINE.match(text, at)
        if not found:
            raise ValueError(f"line {line_number(text, at)} is no comment, name or string")
        yield found
        at = found.end()


def po_text(value: str) -> str:
    joined = "".join(string[1:-1] for string in re.findall(PO_STRING, value))
    return re.sub(r"\\(.)", lambda found: PO_ESCAPES.get(found[1], found[0]), joined)


def as_po(text: str) -> str:
    return text.translate(PO_ESCAPED)


def line_number(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


JSON, PO = Format(parse_json, str), Format(parse_po, str)
