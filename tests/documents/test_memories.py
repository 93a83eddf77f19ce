"""Translation memories: each format gives the same pairs, whole, in order and in a known direction."""

import gzip
import json
import logging
import sys
import types
import zipfile
from pathlib import Path

import pytest
from memory_files import DE_EN, PAIRS, TEXTS, TMX, XLIFF, memory, pairs_of

from nmt.documents.memories import is_memory, text_files
from nmt.errors import InputError


@pytest.mark.parametrize("name", TEXTS)
def test_every_format_gives_the_pairs(name: str, tmp_path: Path) -> None:
    path = memory(tmp_path, name, TEXTS[name])
    assert pairs_of(path, DE_EN) == PAIRS


def test_the_plural_forms_of_a_message_are_pairs(tmp_path: Path) -> None:
    header = 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
    message = 'msgid "a day"\nmsgid_plural "days"\nmsgstr[0] "ein Tag"\nmsgstr[1] "Tage"\n'
    path = memory(tmp_path, "de.po", header + message)
    assert pairs_of(path) == [("a day", "ein Tag"), ("days", "Tage")]


def test_a_memory_may_be_in_utf_16_and_compressed(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx.gz"
    path.write_bytes(gzip.compress(TMX.encode("utf-16")))
    assert is_memory(path)
    assert pairs_of(path) == PAIRS


def test_an_archive_has_a_member_for_each_side(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("README", "read me")
        archive.writestr("x/Books.de-en.ids", "1\n")
        archive.writestr("x/Books.de-en.de", "Ein Hund & eine Katze\nTee\n")
        archive.writestr("x/Books.de-en.en", "A dog & a cat\ntea\n")
    assert pairs_of(path) == PAIRS


def test_the_members_of_an_archive_have_as_many_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.de", "Tee\nda\n")
        archive.writestr("a.en", "tea\n")
    with pytest.raises(InputError, match="its members have different numbers of lines"):
        pairs_of(path)


SHEET = """<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>
<row r="1"><c r="B1" t="s"><v>0</v></c><c r="C1" t="inlineStr"><is><t>en</t></is></c></row>
<row r="2"><c r="B2" t="s"><v>1</v></c><c r="C2" t="inlineStr"><is><t>A dog\n&amp; a cat</t></is></c></row>
<row r="3"><c r="B3" t="inlineStr"><is><t>da</t></is></c></row>
<row r="4"><c r="B4" t="inlineStr"><is><t>Tee</t></is></c><c r="C4" t="str"><f>"te"&amp;"a"</f><v>tea</v></c></row>
</sheetData></worksheet>"""
SHARED = """<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><si><t>de</t></si>
<si><r><t>Ein Hund </t></r><r><t>&amp; eine Katze</t></r><rPh><t>x</t></rPh></si></sst>"""


def test_a_workbook_has_the_pairs_in_its_first_sheet(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/worksheets/sheet2.xml", "<worksheet/>")
        archive.writestr("xl/worksheets/sheet1.xml", SHEET)
        archive.writestr("xl/sharedStrings.xml", SHARED)
    assert pairs_of(path) == PAIRS


def test_parquet_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Batch(list[dict[str, object]]):
        def to_pylist(self) -> list[dict[str, object]]:
            return self

    records: list[dict[str, object]] = [{"translation": {"de": source, "en": target}} for source, target in PAIRS]
    file = types.SimpleNamespace(iter_batches=lambda: [Batch(records[:1]), Batch(records[1:])])
    parquet = types.SimpleNamespace(ParquetFile=lambda _: file)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    assert pairs_of(memory(tmp_path, "a.parquet", "PAR1")) == PAIRS


def test_parquet_needs_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match="pyarrow is needed"):
        pairs_of(memory(tmp_path, "a.parquet", "PAR1"))


@pytest.mark.parametrize(
    ("content", "first"),
    [
        ("Go.\tGeh.\n", ("Go.", "Geh.")),
        ("source\ttarget\nGo.\tGeh.\n", ("Go.", "Geh.")),
        ('"Go" he said\t"Geh"\nStop\tHalt"\n', ('"Go" he said', '"Geh"')),
    ],
)
def test_a_table_without_languages_is_in_the_given_ones(content: str, first: tuple[str, str], tmp_path: Path) -> None:
    path = memory(tmp_path, "a.tsv", content)
    assert pairs_of(path, ("en", "de"))[0] == first


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.csv", "key,English,Deutsch\n1,tea,Tee\n")
    assert pairs_of(path, ("de", "en"), ("Deutsch", "English")) == [("Tee", "tea")]


def test_the_first_memory_decides_the_direction(tmp_path: Path) -> None:
    first, second = memory(tmp_path, "a.tmx", TMX), memory(tmp_path, "b.csv", "en,de\ntea,Tee\n")
    sources, targets = text_files([first, second], ("", ""), ("", ""))
    assert [path.name for path in sources] == ["source.a.tmx.de", "source.b.csv.de"]
    assert targets[1].read_text(encoding="utf-8") == "tea\n"


UNCLEAR = {  # message -> content of a .csv file
    "It has de, en, fr": "de,en,fr\na,b,c\n",
    "It has key, English, Deutsch": "key,English,Deutsch\n1,tea,Tee\n",
    "It has none": "",
    "It has de": "de,de\na,b\n",
    "It has source, target": "source,target\na,b\n",
}


@pytest.mark.parametrize("message", UNCLEAR)
def test_languages_that_are_unclear_are_listed(message: str, tmp_path: Path) -> None:
    path = memory(tmp_path, "a.csv", UNCLEAR[message])
    with pytest.raises(InputError, match=message) as caught:
        pairs_of(path)
    assert "--source-lang" in caught.value.hint


def test_a_language_that_a_memory_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="It has de, en"):
        pairs_of(memory(tmp_path, "a.tmx", TMX), ("de", "fr"))


def test_a_header_for_all_languages_leaves_the_order_of_the_units(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.tmx", TMX.replace("de-DE", "*all*"))
    assert pairs_of(path)[1] == ("tea", "Tee")


DAMAGED = {  # file name -> content, the end of the message
    "a.tmx": (TMX[:-20], "after unit 2: unclosed token: line 7"),
    "b.tmx": (TMX.replace('"tmx14.dtd"', '"t" [<!ENTITY a "b">]'), "it declares entities"),
    "c.csv": ("de,en\na,b,c\n", "the next row has 3 fields, but the first has 2"),
    "d.csv": ('de,en\n"a,b\n', "unexpected end of data"),
    "e.jsonl": ("[]\n", "the next line is no object"),
    "f.po": ("msgid\n", "line 1 is no comment"),
    "g.zip": ("", "File is not a zip file"),
    "h.tmx": ("<tu/>", "index out of range"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_memory_is_refused(name: str, tmp_path: Path) -> None:
    content, message = DAMAGED[name]
    with pytest.raises(InputError, match=message):
        pairs_of(memory(tmp_path, name, content))


def test_only_memories_have_pairs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no translation memory"):
        pairs_of(tmp_path / "a.de")
    with pytest.raises(InputError, match=r"cannot read .*none.tmx: No such file"):
        pairs_of(tmp_path / "none.tmx")


def test_units_that_are_left_out_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    pairs_of(memory(tmp_path, "a.xlf", XLIFF))
    assert "a.xlf: 2 pairs; left out without a side or without approval: 3" in caplog.text


def test_a_long_memory_is_read_as_a_stream(tmp_path: Path) -> None:
    lines = [json.dumps({"de": f"Satz {i}", "en": f"sentence {i}"}) for i in range(3_000)]
    pairs = pairs_of(memory(tmp_path, "a.jsonl", "\n".join(lines)))
    assert pairs[-1] == ("Satz 2999", "sentence 2999")
    assert len(pairs) == 3_000
