"""Tables of strings, CSV, JSON and PO: only texts are replaced. Each line of a text is a paragraph, and may have tags.

csv, json, polib and translate-toolkit would write the whole file anew, with other line breaks and escapes.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

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
    | (?P<name>domain|msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)[ \t]*
      (?P<value>{PO_STRING}(?:[ \t\r\n]*{PO_STRING})*)[ \t]*)
    (?:\r?\n|\Z)""",
    re.VERBOSE,
)
PO_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", '"': '"', "\\": "\\"}
PO_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))")
PO_ESCAPED = str.maketrans({character: f"\\{name}" for name, character in PO_ESCAPES.items()})
PO_CHARSET = re.compile(r"charset=([\w-]+)")
TAG = re.compile(r"</?[^\s/>]+")
HTML_NAMES = BLOCK | VOID  # of tags that need no partner


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


@dataclass
class PoMessage:
    """A message of a PO file: the comments before it, and its values such as msgid, as matches of `PO_LINE`."""

    comments: list[str] = field(default_factory=list)
    values: list[re.Match[str]] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return bool(self.values) and self.values[-1]["name"].startswith("msgstr")

    @property
    def is_fuzzy(self) -> bool:
        """Whether one of its lines of flags has `fuzzy`; gettext 0.23 and later also write flags after `#=`."""
        flags = [re.split(r"[\s,]+", comment[2:]) for comment in self.comments if comment.startswith(("#,", "#="))]
        return any("fuzzy" in names for names in flags)


def parse_po(text: str) -> list[Part]:
    """Return the parts of a PO file: each empty or fuzzy `msgstr` is translated from its `msgid`.

    Plural forms come from `msgid_plural`, the first of several from `msgid`. Raises ValueError for what is no PO file.
    """
    parts, at = list[Part](), 0
    for message in po_messages(text):
        texts = {value["name"]: po_text(value["value"]) for value in message.values}
        if not texts["msgid"]:  # the header of the file
            check_charset(texts.get("msgstr", ""))
            continue
        for value in message.values:
            name = value["name"]
            # A finished msgstr is copied with the text around it.
            if name.startswith("msgstr") and (message.is_fuzzy or not texts[name]):
                is_plural = "msgid_plural" in texts and (name != "msgstr[0]" or "msgstr[1]" not in texts)
                source = texts["msgid_plural" if is_plural else "msgid"]
                parts += [text[at : value.start("value") + 1], *parts_of(source, po_escaped), '"']
                at = value.end("value")
    return [*parts, text[at:]]


def check_charset(header: str) -> None:
    """Raise ValueError if the header of a PO file names an encoding in which the translations are not written."""
    charset = PO_CHARSET.search(header)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "ascii", "us-ascii", "charset"):  # the last: a template
        raise ValueError("its header names another encoding than UTF-8; msgconv -t UTF-8 converts it")


def po_messages(text: str) -> list[PoMessage]:
    """The messages of a PO file that are in use. A message ends with its last msgstr.

    Comments belong to what follows: a message, an obsolete message, whose lines begin with `#~`, or a domain.
    """
    messages, at = [PoMessage()], int(text.startswith("\ufeff"))

    # Read line by line; a value with its strings counts as one line.
    while at < len(text):
        line = PO_LINE.match(text, at)
        if not line:
            raise ValueError(f"line {line_number(text, at)} is no comment, name or string")
        at = line.end()
        name, comment = line["name"] or "", line["comment"] or ""
        if name == "domain" or comment.startswith("#~"):
            messages.append(PoMessage())  # the comments so far are not those of the next message
            continue
        # Only further plural forms belong to a message with a msgstr.
        if messages[-1].is_complete and (comment or name) and not name.startswith("msgstr["):
            messages.append(PoMessage())
        if comment:
            messages[-1].comments.append(comment)
        if name:
            messages[-1].values.append(line)

    # Comments alone, of obsolete messages or at the end of the file, are no message.
    messages = [message for message in messages if message.values]
    if not messages and text.strip():
        raise ValueError("it has no msgid")
    for message in messages:
        names = [value["name"] for value in message.values]
        if names.count("msgid") != 1 or not message.is_complete:
            number = line_number(text, message.values[0].start("name"))
            raise ValueError(f"the message at line {number} needs one msgid and a msgstr")
    return messages


def po_escaped(text: str) -> str:
    """A text as the value of a PO file has it between its quotes."""
    return text.translate(PO_ESCAPED)


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
