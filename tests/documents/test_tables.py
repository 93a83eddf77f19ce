"""Tables of strings: only the chosen strings change, byte for byte."""

import csv
import json
from functools import partial
from io import StringIO
from typing import Any

import pytest
from conftest import rows_of
from echo import echoed
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.markup import Format
from nmt.documents.tables import JSON, PO, parse_csv

CSV = Format(partial(parse_csv, column="text", title=""), str)

# --- JSON -------------------------------------------------------------------------------------------------

STRINGS = r"""
{"a" : "b\/c", "d":["e\u00e4", true]}
{"a" : "B/C", "d":["EÄ", true]}

{"a": "ein <b>Hund</b> &amp;"}
{"a": "EIN <b>HUND</b> &AMP;"}

{"a": "Datei <name> an <a@b.de>"}
{"a": "DATEI <NAME> AN <A@B.DE>"}

{"a": "\u0031", "b": "https://x.de/a", "c": ""}
{"a": "\u0031", "b": "https://x.de/a", "c": ""}

{"a": "da <code>b\nc</code>"}
{"a": "DA <code>b\nc</code>"}

{"n": "{n, plural, one {# Tag} other {# Tage}}"}
{"n": "{n, plural, one {# Tag} other {# Tage}}"}

{"a": "eins\n\nzwei\n"}
{"a": "EINS\n\nZWEI\n"}

"da"
"DA"
"""


@pytest.mark.parametrize("case", rows_of(STRINGS, "\n\n"))
def test_strings_of_json(case: str) -> None:
    source, expected = case.split("\n")
    assert echoed(f"\ufeff{source}\r\n", JSON) == f"\ufeff{expected}\r\n"


SCALARS = st.none() | st.booleans() | st.integers() | st.text()
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


