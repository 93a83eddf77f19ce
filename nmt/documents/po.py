"""PO files of gettext: each line of a message is a paragraph, which may contain tags.

Everything else is copied. The library polib is not used to write, because it would change line breaks and escapes.
Directives such as `%s` are numbered before the translation, and accelerators such as `_Save` are taken out. After the
translation, `review_po` undoes this, and checks the directives by the flags of the message.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from gettext import c2py

from nmt.documents.accelerators import without_accelerator
from nmt.documents.markup import Format, Match, NotesPlace, Part, ReviewState, parts_of_text, segments_in
from nmt.documents.tables import BRANCHES, line_number, parts_of_string
from nmt.text.directives import directive_faults, numbered, settled
from nmt.text.spans import Span, replaced

PO_STRING = r'"(?:[^"\\\r\n]|\\[^\r\n0-9x])*"'  # escapes of bytes by numbers are not supported
PO_LINE = re.compile(
    rf"""[ \t]*(?:(?P<comment>\#[^\n]*)?
    | (?P<name>domain|msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)[ \t]*
      (?P<value>{PO_STRING}(?:[ \t\r\n]*{PO_STRING})*)[ \t]*)
    (?P<end>\r?\n|\Z)""",
    re.VERBOSE,
)
shared_partial = cache(partial)  # for equal arguments the same object, so that many segments take little memory
PO_FLAGS = re.compile(r"#[,=](.*)")  # since version 0.23, gettext also writes flags after #=
PO_PLURAL_FORMS = re.compile(r"^Plural-Forms:.*\bplural\s*=\s*([^;\n]+)", re.MULTILINE)
PO_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", '"': '"', "\\": "\\"}
PO_ESCAPE = re.compile(r"\\(.)")
PO_ESCAPED = str.maketrans({character: f"\\{name}" for name, character in PO_ESCAPES.items()})
# An encoding that is neither UTF-8 nor ASCII. Templates have the word CHARSET in place of an encoding.
PO_OTHER_CHARSET = re.compile(r"charset=(?!(?:utf-?8|(?:us-)?ascii|charset)(?![\w-]))[\w-]", re.IGNORECASE)


@dataclass(slots=True)
class PoMessage:
    """A message of a PO file."""

    values: dict[str, re.Match[str]] = field(default_factory=dict)  # the matches of `PO_LINE` by names such as msgid
    comments: list[re.Match[str]] = field(default_factory=list)  # the matches of the comments before the message

    @property
    def first(self) -> re.Match[str]:
        """The match of the first name and its value."""
        return next(iter(self.values.values()))

    @property
    def is_complete(self) -> bool:
        """Whether the message has a msgstr. After a msgstr, a message can only have further plural forms."""
        return any(name.startswith("msgstr") for name in self.values)

    @property
    def context(self) -> str:
        """The text of msgctxt, which is empty if the message has none."""
        value = self.values.get("msgctxt")
        return po_text(value["value"]) if value else ""

    @property
    def flags(self) -> set[str]:
        """The flags in the comments, such as "fuzzy" and "c-format"."""
        flags: set[str] = set()
        for comment in self.comments:
            if match := PO_FLAGS.match(comment["comment"]):
                flags.update(re.split(r"[\s,]+", match[1]))
        return flags

    @property
    def has_previous(self) -> bool:
        """Whether a comment (`#|`) already has the previous msgid."""
        return any(comment["comment"].startswith("#|") for comment in self.comments)

    @property
    def syntaxes(self) -> set[str]:
        """The syntaxes of the directives in the message: "c" for the flag "c-format"."""
        return {flag.removesuffix("-format") for flag in self.flags if flag.endswith("-format")}


class PluralForms:
    """The plural forms of a language, by the expression in the header of a PO file."""

    NUMBERS = range(1001)  # the numbers that msgfmt tries
    N_RARE = 4  # msgfmt allows that a form of at most so many of these numbers lacks the number

    def __init__(self, header: str) -> None:
        self.numbers: dict[int, set[int]] = {}  # the numbers of each form; empty if the header has no valid expression
        expression = PO_PLURAL_FORMS.search(header)
        if not expression:
            return
        try:
            plural = c2py(expression[1])
            for n in self.NUMBERS:
                self.numbers.setdefault(plural(n), set()).add(n)
        except (ValueError, ZeroDivisionError):
            self.numbers = {}

    def source(self, form: int, n_forms: int, singular: str, plural: str) -> str:
        """Return the text that is translated into a form: the singular or the plural of the source language.

        The singular is for a form of the number 1, but not of 2. If the form has many other numbers, the singular needs
        the same directives as the plural.
        """
        if not self.numbers:  # without an expression, the first of several forms counts as the singular
            return singular if form == 0 and n_forms > 1 else plural
        numbers = self.numbers.get(form, set())
        if 1 not in numbers or 2 in numbers:
            return plural
        is_complete = len(numbers) <= self.N_RARE or not directive_faults(plural, singular)
        return singular if is_complete else plural


def parse_po(text: str) -> list[Part]:
    """Return the parts of a PO file. Each `msgstr` that is empty or fuzzy gets a translation; see `unfinished`.

    Raises ValueError if the text is no PO file.
    """
    replacements: dict[Span, Sequence[Part]] = {}
    messages = po_messages(text)
    for index, name, source in unfinished(messages):
        message = messages[index]
        place, flag = fuzzy_flag(message)
        replacements[place] = [ReviewState("", "", flag), NotesPlace()]
        # A value can consist of several strings. The translation is a single string.
        label, _ = without_accelerator(source)
        label = numbered(label, message.syntaxes)
        parts = ['"', *parts_of_string(label, escape_po), '"']
        segments = segments_in(parts)
        # A similar match of the whole text can be the previous msgid.
        is_whole = len(segments) == 1 and name == "msgstr" and not message.has_previous
        line_end = message.first["end"]
        note = shared_partial(previous_source if is_whole else comment_about, line_end=line_end)
        for segment in segments:
            segment.context = message.context
            segment.note = note
        if name in message.values:
            replacements[message.values[name].span("value")] = parts
        else:  # plural forms that only the header names
            end = max(value.end("value") for value in message.values.values())
            replacements[end, end] = [*replacements.get((end, end), []), f"{line_end}{name} ", *parts]
    return parts_of_text(text, replacements.items())


def comment_about(match: Match, line_end: str) -> str:
    """Return a comment of translators about a match."""
    return f"# {match.similarity:.0%} match: {match.source} -> {match.target}{line_end}"


def previous_source(match: Match, line_end: str) -> str:
    """Return the source of a match that is taken as the previous msgid, as msgmerge writes it."""
    previous = f'#| msgid "{escape_po(match.source)}"{line_end}'
    return previous if match.is_taken else comment_about(match, line_end)


def review_po(text: str, translated: str) -> tuple[str, list[str]]:
    """Correct the translations in a PO file, and return the file and what is wrong with translations; see `Review`.

    1. Numbers of directives are removed if they are not needed, and accelerators are restored.
    2. A message whose translation has other directives than its source gets the flag "fuzzy".
    """
    replacements: dict[Span, str] = {}
    faults = []
    messages, new_messages = po_messages(text), po_messages(translated)
    for index, name, source in unfinished(messages):
        message, value = new_messages[index], new_messages[index].values[name]
        # 1. Correct the translation.
        label, accelerator = without_accelerator(source)
        written = po_text(value["value"])
        corrected, is_moved = settled(label, written, message.syntaxes)
        corrected = accelerator.restored(corrected)
        if corrected != written:
            replacements[value.span("value")] = f'"{escape_po(corrected)}"'
        # 2. Check it.
        found = directive_faults(source, corrected, message.syntaxes)
        if is_moved:
            found.append("had the directives in another order")
        if found:
            line = line_number(text, messages[index].values["msgid"].start("name"))
            faults.append(f"line {line}: the translation {', '.join(found)}; it is marked as fuzzy")
            replacements |= [fuzzy_flag(message)]
    return replaced(translated, sorted(replacements.items())), faults


def fuzzy_flag(message: PoMessage) -> tuple[Span, str]:
    """Return the place of the flag "fuzzy" in a PO file, and its line, which is empty if the message has the flag."""
    first = message.first
    line = "" if "fuzzy" in message.flags else f"#, fuzzy{first['end']}"
    return (first.start(), first.start()), line


def unfinished(messages: Sequence[PoMessage]) -> Iterator[tuple[int, str, str]]:
    """Yield the index of the message and the name of each `msgstr` to translate, and the text to translate into it.

    A `msgstr` is translated if it is empty or fuzzy, or if it is a plural form of the language that the message lacks.
    Messages with branches are not translated.
    """
    for index, name, source, text in translations(messages):
        is_unfinished = not text or "fuzzy" in messages[index].flags
        if is_unfinished and not BRANCHES.search(source):
            yield index, name, source


def translations(messages: Sequence[PoMessage]) -> Iterator[tuple[int, str, str, str]]:
    """Yield the index of the message, the name of each `msgstr`, the text that it translates, and its own text.

    A plural form of the language that a message lacks has an empty text. Raises ValueError if a header names another
    encoding than UTF-8.
    """
    plural_forms = PluralForms("")
    for index, message in enumerate(messages):
        texts = {name: po_text(value["value"]) for name, value in message.values.items()}
        # The message with an empty msgid contains the header of the file.
        if not texts["msgid"]:
            header = texts.get("msgstr", "")
            if PO_OTHER_CHARSET.search(header):
                raise ValueError("its header names another encoding than UTF-8; msgconv -t UTF-8 converts it")
            plural_forms = PluralForms(header)
            continue
        n_forms = sum(name.startswith("msgstr[") for name in texts)
        if n_forms:
            for form in range(len(plural_forms.numbers)):
                texts.setdefault(f"msgstr[{form}]", "")
        for name, text in texts.items():
            if not name.startswith("msgstr"):
                continue
            source = texts["msgid"]
            if "msgid_plural" in texts:
                number = name.removeprefix("msgstr").strip("[]")
                form = int(number or 0)
                source = plural_forms.source(form, n_forms, source, texts["msgid_plural"])
            yield index, name, source, text


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
        name = line["name"] or ""
        comment = line["comment"] or ""
        is_separate = name == "domain" or comment.startswith("#~")  # comments before such a line belong to no message
        is_next = messages[-1].is_complete and (comment or name) and not name.startswith("msgstr[")
        if is_separate or is_next:
            messages.append(PoMessage())
        if comment:
            messages[-1].comments.append(line)
        if name in messages[-1].values:
            number = line_number(text, line.start("name"))
            raise ValueError(f"line {number} repeats {name} of the message")
        if name and not is_separate:
            messages[-1].values[name] = line

    # 2. Leave out messages without values, which arise from comments, domains and obsolete messages. Check the rest.
    messages = [message for message in messages if message.values]
    for message in messages:
        if "msgid" not in message.values or not message.is_complete:
            number = line_number(text, message.first.start("name"))
            raise ValueError(f"the message at line {number} needs a msgid and a msgstr")
    return messages


def escape_po(text: str) -> str:
    """Escape a text for the inside of a PO string."""
    return text.translate(PO_ESCAPED)


def po_text(value: str) -> str:
    """Return the text of a value, which consists of strings with escapes as in C."""
    joined = "".join(string[1:-1] for string in re.findall(PO_STRING, value))
    return PO_ESCAPE.sub(lambda escape: PO_ESCAPES.get(escape[1], escape[1]), joined)


PO = Format(parse_po, str, protects=True, review=review_po)
