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
from nmt.documents.tables import JSON, parse_csv, parse_string_catalog
from nmt.errors import InputError

CSV = Format(partial(parse_csv, column="text", title=""), str)

# --- JSON -------------------------------------------------------------------------------------------------

STRINGS = r"""
{"a" : "b\/c", "d":["e\u00e4", true]}
{"a" : "B/C", "d":["EÄ", true]}

{"a": "ein <b>Hund</b> &amp;"}
{"a": "EIN <b>HUND</b> &AMP;"}

{"a": "ein <1>Hund</1> <2> da"}
{"a": "EIN <1>HUND</1> <2> DA"}

{"a": "-h  Hilfe", "b": "a\tb"}
{"a": "-H  HILFE", "b": "A\tB"}

{"a": "Datei <name> an <a@b.de>"}
{"a": "DATEI <NAME> AN <A@B.DE>"}

{"a": "\u0031", "b": "https://x.de/a", "c": ""}
{"a": "\u0031", "b": "https://x.de/a", "c": ""}

{"a": "2024-01-31T00:00:00Z", "b": "#ff00aa", "c": "img/hund.png", "d": "und/oder", "e": "data:a,b"}
{"a": "2024-01-31T00:00:00Z", "b": "#ff00aa", "c": "img/hund.png", "d": "UND/ODER", "e": "data:a,b"}

{"a": "(ein) {{ x | upper }}|(zwei)", "b": "eins||zwei [ja|nein]"}
{"a": "(EIN) {{ x | upper }}|(ZWEI)", "b": "EINS||ZWEI [JA|NEIN]"}

{"a": "da <code>b\nc</code>"}
{"a": "DA <code>b\nc</code>"}

{"n": "{n, plural, one {# Tag} other {# Tage}}"}
{"n": "{n, plural, one {# Tag} other {# Tage}}"}

{"a": "eins\n\nzwei\n"}
{"a": "EINS\n\nZWEI\n"}

{"a": "eins\tzwei"}
{"a": "EINS\tZWEI"}

{"@@locale": "de", "a": "da {n}", "@a": {"placeholders": {"n": {"type": "String"}}}}
{"@@locale": "de", "a": "DA {N}", "@a": {"placeholders": {"n": {"type": "String"}}}}

{"a": {"message": "da", "description": "da", "placeholders": {"b": {"content": "$1", "example": "da"}}}}
{"a": {"message": "DA", "description": "da", "placeholders": {"b": {"content": "$1", "example": "da"}}}}

{"a": {"message": "da", "title": "da"}}
{"a": {"message": "DA", "title": "DA"}}

"da"
"DA"
"""


@pytest.mark.parametrize("case", rows_of(STRINGS, "\n\n"))
def test_strings_of_json(case: str) -> None:
    source, expected = case.split("\n")
    result = echoed(f"\ufeff{source}\r\n", JSON)
    assert result == f"\ufeff{expected}\r\n"


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
    result = shape(json.loads(written))
    assert result == shape(tree)


# --- string catalogs --------------------------------------------------------------------------------------

CATALOG = Format(partial(parse_string_catalog, target="en"), str)


def unit(value: str, state: str = "translated") -> dict[str, Any]:
    return {"stringUnit": {"state": state, "value": value}}


def catalog(**strings: dict[str, Any]) -> str:
    tree = {"sourceLanguage": "de", "strings": strings, "version": "1.0"}
    return json.dumps(tree, ensure_ascii=False, indent=2, separators=(",", " : "))


def plural(state: str, *values: str) -> dict[str, Any]:
    units = [unit(value, state) for value in values]
    return {"variations": {"plural": dict(zip(["one", "other"], units, strict=True))}}


@pytest.mark.parametrize("new", [{}, {"en": unit("", "new")}, {"en": plural("new", "", "")}])
def test_a_string_of_a_catalog_gets_a_localization(new: dict[str, Any]) -> None:
    expected = {"localizations": {"en": unit('DA "Ä"', "needs_review")}}
    assert echoed(catalog(**{'da "ä"': {"localizations": new}}), CATALOG) == catalog(**{'da "ä"': expected})


def test_a_string_of_a_catalog_has_the_plural_forms_of_the_source() -> None:
    source = {"de": plural("translated", "ein Tag", "Tage")}
    expected = source | {"en": plural("needs_review", "EIN TAG", "TAGE")}
    written = echoed(catalog(key={"localizations": source}), CATALOG)
    assert written == catalog(key={"localizations": expected})


COPIED_ENTRIES: list[dict[str, Any]] = [
    {"shouldTranslate": False},
    {"localizations": {"en": unit("there")}},
    {"localizations": {"de": unit("%@")}},
]


@pytest.mark.parametrize("entry", COPIED_ENTRIES)
def test_other_strings_of_a_catalog_stay(entry: dict[str, Any]) -> None:
    source = json.dumps({"sourceLanguage": "de", "strings": {"da": entry}})
    assert echoed(source, CATALOG) == source


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


def test_a_comma_in_a_quoted_name_is_no_delimiter() -> None:
    assert echoed('"a, b, c";text\r1;da\r', CSV) == '"a, b, c";text\r1;"DA"\r'


TSV = Format(partial(parse_csv, column="text", title="", is_tsv=True), str)
TSV_FIELDS = {
    "da": "DA",
    '"da" da': '"DA" DA',
    '5" da': '5" DA',
    '"da\n""ä"""': '"DA\n""Ä"""',
    "a, b": "A, B",
    '5  "da" a': '5  "DA" A',  # several texts
    "1": "1",
}


@pytest.mark.parametrize("field", TSV_FIELDS)
def test_a_field_of_tsv_needs_no_quotes(field: str) -> None:
    written = echoed(f"id\ttext\n1\t{field}\n", TSV)
    assert written == f"id\ttext\n1\t{TSV_FIELDS[field]}\n"


def test_a_translation_in_tsv_has_quotes_around_it_if_only_it_begins_with_a_quote() -> None:
    assert echoed("text\nda\n", TSV, lambda _: '"da" a') == 'text\n"""da"" a"\n'


def test_empty_fields_of_another_column_are_filled() -> None:
    markup = Format(partial(parse_csv, column="de", title="", into="en"), str)
    written = echoed("de,en\nda,\nda,there\n12,\n,\n", markup)
    assert written == 'de,en\nda,"DA"\nda,there\n12,"12"\n,\n'


@pytest.mark.parametrize(("column", "into", "option"), [("x", "", "--column"), ("a", "x", "--into")])
def test_a_missing_column_is_an_error(column: str, into: str, option: str) -> None:
    with pytest.raises(InputError, match=r"There are \['a', 'b'\]") as caught:
        parse_csv("a,b\n", column, "", into=into)
    assert caught.value.hint.startswith(f"{option} NAME")


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
    "[" * 101 + "]" * 101: "line 1 is nested over 100 deep",
    "[" * 100_000: "nested too deeply",
}


@pytest.mark.parametrize("source", BAD_CSV)
def test_a_damaged_csv_file_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=BAD_CSV[source]):
        CSV.parse(source)


@pytest.mark.parametrize("source", BAD_JSON)
def test_a_damaged_json_file_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=BAD_JSON[source]):
        JSON.parse(source)


@pytest.mark.parametrize("source", ["{}", "[]", '{"sourceLanguage": "de", "strings": {"a": "b"}}'])
def test_a_damaged_catalog_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match="it is no string catalog"):
        CATALOG.parse(source)
