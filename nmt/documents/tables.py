"""Tables of strings, CSV, JSON and PO: only texts are replaced. Each line of a text is a paragraph, and may have tags.

csv, json, polib and translate-toolkit would write the whole file anew, with other line breaks and escapes.
"""

import json
import re
from collections.abc import Callable, Iterator

from nmt.documents.html import BLOCK, VOID, Parser, constructs
from nmt.documents.markup import Format, Part, Segment
from nmt.errors import InputError

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
PO_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", '"': '"', "\\": "\\"}
PO_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))")
PO_ESCAPED = str.maketrans({character: f"\\{name}" for name, character in PO_ESCAPES.items()})
TAG = re.compile(r"</?[^\s/>]+")
HTML_NAMES = BLOCK | VOID  # of tags that need no partner
FUZZY = re.compile(r"#,.*\bfuzzy\b")


def parts_of(text: str, encode: Callable[[str], str]) -> list[Part]:
    """Return the parts of a text, which `encode` writes as the file does.

    Entities such as `&amp;` are text, and so is a tag without its partner whose name HTML does not know: `<a@b.de>`.
    """
    text.encode()  # half a surrogate pair is an error
    parser = Parser()
    read_string(parser, text)
    parser.finish()
    for part in parser.parts:
        if isinstance(part, Segment):
            part.finish = encode
    return [part if isinstance(part, Segment) else encode(part) for part in parser.parts if part]


def read_string(parser: Parser, text: str, escape: Callable[[str], str] = str) -> None:
    """Let a parser read a text that may have tags; `escape` returns raw text as the file writes it. See `parts_of`."""
    if COPIED.fullmatch(text) and not parser.kept:
        parser.copy(escape(text))
        return
    tags = set(TAG.findall(text.lower()))
    for i, line in enumerate(re.split(r"(\r?\n)", text)):
        if i and not parser.kept:
            parser.finish()
        for raw, kind, name in constructs(line):
            partner = f"<{name}" if kind == "end" else f"</{name}"
            is_text = kind == "text" or (name and name not in HTML_NAMES and partner not in tags)
            if is_text and not parser.kept:
                parser.write(escape(raw), raw)
            else:
                parser.read(escape(raw), kind, name)


def parse_csv(text: str, column: str, title: object = "") -> list[Part]:
    """Return the parts of a CSV file (RFC 4180), named `title`: segments are the fields of a column.

    `column` is its name in the first row, or its number from 1 if that row has no names. Raises InputError if there is
    none, and ValueError if the file is damaged.
    """
    parts, at, names, index = list[Part](), 0, list[str](), 0
    for row in csv_rows(text):
        if not names:
            names = [found["value"].strip('"') for found in row]
            if column not in [*names, *map(str, range(1, len(names) + 1))]:
                hint = "--column NAME, or the number of a column if the first row has no names"
                raise InputError(f"which column of {title}? There are {names!r:.200}", hint=hint)
            index = names.index(column) if column in names else int(column) - 1
            if column in names:
                continue
        elif len(row) != len(names):
            raise ValueError(f"line {line_number(text, row[0].start())} has {len(row)} fields instead of {len(names)}")
        value, (start, end) = row[index]["value"], row[index].span("value")
        field = value[1:-1].replace('""', '"') if value[:1] == '"' else value
        found = parts_of(field, lambda text: text.replace('"', '""'))
        if any(isinstance(part, Segment) for part in found):
            parts += [text[at:start], '"', *found, '"']
            at = end
    return [*parts, text[at:]]


def csv_rows(text: str) -> Iterator[list[re.Match[str]]]:
    """The fields of each row that is not empty. The delimiter is the commonest one of the first line."""
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    field = re.compile(rf'(?P<value>"[^"]*(?:""[^"]*)*"|(?!")[^{delimiter}\r\n]*)(?P<end>{delimiter}|\r?\n|\Z)')
    at, row = int(text.startswith("\ufeff")), list[re.Match[str]]()
    while at < len(text) or row:
        found = field.match(text, at)
        if not found:
            raise ValueError(f"line {line_number(text, at)} has a quote at a wrong place, or without its partner")
        row.append(found)
        at = found.end()
        if found["end"] != delimiter:
            if len(row) > 1 or found["value"]:
                yield row
            row = []


def parse_json(text: str) -> list[Part]:
    """Return the parts of a JSON file: segments are the strings that are no keys. Raises ValueError if it is none."""
    json.loads(text.removeprefix("\ufeff"))
    parts, at = list[Part](), 0
    for found in JSON_STRING.finditer(text):
        if not JSON_KEY.match(text, found.end()):
            value = parts_of(json.loads(found[0], strict=False), lambda new: json.dumps(new, ensure_ascii=False)[1:-1])
            if any(isinstance(part, Segment) for part in value):
                parts += [text[at : found.start() + 1], *value]
                at = found.end() - 1
    return [*parts, text[at:]]


def parse_po(text: str) -> list[Part]:
    """Return the parts of a PO file: each empty or fuzzy `msgstr` is translated from its `msgid`.

    Plural forms come from `msgid_plural`, the first of several from `msgid`. Raises ValueError for what is no PO file.
    """
    parts, at = list[Part](), 0
    for entry in po_entries(text):
        values = {found["name"]: po_text(found["value"]) for found in entry if found["name"]}
        is_fuzzy = any(FUZZY.match(found["comment"] or "") for found in entry)
        for found in entry:
            name = found["name"] or ""
            if name.startswith("msgstr") and values["msgid"] and (is_fuzzy or not values[name]):
                is_plural = "msgid_plural" in values and (name != "msgstr[0]" or "msgstr[1]" not in values)
                new = parts_of(values["msgid_plural" if is_plural else "msgid"], lambda s: s.translate(PO_ESCAPED))
                parts += [text[at : found.start("value") + 1], *new, '"']
                at = found.end("value")
    return [*parts, text[at:]]


def po_entries(text: str) -> list[list[re.Match[str]]]:
    """The comments and the named values of each message; it ends with its last msgstr."""
    entries, at, is_complete = [list[re.Match[str]]()], int(text.startswith("\ufeff")), False
    while at < len(text):
        found = PO_LINE.match(text, at)
        if not found:
            raise ValueError(f"line {line_number(text, at)} is no comment, name or string")
        at, name = found.end(), found["name"] or ""
        if name or found["comment"]:
            if is_complete and not name.startswith("msgstr["):
                entries.append([])
            entries[-1].append(found)
            is_complete = name.startswith("msgstr")
    entries = [entry for entry in entries if any(found["name"] for found in entry)]
    if not entries and text.strip():
        raise ValueError("it has no msgid")
    for entry in entries:
        names = [found["name"] for found in entry if found["name"]]
        if names.count("msgid") != 1 or not names[-1].startswith("msgstr"):
            raise ValueError(f"the message at line {line_number(text, entry[0].start())} needs one msgid and a msgstr")
    return entries


def po_text(value: str) -> str:
    """The text of a value, which has the escapes of C: numeric ones are bytes of UTF-8."""

    def character(found: re.Match[str]) -> str:
        hexadecimal, octal, name = found.groups()
        return PO_ESCAPES.get(name, name) if name else chr(int(hexadecimal or octal, 16 if hexadecimal else 8) & 255)

    joined = "".join(string[1:-1] for string in re.findall(PO_STRING, value))
    return PO_ESCAPE.sub(character, joined.encode().decode("latin-1")).encode("latin-1").decode(errors="replace")


def line_number(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


JSON, PO = Format(parse_json, str), Format(parse_po, str)
