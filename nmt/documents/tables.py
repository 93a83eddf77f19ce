"""Tables of strings in CSV, JSON and PO: each line of a string is a paragraph, which may contain tags.

Everything else is copied. The libraries csv, json and polib are not used to write, because they would change line
breaks and escapes.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from nmt.documents.constructs import BLOCK, VOID, constructs
from nmt.documents.html import MAX_DEPTH, Parser
from nmt.documents.markup import Format, Part, Replacement, Segment, has_segment, parts_of_text
from nmt.errors import InputError
from nmt.text.spans import Span

# A text that is copied: a URL, or a message with branches such as {n, plural, one {# day} other {# days}}.
ADDRESS_OR_BRANCHES = re.compile(r"\s*\w+://\S+\s*|.*\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,.*", re.DOTALL)
SEPARATOR = re.compile(r"sep=(.)(?:\r\n?|\n)")  # the first line of some CSV files
JSON_TOKEN = re.compile(r'(?P<string>"(?:[^"\\]|\\.)*+")(?P<colon>\s*:)?|[\[\]{}]')
EXTENSION_KEYS = {"message", "description", "placeholders", "hash", "key"}  # of one message of a browser extension
CATALOG_STATE = re.compile(r'"state": "(\w+)"')  # of a string in a string catalog
PO_STRING = r'"(?:[^"\\\r\n]|\\[^\r\n0-9x])*"'  # escapes of bytes by numbers are not supported
PO_LINE = re.compile(
    rf"""[ \t]*(?:(?P<comment>\#[^\n]*)?
    | (?P<name>domain|msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)[ \t]*
      (?P<value>{PO_STRING}(?:[ \t\r\n]*{PO_STRING})*)[ \t]*)
    (?:\r?\n|\Z)""",
    re.VERBOSE,
)
PO_FUZZY = re.compile(r"#[,=](?:.*[\s,])?fuzzy(?![^\s,])")  # since version 0.23, gettext also writes flags after #=
PO_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", '"': '"', "\\": "\\"}
PO_ESCAPE = re.compile(r"\\(.)")
PO_ESCAPED = str.maketrans({character: f"\\{name}" for name, character in PO_ESCAPES.items()})
# An encoding that is neither UTF-8 nor ASCII. Templates have the word CHARSET in place of an encoding.
PO_OTHER_CHARSET = re.compile(r"charset=(?!(?:utf-?8|(?:us-)?ascii|charset)(?![\w-]))[\w-]", re.IGNORECASE)
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


def read_string(
    parser: Parser,
    text: str,
    escape: Callable[[str], str] = str,
    tags: Collection[str] = (),
    paragraph_end: str = r"(\r?\n|\t)",
) -> None:
    """Let a parser read a text that may contain tags.

    Args:
        parser: the parser.
        text: the text to read.
        escape: a function that escapes a text for the document.
        tags: the beginnings of tags around the text, such as "<b" and "</b", which may be partners of its tags.
        paragraph_end: a regular expression with a group, of what is between two paragraphs.
    """
    if ADDRESS_OR_BRANCHES.fullmatch(text) and not parser.kept:
        parser.copy(escape(text))
        return
    tags = tags or set(TAG_START.findall(text.lower()))
    for i, line in enumerate(re.split(paragraph_end, text)):
        if i > 0 and not parser.kept:  # each line is a paragraph; line breaks between them are copied
            parser.finish()
        for raw, kind, name in constructs(line):
            # A tag whose name is not in `HTML_NAMES` is text if the tag has no partner.
            partner = f"<{name}" if kind == "end" else f"</{name}"
            is_no_tag = name and name not in HTML_NAMES and partner not in tags
            if parser.kept or not (kind == "text" or is_no_tag):
                parser.read(escape(raw), kind, name)
            else:
                parser.write(escape(raw), raw)


def parse_csv(text: str, column: str, title: object, *, into: str = "", is_tsv: bool = False) -> list[Part]:
    """Return the parts of a CSV file (RFC 4180) or a TSV file. The segments are the fields of one column.

    Args:
        text: the content of the file. The first row has the names of the columns.
        column: the name of the column to translate.
        title: the name of the file, for messages.
        into: the name of the column that gets the translations where it is empty. By default, it is `column`.
        is_tsv: whether tabs separate the fields. A field without quotes may contain quotes.
    Raises:
        InputError: no column has one of these names.
        ValueError: the file is damaged.
    """
    replacements = []
    rows = csv_rows(text, is_tsv)
    names = list(map(field_text, next(rows, [])))
    for name in (column, into or column):
        if name not in names:
            option = "--column" if name == column else "--into"
            hint = f"{option} NAME; the first row of the file must have the names of the columns"
            raise InputError(f"which column of {title}? There are {names!r:.200}", hint=hint)
    source, target = names.index(column), names.index(into or column)
    for row in rows:
        if len(row) != len(names):
            raise ValueError(f"line {line_number(text, row[0].start())} has {len(row)} fields instead of {len(names)}")
        value = field_text(row[source])
        if target != source and field_text(row[target]).strip():
            continue  # the field is filled
        # Tags may divide a field into several segments, so a field with tags is always in quotes.
        if is_tsv and row[source]["quoted"] is None and "<" not in value:
            field_parts = parts_of_string(value, tsv_field)
        else:
            field_parts = ['"', *parts_of_string(value, escape_csv), '"']
        if has_segment(field_parts) or (value and target != source):
            replacements.append((row[target].span("value"), field_parts))
    return parts_of_text(text, replacements)


def escape_csv(text: str) -> str:
    """Escape a text for a quoted field."""
    return text.replace('"', '""')


def tsv_field(text: str) -> str:
    """Return a field of a TSV file. It needs quotes only if it begins with one."""
    return f'"{escape_csv(text)}"' if text.startswith('"') else text


def field_text(field: re.Match[str]) -> str:
    """Return the text of a field. In quotes, each quote is written twice."""
    quoted = field["quoted"]
    return field["value"] if quoted is None else quoted.replace('""', '"')


def csv_rows(text: str, is_tsv: bool = False) -> Iterator[list[re.Match[str]]]:
    """Yield the fields of each row that is not empty.

    The delimiter of CSV is the most frequent of comma, semicolon and tab in the first line, outside of quotes. Excel
    names another delimiter in a line before the first row, such as `sep=;`.
    """
    position = int(text.startswith("\ufeff"))  # skip a BOM
    delimiter = "\t"
    if not is_tsv:
        first_line = re.split(r"[\r\n]", text, maxsplit=1)[0]
        delimiter = max(",;\t", key=re.sub('"[^"]*"', "", first_line).count)
    if match := SEPARATOR.match(text, position):
        delimiter = match[1]
        position = match.end()
    end = re.escape(delimiter)
    bare = rf"[^{end}\r\n]*" if is_tsv else rf'(?!")[^{end}\r\n]*'
    field = re.compile(
        rf'(?P<value>"(?P<quoted>[^"]*(?:""[^"]*)*)"(?={end}|[\r\n]|\Z)|{bare})(?P<end>{end}|\r\n?|\n|\Z)'
    )
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
    """Return the parts of a JSON file. All strings are segments, except keys and what belongs to a key such as `@name`.

    Flutter's ARB has notes under these keys. In the messages of a browser extension, only each `message` is a segment.
    Raises ValueError if the text is no JSON.
    """
    tree = json.loads(text.removeprefix("\ufeff"))
    entries = list(tree.values()) if isinstance(tree, dict) else []
    is_extension = all(isinstance(entry, dict) and {"message"} <= entry.keys() <= EXTENSION_KEYS for entry in entries)

    def is_text(path: list[str]) -> bool:
        if entries and is_extension:
            return path[2:] == ["message"]
        return not any(key.startswith("@") for key in path)

    return parts_of_json(text, is_text)


def parse_string_catalog(text: str, target: str) -> list[Part]:
    """Return the parts of a string catalog of Xcode. Strings without a localization for `target`, or a new one, get it.

    The localization has the plural forms and variations of the source. Raises ValueError if the file is damaged.
    """

    def is_new(path: list[str]) -> bool:
        return path[1:3] == ["localizations", target] and path[-2:] == ["stringUnit", "value"]

    replacements: list[Replacement] = []
    try:
        source_language = json.loads(text.removeprefix("\ufeff"))["sourceLanguage"]
        for path, (start, end) in json_values(text):
            if path[1:] != ["strings", path[-1]]:
                continue
            # A string without a localization for the source language is its own key.
            entry = json.loads(text[start:end])
            localizations = entry.setdefault("localizations", {})
            source = localizations.get(source_language) or {"stringUnit": {"state": "new", "value": path[-1]}}
            states = CATALOG_STATE.findall(json.dumps(localizations.get(target)))
            if entry.get("shouldTranslate", True) and set(states) <= {"new"}:
                new = CATALOG_STATE.sub('"state": "needs_review"', json.dumps(source))
                localizations[target] = json.loads(new)
                as_xcode = json.dumps(entry, ensure_ascii=False, indent=2, separators=(",", " : "))
                entry_parts = parts_of_json(as_xcode.replace("\n", "\n    "), is_new)
                replacements.append(((start, end), entry_parts if has_segment(entry_parts) else [text[start:end]]))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("it is no string catalog of Xcode") from error
    return parts_of_text(text, replacements)


def parts_of_json(text: str, is_text: Callable[[list[str]], bool]) -> list[Part]:
    """Return the parts of a JSON text. Strings for whose path `is_text` returns True are segments."""
    replacements = []
    for path, (start, end) in json_values(text):
        if text[start] == '"' and is_text(path):
            value_parts = parts_of_string(json.loads(text[start:end], strict=False), escape_json)
            if has_segment(value_parts):
                replacements.append(((start, end), ['"', *value_parts, '"']))
    return parts_of_text(text, replacements)


def json_values(text: str) -> Iterator[tuple[list[str], Span]]:
    """Yield the path and the span of each string, object and list of a JSON text, in the order of their ends.

    A path consists of an empty string and the key of each object, which is empty for a list. Raises ValueError if
    the nesting is too deep.
    """
    path = [""]
    starts = []
    for token in JSON_TOKEN.finditer(text):
        if token["colon"]:
            path[-1] = json.loads(token["string"], strict=False)
        elif token["string"]:
            yield path, token.span()
        elif token[0] in "[{":
            path.append("")
            starts.append(token.start())
        else:
            path.pop()
            yield path, (starts.pop(), token.end())
        if len(path) > MAX_DEPTH:
            raise ValueError(f"line {line_number(text, token.start())} is nested over {MAX_DEPTH} deep")


def escape_json(text: str) -> str:
    """Escape a text for the inside of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


@dataclass
class PoMessage:
    """A message of a PO file."""

    values: dict[str, re.Match[str]] = field(default_factory=dict)  # the matches of `PO_LINE` by names such as msgid
    is_fuzzy: bool = False  # whether the comments before the message have the flag "fuzzy"

    @property
    def is_complete(self) -> bool:
        """Whether the message has a msgstr. After a msgstr, a message can only have further plural forms."""
        return any(name.startswith("msgstr") for name in self.values)


def parse_po(text: str) -> list[Part]:
    """Return the parts of a PO file. Each `msgstr` that is empty or fuzzy gets a translation of the `msgid`.

    The first of several plural forms is translated from `msgid`, the others from `msgid_plural`. A single plural form
    is translated from `msgid_plural`. Raises ValueError if the text is no PO file.
    """
    replacements = []
    for message in po_messages(text):
        texts = {name: po_text(value["value"]) for name, value in message.values.items()}
        # The message with an empty msgid contains the header of the file.
        if not texts["msgid"]:
            if PO_OTHER_CHARSET.search(texts.get("msgstr", "")):
                raise ValueError("its header names another encoding than UTF-8; msgconv -t UTF-8 converts it")
            continue
        for name, value in message.values.items():
            is_finished = texts[name] and not message.is_fuzzy
            if is_finished or not name.startswith("msgstr"):
                continue
            is_first_of_several = name == "msgstr[0]" and "msgstr[1]" in texts
            source = texts["msgid"] if is_first_of_several else texts.get("msgid_plural", texts["msgid"])
            # A value can consist of several strings. The translation is a single string.
            replacements.append((value.span("value"), ['"', *parts_of_string(source, escape_po), '"']))
    return parts_of_text(text, replacements)


def po_messages(text: str) -> list[PoMessage]:
    """Return the messages of a PO file. Obsolete messages, whose lines begin with `#~`, are left out.

    A message ends with its last msgstr. A comment belongs to the message or domain after it.
    """
    messages = [PoMessage()]
    position = int(text.startswith("\ufeff"))  # skip a BOM

    # 1. Read line by line. A value may be written as several strings on several lines: these are read as one line.
    while position < len(text):
        line = PO_LINE.match(text, position)
        if not line:
            raise ValueError(f"line {line_number(text, position)} is no comment, name or string")
        position = line.end()
        name, comment = line["name"] or "", line["comment"] or ""
        is_separate = name == "domain" or comment.startswith("#~")  # comments before such a line belong to no message
        is_next = messages[-1].is_complete and (comment or name) and not name.startswith("msgstr[")
        if is_separate or is_next:
            messages.append(PoMessage())
        if PO_FUZZY.match(comment):
            messages[-1].is_fuzzy = True
        if name in messages[-1].values:
            raise ValueError(f"line {line_number(text, line.start('name'))} repeats {name} of the message")
        if name and not is_separate:
            messages[-1].values[name] = line

    # 2. Leave out messages without values, which arise from comments, domains and obsolete messages. Check the rest.
    messages = [message for message in messages if message.values]
    for message in messages:
        if "msgid" not in message.values or not message.is_complete:
            first, *_ = message.values.values()
            number = line_number(text, first.start("name"))
            raise ValueError(f"the message at line {number} needs a msgid and a msgstr")
    return messages


def escape_po(text: str) -> str:
    """Escape a text for the inside of a PO string."""
    return text.translate(PO_ESCAPED)


def po_text(value: str) -> str:
    """Return the text of a value, which consists of strings with escapes as in C."""
    joined = "".join(string[1:-1] for string in re.findall(PO_STRING, value))
    return PO_ESCAPE.sub(lambda escape: PO_ESCAPES.get(escape[1], escape[1]), joined)


def line_number(text: str, position: int) -> int:
    """Return the number of the line at a position. Lines are counted from 1."""
    return text.count("\n", 0, position) + 1


JSON, PO = Format(parse_json_strings, str, protects=True), Format(parse_po, str)
