"""Files of keys and values: Java's `.properties`, Apple's `.strings` and Fluent's `.ftl`. Values are translated.

Everything else is copied. The library javaproperties is not used, because it would write other escapes than the file.
fluent.syntax gives the positions of texts only, because it would write the whole file anew.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

from nmt.documents.html import Parser
from nmt.documents.markup import Format, Part, Replacement, has_segment, parts_of_text
from nmt.documents.tables import TAG_START, join_surrogates, line_number, parts_of_string, read_string
from nmt.errors import InputError

PROPERTY = re.compile(
    r"""(?:[ \t\f]*+(?:[#!][^\r\n]*+)?
    | [ \t\f]*+(?:[^\\\s=:]|\\(?:\r\n|[\s\S]))*+  # the key
      (?:[ \t\f]|\\(?:\r\n?|\n))*+[=:]?(?:\\?[ \t\f]|\\(?:\r\n?|\n|u0020|[=:]))*+
      (?P<value>(?:[^\\\r\n]|\\(?!u(?![0-9a-fA-F]{4}))(?:\r\n|[\s\S]|\Z))*+)
    )(?:\r\n?|\n|\Z)""",
    re.VERBOSE,
)
_SPACE = r"(?:\s|/\*.*?\*/|//[^\r\n]*+)*+"
_CHARACTERS = r'(?:[^"\\]|\\[^0-9abv])*+'  # escapes of bytes by numbers, and of control characters, are not supported
STRINGS_ENTRY = re.compile(
    rf'{_SPACE}(?:\Z|(?:"{_CHARACTERS}"|[\w.$/:-]++){_SPACE}={_SPACE}"(?P<value>{_CHARACTERS})"{_SPACE};)',
    re.DOTALL,
)
ESCAPE = re.compile(r"\\(?:[uU](?P<code>[0-9a-fA-F]{4})|(?:\r\n?|\n)[ \t\f]*|(?P<name>.))")
NAMED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\f": r"\f"})
NUMBERED_ARGUMENT = re.compile(r"\{\d")  # a message of Java's MessageFormat, such as {0}
PARAGRAPH_END = r"(\r?\n *\r?\n\s*)"  # in a pattern of Fluent
KEPT_ATTRIBUTES = {"accesskey", "commandkey", "key", "style"}  # Firefox has keys and CSS in these


def parse_entries(text: str, entry: re.Pattern[str], escape: Callable[[str], str]) -> list[Part]:
    """Return the parts of a file of keys and values.

    Args:
        text: the content of the file.
        entry: a pattern of a key with its value (the group `value`), or of what may stand between these.
        escape: a function that escapes a text for a value.
    Raises:
        ValueError: something in the file does not match the pattern.
    """
    replacements = []
    position = int(text.startswith("\ufeff"))  # skip a BOM
    while position < len(text):
        match = entry.match(text, position)
        if not match:
            while text[position : position + 1].isspace():
                position += 1
            raise ValueError(f"line {line_number(text, position)} is no comment, and no key with its value")
        position = match.end()
        value_parts = parts_of_value(match["value"] or "", escape)
        if has_segment(value_parts):
            replacements.append((match.span("value"), value_parts))
    return parts_of_text(text, replacements)


def parts_of_value(value: str, escape: Callable[[str], str]) -> list[Part]:
    """Return the parts of a value. In a message of Java's MessageFormat, each apostrophe is written twice.

    A value with `{0}` but no apostrophe may be such a message. The apostrophes of its translation are typographic,
    since these are written once in any message.
    """
    text = unescaped(value)
    if "'" in text.replace("''", "") or not NUMBERED_ARGUMENT.search(text):
        return parts_of_string(text, escape)
    apostrophe = "''" if "''" in text else "’"
    return parts_of_string(text.replace("''", "'"), lambda new: escape(new).replace("'", apostrophe))


def unescaped(value: str) -> str:
    """Return the text of a value with escapes. Raises ValueError for half of a surrogate pair."""

    def character(escape: re.Match[str]) -> str:
        if escape["code"]:
            return chr(int(escape["code"], 16))
        name = escape["name"] or ""  # empty for a line end, which is left out
        return NAMED.get(name, name)

    return join_surrogates(ESCAPE.sub(character, value))


def escape_property(text: str) -> str:
    """Escape a text for a value of a `.properties` file."""
    return text.translate(ESCAPES)


def escape_strings(text: str) -> str:
    """Escape a text for a value of a `.strings` file."""
    return escape_property(text).replace('"', r"\"")


def parse_fluent(text: str) -> list[Part]:
    """Return the parts of a Fluent file: the values and attributes of messages. Terms are copied.

    Raises ValueError if the file is damaged.
    """
    try:
        from fluent.syntax import FluentParser
    except ImportError as error:
        raise InputError("fluent.syntax is not installed", hint="pip install 'nmt-trainer[documents]'") from error
    source = text.removeprefix("\ufeff")
    replacements: list[Replacement] = []
    entries: list[Any] = FluentParser().parse(source).body
    for entry in entries:
        kind = type(entry).__name__
        if kind == "Junk":
            fault = entry.annotations[0]
            raise ValueError(f"line {line_number(source, fault.span.start)}: {fault.message}")
        if kind == "Message":
            attributes = [node for node in entry.attributes if node.id.name not in KEPT_ATTRIBUTES]
            for node in [entry, *attributes]:
                if node.value:
                    replacements += replacements_in(source, node.value)
    return [text.removesuffix(source), *parts_of_text(source, replacements)]


def replacements_in(source: str, pattern: Any) -> Iterator[Replacement]:
    """Yield the texts of a pattern of Fluent, and the texts of the variants of its selectors, with their parts."""
    for variants, group in groupby(pattern.elements, variants_of):
        if variants:
            for variant in variants:
                yield from replacements_in(source, variant.value)
            continue
        elements = list(group)
        start = elements[0].span.start
        end = elements[-1].span.end
        tags = set(TAG_START.findall(source[start:end].lower()))
        # Only white space is before a pattern that begins a line.
        line_start = source.rfind("\n", 0, start) + 1
        parser = Parser(str if source[line_start:start].strip() else fluent_line)
        for number, element in enumerate(elements):
            raw = source[element.span.start : element.span.end]
            if raw.startswith("{"):
                parser.copy(raw, f"{{{number}}}")  # such as {1}, which a model keeps as a placeholder
            else:
                read_string(parser, raw, tags=tags, paragraph_end=PARAGRAPH_END)
        parser.finish()
        yield (start, end), parser.parts


def variants_of(element: Any) -> Any:
    """Return the variants of a selector of Fluent, or None for other elements."""
    return getattr(getattr(element, "expression", None), "variants", None)


def escape_fluent(text: str) -> str:
    """Escape the braces of a text for a pattern of Fluent."""
    return re.sub(r"[{}]", r'{"\g<0>"}', text)


def fluent_line(text: str) -> str:
    """Escape the first character of a line in a pattern of Fluent, if it would begin something else."""
    return re.sub(r"\A[*.\[]", r'{"\g<0>"}', text)


PROPERTIES = Format(partial(parse_entries, entry=PROPERTY, escape=escape_property), str, protects=True)
STRINGS = Format(partial(parse_entries, entry=STRINGS_ENTRY, escape=escape_strings), str, protects=True)
FLUENT = Format(parse_fluent, escape_fluent, protects=True)
