"""Translation memories: each format gives the same pairs, whole, in order and in a known direction."""

import gzip
import json
import logging
import sys
import types
import zipfile
from pathlib import Path

import pytest

from nmt.documents.memories import Names, is_memory, text_files, write_copy
from nmt.errors import InputError

TMX = """<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="de-DE" adminlang="en"/><body>
<tu><prop type="x" xml:lang="fr">P</prop><tuv xml:lang="en-US"><note xml:lang="fr">N</note><seg>A <ph>&lt;br&gt;</ph>dog
  &amp; a <hi>cat</hi></seg></tuv>
<tuv xml:lang="de"><seg>Ein <bpt i="1">{\\b </bpt>Hund<ept i="1">}</ept> &amp; eine Katze</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>Nur</seg></tuv></tu>
<tu><tuv xml:lang="de-AT"><seg>Tee</seg></tuv><tuv xml:lang="en"><seg>tea</seg></tuv></tu></body></tmx>"""
XLIFF = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="de" target-language="en"><body>
<trans-unit id="1"><source>Ein <g id="1">Hund</g> &amp; eine Katze</source><target>A dog &amp; a cat</target>
<alt-trans><target>bad</target></alt-trans></trans-unit>
<trans-unit id="2" approved="no"><source>da</source><target>there</target></trans-unit>
<trans-unit id="3"><source>da</source><target state="needs-review-translation">there</target></trans-unit>
<trans-unit id="4"><source>da</source><alt-trans><target>there</target></alt-trans></trans-unit>
<trans-unit id="5" approved="yes"><source>Tee</source><target state="final">tea</target></trans-unit>
</body></file></xliff>"""
XLIFF_2 = """<xliff version="2.0" srcLang="de" trgLang="en" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">
<unit id="1"><segment><source>Ein <pc id="1">Hund</pc> &amp; eine Katze</source>
<target>A dog &amp; a cat</target></segment>
<segment state="initial"><source>da</source><target>there</target></segment>
<segment state="final"><source>Tee<ph id="2"/></source><target>tea</target></segment></unit></file></xliff>"""
TBX = """<martif type="TBX"><text><body>
<termEntry><langSet xml:lang="de"><tig><term>Ein Hund &amp; eine Katze</term></tig></langSet>
<langSet xml:lang="en"><tig><term>A dog &amp; a cat</term></tig><tig><term>2nd</term></tig></langSet></termEntry>
<termEntry><langSet xml:lang="de"><tig><term>Tee</term></tig></langSet>
<langSet xml:lang="en"><tig><term>tea</term></tig></langSet></termEntry></body></text></martif>"""
PO = """msgid ""
msgstr "Language: de_AT\\n"

msgid "A dog\\n& a cat"
msgstr "Ein Hund "
"& eine Katze"

#, fuzzy
msgid "there"
msgstr "da"

msgid "new"
msgstr ""

