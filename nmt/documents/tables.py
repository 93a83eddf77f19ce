"""Tables of strings in CSV, JSON and PO: each line of a string is a paragraph, which may contain tags.

Everything but the translated strings is copied. The libraries csv, json, polib and translate-toolkit are not used
to write, because they would write the whole file anew, with other line breaks and escapes.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nmt.documents.html import BLOCK, VOID, ConstructKind, Parser, constructs
from nmt.documents.markup import Format, Part, Segment, has_segment, parts_of_text
from nmt.errors import InputError

# A text that is copied: a URL, or a message with branches, such as {n, plural, one {# day} other {# days}}.
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
PO_FUZZY = re.compile(r"#[,=](?:.*[\s,])?fuzzy(?![^\s,])")  # since version 0.23, gettext also writes flags after #=
PO_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", '"': '"', "\\": "\\"}
PO_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))")
PO_ESCAPED = str.maketrans({character: f"\\{name}" for name, character in PO_ESCAPES.items()})
PO_CHARSET = re.compile(r"charset=([\w-]+)")
TAG_START = re.compile(r"</?[^\s/>]+")
HTML_NAMES = BLOCK | VOID  # names of tags that are read as tags even without a partner


def parts_of_string(text: str, encode: Callable[[str], str]) -> list[Part]:
    """Return the parts of a string. `encode` returns a text in the form in which the file writes it.

    Entities such as `&amp;` are text. A tag without a partner, such as `<a@b.de>`, is text as well, unless `HTML_NAMES`
    contains the name of the tag.
    """
    text.encode()  # raises UnicodeEncodeError, a ValueError, for half of a surrogate pair
    parser = Parser(encode)
    read_string(parser, text)
    parser.finish()
    return [part if isinstance(part, Segment) else encode(part) for part in parser.parts]


def read_string(parser: Parser, text: str, escape: Callable[[str], str] = str) -> None:
    """Let a parser read a text that may contain tags, see `parts_of_string`.

    `escape` returns a text in the form in which the document writes it.
    """
    if ADDRESS_OR_BRANCHES.fullmatch(text) and not parser.kept:  # a URL, or a message with branches
        parser.copy(escape(text))
        return
    tags = set(TAG_START.findall(text.lower()))  # the beginnings of all tags, such as "<b" and "</b"
    for i, line in enumerate(re.split(r"(\r?\n)", text)):
        if i > 0 and not parser.kept:  # each line is a paragraph; line breaks between them are copied
            parser.finish()
        for raw, kind, name in constructs(line):
            # A tag whose name is not in `HTML_NAMES` is text if the tag has no partner.
            partner = f"<{name}" if kind is ConstructKind.END else f"</{name}"
            is_no_tag = name and name not in HTML_NAMES and partner not in tags
            if parser.kept or not (kind is ConstructKind.TEXT or is_no_tag):
                parser.read(escape(raw), kind, name)
            else:
                parser.write(escape(raw), raw)


def parse_csv(text: str, column: str, title: object = "") -> list[Part]:
    """Return the parts of a CSV file (RFC 4180). The segments are the fields of one column.

    `column` is the name of the column in the first row. If the first row has no names, `column` is the number of the
    column, from 1. `title` is the name of the file. Raises InputError if there is no such column, and ValueError if the
    file is damaged.
    """
    replacements = []
    names: list[str] = []  # the fields of the first row, which usually are the names of the columns
    index = 0  # the index of `column`
    for row in csv_rows(text):
        if not names:
            names = [match["value"].strip('"') for match in row]
            index = column_index(names, column, title)
            if column in names:  # otherwise, the first row has no names, so it is translated
                continue
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


def column_index(names: Sequence[str], column: str, title: object) -> int:
    """Return the index of a column, given by its name or its number. Raises InputError if there is no such column."""
    if column in names:
        return names.index(column)
    numbers = [str(number) for number in range(1, len(names) + 1)]
    if column in numbers:
        return numbers.index(column)
    hint = "--column NAME, or the number of a column if the first row has no names"
    raise InputError(f"which column of {title}? There are {names!r:.200}", hint=hint)


def csv_rows(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield the fields of each row that is not empty.

    The delimiter is a comma, a semicolon or a tab, whichever is the most frequent in the first line.
    """
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    field = re.compile(rf'(?P<value>"[^"]*(?:""[^"]*)*"|(?!")[^{delimiter}\r\n]*)(?P<end>{delimiter}|\r?\n|\Z)')
    row: list[re.Match[str]] = []
    position = 1 if text.startswith("\ufeff") else 0  # skip a BOM
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
    """Return the parts of a JSON file. All strings except keys are segments. Raises ValueError if it is no JSON."""
    json.loads(text.removeprefix("\ufeff"))  # raises ValueError if the file is not JSON
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
    """Escape a text for a JSON string; the result has no quotes around it."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


@dataclass
class PoMessage:
    """A message of a PO file."""

    values: list[re.Match[str]] = field(default_factory=list)  # matches of `PO_LINE` with a name, such as msgid
    is_fuzzy: bool = False  # whether the comments before the message have the flag "fuzzy"

    @property
    def is_complete(self) -> bool:
        """Whether the message has a msgstr. After a msgstr, a message can only have further plural forms."""
        return bool(self.values) and self.values[-1]["name"].startswith("msgstr")


def parse_po(text: str) -> list[Part]:
    """Return the parts of a PO file. Each `msgstr` that is empty or fuzzy gets a translation of the `msgid`.

    In a message with several plural forms, the first form is translated from `msgid`, and all other forms from
    `msgid_plural`. A single plural form is translated from `msgid_plural`. Raises ValueError if the text is no PO file.
    """
    replacements = []
    for message in po_messages(text):
        texts = {value["name"]: po_text(value["value"]) for value in message.values}
        # The message with an empty msgid contains the header of the file.
        if not texts["msgid"]:
            check_charset(texts.get("msgstr", ""))
            continue
        for value in message.values:
            name = value["name"]
            is_finished = texts[name] and not message.is_fuzzy
            if is_finished or not name.startswith("msgstr"):
                continue  # this value is copied with the text around it
            is_first_of_several = name == "msgstr[0]" and "msgstr[1]" in texts
            source = texts["msgid"] if is_first_of_several else texts.get("msgid_plural", texts["msgid"])
            # A value can consist of several strings. The translation is a single string.
            replacements.append((value.span("value"), ['"', *parts_of_string(source, escape_po), '"']))
    return parts_of_text(text, replacements)


def check_charset(header: str) -> None:
    """Raise ValueError if the header of a PO file names an encoding that is neither UTF-8 nor ASCII."""
    charset = PO_CHARSET.search(header)
    # Templates have the word CHARSET in place of an encoding.
    if charset and charset[1].lower() not in ("utf-8", "utf8", "ascii", "us-ascii", "charset"):
        raise ValueError("its header names another encoding than UTF-8; msgconv -t UTF-8 converts it")


def po_messages(text: str) -> list[PoMessage]:
    """Return the messages of a PO file that are in use. A message ends with its last msgstr.

    A comment belongs to the message or domain that follows it. The lines of obsolete messages, which are not in use,
    begin with `#~`.
    """
    messages = [PoMessage()]
    position = 1 if text.startswith("\ufeff") else 0  # skip a BOM

    # 1. Read line by line. A value with all of its strings counts as one line.
    while position < len(text):
        line = PO_LINE.match(text, position)
        if not line:
            raise ValueError(f"line {line_number(text, position)} is no comment, name or string")
        position = line.end()
        name, comment = line["name"] or "", line["comment"] or ""
        if name == "domain" or comment.startswith("#~"):
            messages.append(PoMessage())  # the comments so far do not belong to the next message
            continue
        # After a msgstr, only further plural forms belong to the same message.
        if messages[-1].is_complete and (comment or name) and not name.startswith("msgstr["):
            messages.append(PoMessage())
        if PO_FUZZY.match(comment):
            messages[-1].is_fuzzy = True
        if name:
            messages[-1].values.append(line)

    # 2. Leave out messages without values. They arise from lines of obsolete messages, from domains, and from comments
    # at the end of the file. Check all other messages.
    messages = [message for message in messages if message.values]
    if not messages and text.strip():
        raise ValueError("it has no msgid")
    for message in messages:
        names = [value["name"] for value in message.values]
        fault = ""
        if names.count("msgid") != 1 or not message.is_complete:
            fault = "needs one msgid and a msgstr"
        elif len(set(names)) < len(names):
            fault = "has two values of the same name"
        if fault:
            number = line_number(text, message.values[0].start("name"))
            raise ValueError(f"the message at line {number} {fault}")
    return messages


def escape_po(text: str) -> str:
    """Escape a text for a string of a PO file; the result has no quotes around it."""
    return text.translate(PO_ESCAPED)


def po_text(value: str) -> str:
    """Return the text of a value. The value has escapes as in C, where a number stands for a byte of UTF-8."""

    def character(escape: re.Match[str]) -> str:
        hexadecimal, octal, name = escape.groups()
        if name:
            return PO_ESCAPES.get(name, name)
        code = int(hexadecimal, 16) if hexadecimal else int(octal, 8)
        return chr(code & 255)

    joined = "".join(string[1:-1] for string in re.findall(PO_STRING, value))
    # Convert the text so that each byte of UTF-8 is one character, replace the escapes, and convert the text back.
    as_bytes = joined.encode().decode("latin-1")
    return PO_ESCAPE.sub(character, as_bytes).encode("latin-1").decode(errors="replace")


def line_number(text: str, position: int) -> int:
    """Return the number, from 1, of the line that contains this position."""
    return text.count("\n", 0, position) + 1


JSON, PO = Format(parse_json_strings, str), Format(parse_po, str)
