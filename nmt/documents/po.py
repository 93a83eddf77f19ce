"""PO files of gettext: each line of a message is a paragraph, which may contain tags.

Everything else is copied. The library polib is not used to write, because it would change line breaks and escapes.
"""

import re
from dataclasses import dataclass, field

from nmt.documents.markup import Format, Part, parts_of_text
from nmt.documents.tables import line_number, parts_of_string

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


PO = Format(parse_po, str)