msgid "tea"
msgstr "Tee"
"""
TEXTS = {  # file name -> content
    "a.tmx": TMX,
    "b.xlf": XLIFF,
    "c.xliff": XLIFF_2,
    "d.tbx": TBX,
    "e.csv": 'id,de,en\n1,Ein Hund & eine Katze,"A dog\n& a cat"\n\n2,da,\n3,Tee,tea\n',
    "f.csv": '\ufeffsep=;\nen;de\n"A dog & a cat";Ein Hund & eine Katze\n;da\ntea;Tee\n',
    "g.tsv": 'de\ten\nEin Hund & eine Katze\t"A dog\n& a cat"\nda\t\nTee\ttea\n',
    "h.jsonl": '{"en": "A dog & a cat", "n": 1, "de": "Ein Hund & eine Katze"}\n\n{"de": "Tee", "en": "tea"}\n',
    "i.jsonl": '{"id": "1", "translation": {"de": "Ein Hund & eine Katze", "en": "A dog & a cat"}}\n'
    '{"id": "2", "translation": {"de": "Tee", "en": "tea"}}\n',
    "j.po": PO,
}
PAIRS = [("Ein Hund & eine Katze", "A dog & a cat"), ("Tee", "tea")]
DE_EN = ("de", "en")


def pairs_of(path: Path, languages: Names = ("", ""), columns: Names = ("", "")) -> list[tuple[str, str]]:
    """The pairs of a memory."""
    (source,), (target,) = text_files([path], languages, columns)
    sources, targets = source.read_text(encoding="utf-8"), target.read_text(encoding="utf-8")
    return list(zip(sources.splitlines(), targets.splitlines(), strict=True))


def memory(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


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
    with pytest.raises(InputError, match="its members in de and en have different numbers of lines"):
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
    assert "a.xlf: 2 pairs; 3 units are left out" in caplog.text


def copy_of(path: Path, changes: dict[int, Names | None]) -> str:
    """A copy of a memory with these changes."""
    copy = path.with_name("copy" + path.suffix)
    write_copy(path, copy, DE_EN, ("", ""), changes)
    return copy.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in TEXTS if name not in ("g.tsv", "j.po")])
def test_a_copy_lacks_the_units_that_are_left_out(name: str, tmp_path: Path) -> None:
    path = memory(tmp_path, name, TEXTS[name])
    assert copy_of(path, {}) == TEXTS[name]
    copy_of(path, {1: None})
    assert pairs_of(path.with_name("copy" + path.suffix), DE_EN) == PAIRS[1:]


CHANGED = {  # file name -> the pieces of text that are changed, and what is in the copy
    "a.tmx": {"<seg>Tee<": "<seg>Tea<", "<seg>tea<": "<seg>&lt;tee&gt;<"},
    "b.xlf": {">Tee<": ">Tea<", ">tea<": ">&lt;tee&gt;<"},
    "d.tbx": {">Tee<": ">Tea<", ">tea<": ">&lt;tee&gt;<"},
    "e.csv": {"Tee,tea": '"Tea","<tee>"'},
    "f.csv": {"tea;Tee": '"<tee>";"Tea"'},
    "h.jsonl": {'"Tee"': '"Tea"', '"tea"': '"<tee>"'},
    "i.jsonl": {'"Tee"': '"Tea"', '"tea"': '"<tee>"'},
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_copy_has_new_texts_and_nothing_else_is_new(name: str, tmp_path: Path) -> None:
    path = memory(tmp_path, name, TEXTS[name])
    expected = TEXTS[name]
    for old, new in CHANGED[name].items():
        expected = expected.replace(old, new)
    assert copy_of(path, {2: ("Tea", "<tee>")}) == expected


def test_the_texts_of_a_unit_can_be_exchanged(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.csv", TEXTS["e.csv"])
    copy_of(path, {2: ("tea", "Tee")})
    assert pairs_of(path.with_name("copy.csv"), DE_EN) == [PAIRS[0], ("tea", "Tee")]


def test_a_changed_field_is_in_quotes(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.csv", "de,en\nTee &quot;,tea\n")
    copy = copy_of(path, {1: ('Tee "', "tea, hot")})
    assert copy == 'de,en\n"Tee ""","tea, hot"\n'
    assert pairs_of(path.with_name("copy.csv")) == [('Tee "', "tea, hot")]


def test_texts_with_codes_stay_in_a_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    assert copy_of(memory(tmp_path, "a.tmx", TMX), {1: ("Hund", "dog")}) == TMX
    assert "1 units stay as they were" in caplog.text


def test_it_is_said_that_a_format_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = memory(tmp_path, "a.po", PO)
    write_copy(path, tmp_path / "b.po", ("en", "de"), ("", ""), {1: None})
    assert "a.po cannot be written in its own format" in caplog.text
    assert not (tmp_path / "b.po").exists()


def test_a_long_memory_is_read_as_a_stream(tmp_path: Path) -> None:
    lines = [json.dumps({"de": f"Satz {i}", "en": f"sentence {i}"}) for i in range(3_000)]
    pairs = pairs_of(memory(tmp_path, "a.jsonl", "\n".join(lines)))
    assert pairs[-1] == ("Satz 2999", "sentence 2999")
    assert len(pairs) == 3_000