def shape(tree: Any) -> Any:
    """A tree without its strings; keys stay."""
    if isinstance(tree, dict):
        return {key: shape(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return list(map(shape, tree))
    if isinstance(tree, str):
        return str
    return tree


@given(TREES)
def test_keys_and_structure_of_any_json_stay(tree: object) -> None:
    written = echoed(json.dumps(tree), JSON, str.swapcase)
    assert shape(json.loads(written)) == shape(tree)


# --- CSV --------------------------------------------------------------------------------------------------

FIELDS = st.text("aBä0\",;'")
TABLES = st.lists(st.tuples(FIELDS, FIELDS), min_size=1)


class Semicolons(csv.excel):
    delimiter = ";"
    lineterminator = "\n"


class Quoted(csv.excel_tab):
    quoting = csv.QUOTE_ALL


def test_excel_may_name_the_delimiter_in_the_first_line() -> None:
    source = "sep=|\r\nid|text\r\n1|Ein Hund, ein Hund; ein Hund\r\n"
    assert echoed(source, CSV) == 'sep=|\r\nid|text\r\n1|"EIN HUND, EIN HUND; EIN HUND"\r\n'


@pytest.mark.parametrize("dialect", [csv.excel, Semicolons, Quoted])
@given(table=TABLES)
def test_only_the_column_of_a_csv_file_changes(dialect: type[csv.Dialect], table: list[tuple[str, str]]) -> None:
    # Python's module writes the file, and reads the translation.
    file = StringIO()
    csv.writer(file, dialect).writerows([("id", "text"), *table])
    written = echoed(file.getvalue(), CSV, str.swapcase)
    names, *rows = csv.reader(StringIO(written, newline=""), dialect)
    assert names == ["id", "text"]
    assert rows == [[first, second.swapcase()] for first, second in table]


# --- PO ---------------------------------------------------------------------------------------------------

HEADER = '# Titel\nmsgid ""\nmsgstr ""\n"Plural-Forms: nplurals=2;\\n"\n\n'
# Each entry is read alike with any others around it.
COPIED = r"""
msgid "da"
msgstr "there"

#. seen
#: a.c:1
#, c-format
msgid "da"
msgstr "there"

#, fuzzy
#~ msgid "da"
#~ msgstr "gone"

# old
#, fuzzy
#~| msgid "older"
#~ msgid "da"
#~ msgid_plural "ds"
#~ msgstr[0] ""

#, fuzzy
domain "menu"

# a note

#, fuzzy-range, no-fuzzy
# this is fuzzy
msgid "not fuzzy"
msgstr "there"
"""
# Entries before and after the translation.
TRANSLATED = r"""
msgctxt "k"
msgid "da"
msgstr ""
→
msgctxt "k"
msgid "da"
msgstr "DA"

msgid ""
"ein \"Hund\"\n"
"da\n"
msgstr ""
""
→
msgid ""
"ein \"Hund\"\n"
"da\n"
msgstr "EIN \"HUND\"\nDA\n"

msgid "da ä\q\v"
msgstr ""
→
msgid "da ä\q\v"
msgstr "DA ÄQ\v"

msgid "12%"
msgstr ""
→
msgid "12%"
msgstr "12%"

#, c-format
#, fuzzy
msgid "da"
msgstr "there"
→
#, c-format
#, fuzzy
msgid "da"
msgstr "DA"

#, fuzzy
#| msgid "a"
msgid ""
"b"
msgstr ""
"x"
→
#, fuzzy
#| msgid "a"
msgid ""
"b"
msgstr "B"

msgid "Tag"
msgid_plural "Tage"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""
→
msgid "Tag"
msgid_plural "Tage"
msgstr[0] "TAG"
msgstr[1] "TAGE"
msgstr[2] "TAGE"

msgid "Tag"
msgid_plural "Tage"
msgstr[0] ""
→
msgid "Tag"
msgid_plural "Tage"
msgstr[0] "TAGE"

msgid "a"
msgid_plural "b"
msgstr[0] ""
msgstr[1] "x"
→
msgid "a"
msgid_plural "b"
msgstr[0] "A"
msgstr[1] "x"
"""


def entries(text: str) -> list[str]:
    return [f"{entry}\n" for entry in rows_of(text, "\n\n")]


def before_and_after(entry: str) -> tuple[str, str]:
    """An entry, and what it becomes; those of `COPIED` stay."""
    before, _, after = entry.partition("→\n")
    return before, after or before


ENTRIES = list(map(before_and_after, entries(COPIED) + entries(TRANSLATED)))


@pytest.mark.parametrize(("before", "after"), ENTRIES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_entry_of_po(before: str, after: str, end: str) -> None:
    source, expected = HEADER + before, HEADER + after
    written = echoed(source.replace("\n", end), PO)
    assert written == expected.replace("\n", end)


@given(st.lists(st.sampled_from(ENTRIES)), st.sampled_from(["", "\n"]))
def test_flags_of_po_belong_to_the_entry_after_them(chosen: list[tuple[str, str]], blank: str) -> None:
    """A finished message stays as it is, whatever fuzzy and obsolete entries are beside it."""
    source = expected = HEADER
    for before, after in chosen:
        source += before + blank
        expected += after + blank
    assert echoed(source, PO) == expected


# --- damages ----------------------------------------------------------------------------------------------

BAD_CSV = {
    'a,text\n1,"da\n': "line 2 has a quote at a wrong place, or without its partner",
    'a,text\n\n1,"da" \n': "line 3 has a quote at a wrong place",
    "a,text\n1\n": "line 2 has 1 fields instead of 2",
}
BAD_JSON = {
    "": "Expecting value",
    '{"a": "\\ud800b"}': "surrogates not allowed",
    '{"a": "b}': "Unterminated string",
}
BAD_PO = {
    'msgid "a"\nmsgstr "\n': "line 2 is no comment, name or string",
    'msgid "\\x64"\nmsgstr ""\n': "line 1 is no comment, name or string",
    'msgid "a"\nmsgid "b"\nmsgstr ""\n': "line 2 repeats msgid of the message",
    'msgid "b"\nmsgstr ""\n\nmsgid "a"\n': "the message at line 4 needs a msgid and a msgstr",
    'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "x"\nmsgstr[0] ""\n': r"line 4 repeats msgstr\[0\] of the message",
    'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n': "another encoding than UTF-8",
}


@pytest.mark.parametrize("source", BAD_CSV)
def test_a_damaged_csv_file_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=BAD_CSV[source]):
        CSV.parse(source)


@pytest.mark.parametrize("source", BAD_JSON)
def test_a_damaged_json_file_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=BAD_JSON[source]):
        JSON.parse(source)


@pytest.mark.parametrize("source", BAD_PO)
def test_a_damaged_po_file_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=BAD_PO[source]):
        PO.parse(source)
