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
from nmt.documents.tables import JSON, parse_csv

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


@pytest.mark.parametrize("source", BAD_CSV)
def test_a_damaged_csv_file_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=BAD_CSV[source]):
        CSV.parse(source)


@pytest.mark.parametrize("source", BAD_JSON)
def test_a_damaged_json_file_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=BAD_JSON[source]):
        JSON.parse(source)
