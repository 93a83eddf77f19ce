"""Tables of strings, CSV, JSON and PO: only texts are replaced. Each line of a text is a paragraph, and may have tags.

csv, json, polib and translate-toolkit would write the whole file anew, with other line breaks and escapes.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nmt.documents.html import BLOCK, VOID, Kind, Parser, constructs
from nmt.documents.markup import Format, Part, Segment, has_segment, parts_of_text
from nmt.errors import InputError

# An address, and a message whose branches are chosen by a number: {n, plural, one {# day} other {# days}}
ADDRESS_OR_BRANCHES = re.compile(r"\s*\w+://\S+\s*|.*\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,.*", re.DOTALL)
JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
JSON_KEY_END = re.compile(r"\s*:")
PO_STRING = r'"(?:[^"\\\r\n]|\\[^\r\n])*"'
PO_LINE = re.compile(
    rf"""[ \t]*(?:(?P<comment>\#[^\n]*)?
    | (?P<name>domain|msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)[ \t]*
      (?P<value>{PO_STRING}(?:[ \t\r\n]*{PO_STRING})*)[ \t]*)
    (?:\r?\n|\Z)""",
    re.VERBOSE,
)
PO_FUZZY = re.compile(r"#[,=](?:.*[\s,])?fuzzy(?![^\s,])")  # gettext 0.23 and later write flags after #=, too
PO_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", '"': '"', "\\": "\\"}
PO_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))")
PO_ESCAPED = str.maketrans({character: f"\\{name}" for name, character in PO_ESCAPES.items()})
PO_CHARSET = re.compile(r"charset=([\w-]+)")
TAG_START = re.compile(r"</?[^\s/>]+")
HTML_NAMES = BLOCK | VOID  # of tags that need no partner


def parts_of_string(text: str, encode: Callable[[str], str]) -> list[Part]:
    """Return the parts of a text, which `encode` writes as the file does.

    Entities such as `&amp;` are text, and so is a tag without its partner whose name HTML does not know: `<a@b.de>`.
    """
    text.encode()  # half a surrogate pair is an error
    parser = Parser(encode)
    read_string(parser, text)
    parser.finish()
    return [part if isinstance(part, Segment) else encode(part) for part in parser.parts]


def read_string(parser: Parser, text: str, escape: Callable[[str], str] = str) -> None:
    """Let a parser read a text that may have tags; `escape` returns raw text as the file writes it.

    See `parts_of_string`.
    """
    if ADDRESS_OR_BRANCHES.fullmatch(text) and not parser.kept:  # an address or a message with branches
        parser.copy(escape(text))
        return
    tags = set(TAG_START.findall(text.lower()))  # without ">"
    for i, line in enumerate(re.split(r"(\r?\n)", text)):
        if i > 0 and not parser.kept:  # each line is a paragraph, and so are line breaks, which are copied
            parser.finish()
        for raw, kind, name in constructs(line):
            # A tag that HTML does not know, and that has no partner, is text.
            partner = f"<{name}" if kind is Kind.END else f"</{name}"
            is_no_tag = name and name not in HTML_NAMES and partner not in tags
            if parser.kept or not (kind is Kind.TEXT or is_no_tag):
                parser.read(escape(raw), kind, name)
            else:
                parser.write(escape(raw), raw)


def parse_csv(text: str, column: str, title: object = "") -> list[Part]:
    """Return the parts of a CSV file (RFC 4180), named `title`: segments are the fields of a column.

    `column` is its name in the first row, or its number from 1 if that row has no names. Raises InputError if there is
    none, and ValueError if the file is damaged.
    """
    replacements = []
    names: list[str] = []  # of the columns
    index = 0  # of `column`
    for row in csv_rows(text):
        if not names:
            names = [match["value"].strip('"') for match in row]
            index = column_index(names, column, title)
            if column in names:  # else the first row has no names, but is translated
                continue
        if len(row) != len(names):
            raise ValueError(f"line {line_number(text, row[0].start())} has {len(row)} fields instead of {len(names)}")
        value = row[index]["value"]
        if value.startswith('"'):  # inside of quotes, a quote is written twice
            value = value[1:-1].replace('""', '"')
        field_parts = parts_of_string(value, escape_csv)
        if has_segment(field_parts):
            replacements.append((row[index].span("value"), ['"', *field_parts, '"']))
    return parts_of_text(text, replacements)


def escape_csv(text: str) -> str:
    """Return text as a field in quotes has it."""
    return text.replace('"', '""')


def column_index(names: Sequence[str], column: str, title: object) -> int:
    """Return the index of a column that is given by its name or number. Raises InputError if there is none."""
    if column in names:
        return names.index(column)
    numbers = [str(number) for number in range(1, len(names) + 1)]
    if column in numbers:
        return numbers.index(column)
    hint = "--column NAME, or the number of a column if the first row has no names"
    raise InputError(f"which column of {title}? There are {names!r:.200}", hint=hint)


def csv_rows(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield the fields of each row that is not empty. The delimiter is the commonest one of the first line."""
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    field = re.compile(rf'(?P<value>"[^"]*(?:""[^"]*)*"|(?!")[^{delimiter}\r\n]*)(?P<end>{delimiter}|\r?\n|\Z)')
    # A BOM is no part of the first field.
    row: list[re.Match[str]] = []
    position = 1 if text.startswith("\ufeff") else 0
    while position < len(text) or row:
        match = field.match(text, position)
        if not match:
            number = line_number(text, position)
            raise ValueError(f"line {number} has a quote at a wrong place, or without its partner")
        row.append(match)
        position = match.end()
        if match["end"] != delimiter:  # the row ends
            if len(row) > 1 or match["value"]:
                yield row
            row = []


def parse_json_strings(text: str) -> list[Part]:
    """Return the parts of a JSON file: segments are the strings that are no keys. Raises ValueError if it is none."""
    json.loads(text.removeprefix("\ufeff"))  # raises ValueError
    replacements = []
    for match in JSON_STRING.finditer(text):
        if JSON_KEY_END.match(text, match.end()):  # keys are not translated
            continue
        value_parts = parts_of_string(json.loads(match[0], strict=False), escape_json)
        if has_segment(value_parts):
            inside_quotes = (match.start() + 1, match.end() - 1)
            replacements.append((inside_quotes, value_parts))
    return parts_of_text(text, replacements)


def escape_json(text: str) -> str:
    """Return text as a string of JSON has it between its quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


@dataclass
class PoMessage:
    """A message of a PO file."""

    values: list[re.Match[str]] = field(default_factory=list)  # of `PO_LINE`, with the names msgid, msgstr and so on
    is_fuzzy: bool = False  # whether the comments before the message have this flag

    @property
    def is_complete(self) -> bool:
        """Whether the message has its last value."""
        return bool(self.values) and self.values[-1]["name"].startswith("msgstr")


def parse_po(text: str) -> list[Part]:
    """Return the parts of a PO file: each empty or fuzzy `msgstr` is translated from its `msgid`.

    Plural forms come from `msgid_plural`, the first of several from `msgid`. Raises ValueError for what is no PO file.
    """
    replacements = []
    for message in po_messages(text):
        texts = {value["name"]: po_text(value["value"]) for value in message.values}
        # The header of the file is the translation of an empty text.
        if not texts["msgid"]:
            check_charset(texts.get("msgstr", ""))
            continue
        for value in message.values:
            name = value["name"]
            is_finished = texts[name] and not message.is_fuzzy
            if is_finished or not name.startswith("msgstr"):
                continue  # it is copied with the text around it
            is_first_of_several = name == "msgstr[0]" and "msgstr[1]" in texts
            source = texts["msgid"] if is_first_of_several else texts.get("msgid_plural", texts["msgid"])
            # All strings of the value become one.
            replacements.append((value.span("value"), ['"', *parts_of_string(source, escape_po), '"']))
    return parts_of_text(text, replacements)


def check_charset(header: str) -> None:
    """Raise ValueError if the header of a PO file names an encoding in which the translations are not written."""
    charset = PO_CHARSET.search(header)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "ascii", "us-ascii", "charset"):  # the last: a template
        raise ValueError("its header names another encoding than UTF-8; msgconv -t UTF-8 converts it")


def po_messages(text: str) -> list[PoMessage]:
    """Return the messages of a PO file that are in use. A message ends with its last msgstr.

    Comments belong to what follows: a message, an obsolete message, whose lines begin with `#~`, or a domain.
    """
    messages = [PoMessage()]
    position = 1 if text.startswith("\ufeff") else 0

    # 1. Read line by line; a value with its strings counts as one line.
    while position < len(text):
        line = PO_LINE.match(text, position)
        if not line:
            raise ValueError(f"line {line_number(text, position)} is no comment, name or string")
        position = line.end()
        name, comment = line["name"] or "", line["comment"] or ""
        if name == "domain" or comment.startswith("#~"):
            messages.append(PoMessage())  # the comments so far are not those of the next message
            continue
        # Only further plural forms belong to a message with a msgstr.
        if messages[-1].is_complete and (comment or name) and not name.startswith("msgstr["):
            messages.append(PoMessage())
        if PO_FUZZY.match(comment):
            messages[-1].is_fuzzy = True
        if name:
            messages[-1].values.append(line)

    # 2. Leave out comments alone, of obsolete messages or at the end of the file. Check the others.
    messages = [message for message in messages if message.values]
    if not messages and text.strip():
        raise ValueError("it has no msgid")
    for message in messages:
        names = [value["name"] for value in message.values]
        if names.count("msgid") != 1 or not message.is_complete:
            number = line_number(text, message.values[0].start("name"))
            raise ValueError(f"the message at line {number} needs one msgid and a msgstr")
    return messages


def escape_po(text: str) -> str:
    """Return text as a string of a PO file has it between its quotes."""
    return text.translate(PO_ESCAPED)


def po_text(value: str) -> str:
    """Return the text of a value, which has the escapes of C: numeric ones are bytes of UTF-8."""

    def character(escape: re.Match[str]) -> str:
        hexadecimal, octal, name = escape.groups()
        if name:
            return PO_ESCAPES.get(name, name)
        code = int(hexadecimal, 16) if hexadecimal else int(octal, 8)
        return chr(code & 255)

    joined = "".join(string[1:-1] for string in re.findall(PO_STRING, value))
    # Each byte of UTF-8 is one character while escapes are replaced.
    as_bytes = joined.encode().decode("latin-1")
    return PO_ESCAPE.sub(character, as_bytes).encode("latin-1").decode(errors="replace")


def line_number(text: str, position: int) -> int:
    """Return the number of the line of this position, from 1."""
    return text.count("\n", 0, position) + 1


JSON, PO = Format(parse_json_strings, str), Format(parse_po, str)
