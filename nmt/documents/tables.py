"""Tables of strings in CSV and JSON: each line of a string is a paragraph, which may contain tags.

Everything else is copied. The libraries csv and json are not used to write, because they would change line breaks and
escapes.
"""

import json
import re
from collections.abc import Callable, Iterator

from nmt.documents.html import BLOCK, VOID, Parser, constructs
from nmt.documents.markup import Format, Part, Segment, has_segment, parts_of_text
from nmt.errors import InputError

# A text that is copied: a URL, or a message with branches such as {n, plural, one {# day} other {# days}}.
ADDRESS_OR_BRANCHES = re.compile(r"\s*\w+://\S+\s*|.*\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,.*", re.DOTALL)
SEPARATOR = re.compile(r"sep=(.)\r?")  # the first line of some CSV files
JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
JSON_KEY_END = re.compile(r"\s*:")
TAG_START = re.compile(r"</?[^\s/>]+")
HTML_NAMES = BLOCK | VOID  # names of tags that are read as tags even without a partner


def parts_of_string(text: str, encode: Callable[[str], str]) -> list[Part]:
    """Return the parts of a string. `encode` escapes a text for the file.

    Entities such as `&amp;` are text. A tag without a partner, such as `<a@b.de>`, is text if its name is not in
    `HTML_NAMES`.
    """
    text.encode()  # raises UnicodeEncodeError, a ValueError, for half of a surrogate pair
    parser = Parser(encode)
    read_string(parser, text)
    parser.finish()
    return [part if isinstance(part, Segment) else encode(part) for part in parser.parts]


def read_string(parser: Parser, text: str, escape: Callable[[str], str] = str) -> None:
    """Let a parser read a text that may contain tags. `escape` escapes a text for the document."""
    if ADDRESS_OR_BRANCHES.fullmatch(text) and not parser.kept:
        parser.copy(escape(text))
        return
    tags = set(TAG_START.findall(text.lower()))  # the beginnings of all tags, such as "<b" and "</b"
    for i, line in enumerate(re.split(r"(\r?\n|[ \t]{2,})", text)):
        if i > 0 and not parser.kept:  # each line and each column is a paragraph; what is between them is copied
            parser.finish()
        for raw, kind, name in constructs(line):
            # A tag whose name is not in `HTML_NAMES` is text if the tag has no partner.
            partner = f"<{name}" if kind == "end" else f"</{name}"
            is_no_tag = name and name not in HTML_NAMES and partner not in tags
            if parser.kept or not (kind == "text" or is_no_tag):
                parser.read(escape(raw), kind, name)
            else:
                parser.write(escape(raw), raw)


def parse_csv(text: str, column: str, title: object) -> list[Part]:
    """Return the parts of a CSV file (RFC 4180). The segments are the fields of one column.

    Args:
        text: the content of the file. The first row has the names of the columns.
        column: the name of the column to translate.
        title: the name of the file, for messages.
    Raises:
        InputError: no column has this name.
        ValueError: the file is damaged.
    """
    replacements = []
    rows = csv_rows(text)
    names = [match["value"].strip('"') for match in next(rows, [])]
    if column not in names:
        hint = "--column NAME; the first row of the file must have the names of the columns"
        raise InputError(f"which column of {title}? There are {names!r:.200}", hint=hint)
    index = names.index(column)
    for row in rows:
        if len(row) != len(names):
            raise ValueError(f"line {line_number(text, row[0].start())} has {len(row)} fields instead of {len(names)}")
        value = row[index]["value"]
        if value.startswith('"'):  # a quoted field contains each quote twice
            value = value[1:-1].replace('""', '"')
        field_parts = parts_of_string(value, escape_csv)
        if has_segment(field_parts):
            replacements.append((row[index].span("value"), ['"', *field_parts, '"']))
    return parts_of_text(text, replacements)


def escape_csv(text: str) -> str:
    """Escape a text for a quoted field."""
    return text.replace('"', '""')


def csv_rows(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield the fields of each row that is not empty.

    The delimiter is the most frequent of comma, semicolon and tab in the first line. Excel names another delimiter in a
    line before the first row, such as `sep=;`.
    """
    position = int(text.startswith("\ufeff"))  # skip a BOM
    first_line = text[position:].partition("\n")[0]
    delimiter = max(",;\t", key=first_line.count)
    if match := SEPARATOR.fullmatch(first_line):
        delimiter = match[1]
        position += len(first_line) + 1
    end = re.escape(delimiter)
    field = re.compile(rf'(?P<value>"[^"]*(?:""[^"]*)*"|(?!")[^{end}\r\n]*)(?P<end>{end}|\r?\n|\Z)')
    row: list[re.Match[str]] = []
    while position < len(text) or row:
        value = field.match(text, position)
        if not value:
            raise ValueError(f"line {line_number(text, position)} has a quote at a wrong place, or without its partner")
        row.append(value)
        position = value.end()
        if value["end"] != delimiter:  # the row ends
            if len(row) > 1 or value["value"]:
                yield row
            row = []


def parse_json_strings(text: str) -> list[Part]:
    """Return the parts of a JSON file. All strings except keys are segments. Raises ValueError if it is no JSON."""
    json.loads(text.removeprefix("\ufeff"))  # raises ValueError if the file is not JSON
    replacements = []
    for match in JSON_STRING.finditer(text):
        if JSON_KEY_END.match(text, match.end()):
            continue
        value_parts = parts_of_string(json.loads(match[0], strict=False), escape_json)
        if has_segment(value_parts):
            replacements.append((match.span(), ['"', *value_parts, '"']))
    return parts_of_text(text, replacements)


def escape_json(text: str) -> str:
    """Escape a text for the inside of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def line_number(text: str, position: int) -> int:
    """Return the number of the line at a position. Lines are counted from 1."""
    return text.count("\n", 0, position) + 1


JSON = Format(parse_json_strings, str, protects=True)
