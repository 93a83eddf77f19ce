"""Tables of strings in CSV and JSON: each line of a string is a paragraph, which may contain tags.

Everything else is copied. The libraries csv and json are not used to write, because they would change line breaks and
escapes.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator

from nmt.documents.constructs import BLOCK, VOID, Construct, constructs
from nmt.documents.html import MAX_DEPTH, Parser
from nmt.documents.markup import (
    Format,
    Part,
    Replacement,
    ReviewState,
    Segment,
    has_segment,
    parts_of_text,
    segments_in,
)
from nmt.errors import InputError
from nmt.files import parse_json
from nmt.text.spans import Span

# A string that is copied as a whole: a URL, a time, a color, the path of a file, or a message with branches such as
# {n, plural, one {# day} other {# days}}.
_BRANCHES = r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,"
BRANCHES = re.compile(_BRANCHES)
CODE_OR_BRANCHES = re.compile(
    r"\s*(?:(?:\w+://|data:|mailto:|tel:)\S+|(?a:[\w.~@-]*(?:/[\w.@-]+)+\.\w{2,4})"
    r"|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+)?|#[0-9a-fA-F]{3,8})\s*"
    rf"|.*{_BRANCHES}.*",
    re.DOTALL,
)
# Excel may name the delimiter in a line before the first row.
CSV_START = re.compile(r"\ufeff?(?:sep=(?P<delimiter>.)(?:\r\n?|\n))?(?P<row>[^\r\n]*)")
# In JSON, each string is closed. `\Z` keeps a search linear in other texts.
JSON_TOKEN = re.compile(r'(?P<string>"(?:[^"\\]|\\.)*+(?:"|\Z))(?P<colon>\s*:)?|[\[\]{}]')
EXTENSION_KEYS = {"message", "description", "placeholders", "hash", "key"}  # of one message of a browser extension
# `NEW_STATE` marks the place of `CATALOG_REVIEW` in serialized JSON. It is a lone surrogate, which no file contains.
NEW_STATE = '"\ud800"'
CATALOG_REVIEW = ReviewState('"needs_review"', sure='"translated"', doubtful='"needs_review"')
CATALOG_STATE = re.compile(r'"state": "(\w+)"')  # of a string in a string catalog
# Matches the text of an unquoted TSV field whose translation must stay unquoted, for one of two reasons. Either the
# text begins with a literal quotation mark, or `parts_of_string` may divide it (at a tag, a vertical bar, two spaces,
# or a space at the start), and `tsv_field` would quote each part separately.
BARE = re.compile(r'^[ "]|  |[<|]')
TAG_START = re.compile(r"</?[^\s/>]+")
NUMBERED_TAG = re.compile(r"(</?\d+>)")
# What separates paragraphs of a string, and plural forms of Vue and Laravel: `car | cars`, `{1} car|[2,*] cars`.
# A bar in brackets separates nothing, as in `{{ name | upper }}` and `[y|n]`.
PARAGRAPH_END = (
    r"(\r?\n|[ \t]*\t[ \t]*| {2,}|\| *[\[{][\d*]+(?:,[\d*]+)?[\]}] *"
    r"| ?(?<!\|)\|(?!\||[^(){}\[\]]{0,80}[)}\]]) ?)"
)
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
    paragraph_end: str = PARAGRAPH_END,
) -> None:
    """Let a parser read a text that may contain tags.

    Args:
        parser: the parser.
        text: the text to read.
        escape: a function that escapes a text for the document.
        tags: the beginnings of tags around the text, such as "<b" and "</b", which may be partners of its tags.
        paragraph_end: a regular expression with a group, of what is between two paragraphs.
    """
    if CODE_OR_BRANCHES.fullmatch(text) and not parser.kept:
        before, copied, after = text.partition(text.strip())
        parser.write(before, before)
        parser.copy(escape(copied))
        parser.write(after, after)
        return
    tags = tags or set(TAG_START.findall(text.lower()))
    for i, line in enumerate(re.split(paragraph_end, text)):
        if i > 0 and not parser.kept:  # each line is a paragraph; line breaks between them are copied
            parser.finish()
        for raw, kind, name in constructs_of_string(line):
            # A tag whose name is not in `HTML_NAMES` is text if the tag has no partner.
            partner = f"<{name}" if kind == "end" else f"</{name}"
            is_no_tag = name and name not in HTML_NAMES and partner not in tags
            if parser.kept or not (kind == "text" or is_no_tag):
                parser.read(escape(raw), kind, name)
            else:
                parser.write(escape(raw), raw)


def constructs_of_string(text: str) -> Iterator[Construct]:
    """Yield the constructs of a string. The names of tags may be numbers, as React writes them: `<1>` and `</1>`."""
    for i, piece in enumerate(NUMBERED_TAG.split(text)):
        if i % 2 == 0:
            yield from constructs(piece)
        else:
            yield Construct(piece, "end" if "/" in piece else "start", piece.strip("</>"))


def parse_csv(text: str, column: str, title: object, *, into: str = "", is_tsv: bool = False) -> list[Part]:
    """Return the parts of a CSV file (RFC 4180) or a TSV file. The segments are the fields of one column.

    A column named `context` has the contexts of the segments.

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
    source = names.index(column)
    target = names.index(into or column)
    for row in rows:
        if len(row) != len(names):
            raise ValueError(f"line {line_number(text, row[0].start())} has {len(row)} fields instead of {len(names)}")
        value = field_text(row[source])
        if target != source and field_text(row[target]).strip():
            continue  # the field is filled
        if is_tsv and row[source]["quoted"] is None:
            field_parts = parts_of_string(value, str if BARE.search(value) else tsv_field)
        else:
            field_parts = ['"', *parts_of_string(value, escape_csv), '"']
        if "context" in names:
            context = field_text(row[names.index("context")])
            for segment in segments_in(field_parts):
                segment.context = context
        if has_segment(field_parts) or (value and target != source):
            replacements.append((row[target].span("value"), field_parts))
    return parts_of_text(text, replacements)


def escape_csv(text: str) -> str:
    """Escape a text for a quoted field."""
    return text.replace('"', '""')


def tsv_field(text: str) -> str:
    """Return a text as a complete TSV field, in quotation marks only if it begins with a quotation mark."""
    return f'"{escape_csv(text)}"' if text.startswith('"') else text


def field_text(field: re.Match[str]) -> str:
    """Return the text of a field. In a field in quotation marks, each quotation mark is doubled."""
    quoted = field["quoted"]
    return field["value"] if quoted is None else quoted.replace('""', '"')


def csv_rows(text: str, is_tsv: bool) -> Iterator[list[re.Match[str]]]:
    """Yield the fields of each row that is not empty."""
    delimiter, position = csv_layout(text, is_tsv)
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


def csv_layout(text: str, is_tsv: bool = False) -> tuple[str, int]:
    """Return the delimiter of a CSV file, and the start of its first row.

    A line before the first row, such as `sep=;`, may name the delimiter. Otherwise, it is the most frequent of comma,
    semicolon and tab in the first row, outside of quotes.
    """
    start = CSV_START.match(text)
    assert start  # it may be empty
    row = re.sub('"[^"]*"', "", start["row"])
    delimiter = max("\t" if is_tsv else ",;\t", key=row.count)
    return start["delimiter"] or delimiter, start.start("row")


def parse_json_strings(text: str) -> list[Part]:
    """Return the parts of a JSON file. All strings are segments, except keys and what belongs to a key such as `@name`.

    Flutter's ARB has notes under these keys. In the messages of a browser extension, only each `message` is a segment.
    Raises ValueError if the text is no JSON.
    """
    tree = parse_json(text.encode())  # may begin with a BOM
    entries = list(tree.values()) if isinstance(tree, dict) else []
    are_messages = [isinstance(entry, dict) and {"message"} <= entry.keys() <= EXTENSION_KEYS for entry in entries]
    is_extension = bool(entries) and all(are_messages)

    def is_text(path: list[str]) -> bool:
        if is_extension:
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
        source_language = parse_json(text.encode())["sourceLanguage"]
        for path, (start, end) in json_values(text):
            if path[1:] != ["strings", path[-1]]:
                continue
            # A string without a localization for the source language is its own key.
            entry = json.loads(text[start:end])
            localizations = entry.setdefault("localizations", {})
            source = localizations.get(source_language) or {"stringUnit": {"state": "new", "value": path[-1]}}
            states = CATALOG_STATE.findall(json.dumps(localizations.get(target)))
            if entry.get("shouldTranslate", True) and set(states) <= {"new"}:
                # The keys are sorted, as in Xcode, so each state comes before its value.
                new = CATALOG_STATE.sub(f'"state": {NEW_STATE}', json.dumps(source, sort_keys=True))
                localizations[target] = json.loads(new)
                as_xcode = json.dumps(entry, ensure_ascii=False, indent=2, separators=(",", " : "))
                entry_parts = parts_of_json(as_xcode.replace("\n", "\n    "), is_new)
                replacements.append(((start, end), entry_parts if has_segment(entry_parts) else [text[start:end]]))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("it is no string catalog of Xcode") from error
    return parts_of_text(text, replacements)


def parts_of_json(text: str, is_text: Callable[[list[str]], bool]) -> list[Part]:
    """Return the parts of a JSON text. Strings for whose path `is_text` returns True are segments."""
    replacements: list[Replacement] = []
    for path, (start, end) in json_values(text):
        if text[start:end] == NEW_STATE:
            replacements.append(((start, end), [CATALOG_REVIEW]))
        elif text[start] == '"' and is_text(path):
            value = json.loads(text[start:end])
            value_parts = parts_of_string(value, escape_json)
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
            path[-1] = json.loads(token["string"])
        elif token["string"]:
            yield path, token.span()
        elif token[0] in "[{":
            path.append("")
            starts.append(token.start())
        else:
            path.pop()
            yield path, (starts.pop(), token.end())
        check_depth(len(path), text, token.start())


def escape_json(text: str) -> str:
    """Escape a text for the inside of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def join_surrogates(text: str) -> str:
    """Replace each surrogate pair, which two escapes can stand for, by its character.

    Raises UnicodeDecodeError, a ValueError, for half of a pair.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


def check_depth(depth: int, text: str, position: int) -> None:
    """Raise ValueError, which names the line of a position, if the nesting is too deep there."""
    if depth > MAX_DEPTH:
        raise ValueError(f"line {line_number(text, position)} is nested over {MAX_DEPTH} deep")


def line_number(text: str, position: int) -> int:
    """Return the number of the line at a position. Lines are counted from 1."""
    return text.count("\n", 0, position) + 1


JSON = Format(parse_json_strings, str, protects=True)
