"""The formats of translation memories: each gives the same pairs, and a copy with new texts."""

import sys
import types
import zipfile
from pathlib import Path

import pytest
from memory_files import DE_EN, PAIRS, TEXTS, TMX, copy_of, memory, pairs_of

from nmt.errors import InputError


@pytest.mark.parametrize("name", TEXTS)
def test_every_format_gives_the_pairs(name: str, tmp_path: Path) -> None:
    path = memory(tmp_path, name, TEXTS[name])
    assert pairs_of(path, DE_EN) == PAIRS


COPIES = {  # file name -> a copy without the first pair, and with new texts in the second one
    "b.xlf": '<source>Tea</source><target state="final">&lt;tee&gt;</target></trans-unit>\n</body>',
    "d.tbx": '<term>Tea</term></tig></langSet>\n<langSet xml:lang="en"><tig><term>&lt;tee&gt;</term>',
    "e.csv": "id,de,en\n2,da,\n3,Tea,<tee>\n",
    "f.csv": "sep=|\nen|de\n|da\n<tee>|Tea\n",
    "g.tsv": "de\ten\nda\t\nTea\t<tee>\n",
    "h.jsonl": '{"de": "Tea", "en": "<tee>"}\n',
    "i.jsonl": '{"id": "2", "translation": {"de": "Tea", "en": "<tee>"}}\n',
    "k.csv": "en;de\n;da\n<tee>;Tea\n",
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_lacks_pairs_and_has_new_texts(name: str, tmp_path: Path) -> None:
    path = memory(tmp_path, name, TEXTS[name])
    copy = copy_of(path, "Tea\n", "<tee>\n", {2})
    assert COPIES[name] in copy
    assert "cat" not in copy


def test_a_copy_of_a_catalog_has_all_messages(tmp_path: Path) -> None:
    path = memory(tmp_path, "en.po", TEXTS["j.po"].replace("de_AT", "de"))
    copy = copy_of(path, "Tea\n", "tee\n", {2})
    assert copy == path.read_text().replace('"Tee"', '"Tea"').replace(' "\n"&', " &")


def test_a_copy_of_xml_keeps_what_is_not_changed(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.tmx", TMX)
    copy = copy_of(path, "Hund\nTee\n", "dog\ntee\n", {1, 2})
    expected = TMX.replace("<seg>tea<", "<seg>tee<").replace("?>", "?>\n")  # texts with codes stay
    assert copy == expected.replace('"1.0"?', "'1.0' encoding='UTF-8'?")


def test_a_copy_of_xml_is_in_its_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_bytes(TMX.replace('"1.0"', '"1.0" encoding="UTF-16"', 1).encode("utf-16"))
    with pytest.raises(UnicodeDecodeError):
        copy_of(path, "Hund\nTee\n", "dog\ntee\n", {1, 2})
    assert "<seg>tee<" in (tmp_path / "copies" / "a.tmx").read_text(encoding="utf-16")


def test_a_proposal_of_xliff_is_no_translation(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.xlf", TEXTS["b.xlf"].replace(' state="needs-review-translation"', ""))
    result = pairs_of(path)
    assert result == [PAIRS[0], ("da", "there"), PAIRS[1]]


def test_xliff_need_not_name_its_target_language(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.xlf", TEXTS["b.xlf"].replace(' target-language="en"', ""))
    assert pairs_of(path, DE_EN) == PAIRS


def test_the_plural_forms_of_a_message_are_pairs(tmp_path: Path) -> None:
    header = 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
    message = 'msgid "a day"\nmsgid_plural "days"\nmsgstr[0] "ein Tag"\nmsgstr[1] "Tage"\n'
    path = memory(tmp_path, "de.po", header + message)
    assert pairs_of(path) == [("a day", "ein Tag"), ("days", "Tage")]


def archive_of(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


MOSES = {
    "README": "read me",
    "x/Books.de-en.ids": "1\n",
    "__MACOSX/x/._Books.de-en.de": "\0",
    "x/Books.de-en.de": "Tee\nda\n",
    "x/Books.de-en.en": "tea\nthere\n",
}


def test_an_archive_has_a_member_for_each_side(tmp_path: Path) -> None:
    path = archive_of(tmp_path / "a.zip", MOSES)
    assert pairs_of(path) == [("Tee", "tea"), ("da", "there")]
    assert copy_of(path, "Tea\n", "tee\n", {1}) == "de,en\nTea,tee\n"


UNCLEAR = {  # message -> the members of an archive
    "shorter than": {"a.de": "Tee\nda\n", "a.en": "tea\n"},
    "has 4 fields, but the first has 2 different names": {"a.de": "x\n", "b.de": "x\n", "a.en": "x\n", "b.en": "x\n"},
}


@pytest.mark.parametrize("message", UNCLEAR)
def test_the_members_of_an_archive_are_a_pair(message: str, tmp_path: Path) -> None:
    path = archive_of(tmp_path / "a.zip", UNCLEAR[message])
    with pytest.raises(InputError, match=message):
        pairs_of(path)


def test_a_workbook_has_the_pairs_in_its_first_sheet(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    workbook = openpyxl.Workbook()
    for row in (["de", "en", "n"], ["Tee", "tea", 1], [None, "x", 2], ["Ein Hund\n& eine Katze", "A dog & a cat", 3]):
        workbook.active.append(row)
    workbook.create_sheet().append(["other"])
    workbook.save(tmp_path / "a.xlsx")
    result = pairs_of(tmp_path / "a.xlsx")
    assert result == PAIRS[::-1]
    copy = copy_of(tmp_path / "a.xlsx", "Tea\n", "tee\n", {1})
    assert copy == "de,en,n\nTea,tee,1\n,x,2\n"


def test_parquet_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Batch(list[dict[str, object]]):
        def to_pylist(self) -> list[dict[str, object]]:
            return [{"translation": dict(record)} for record in self]

    records: list[dict[str, object]] = [{"de": source, "en": target} for source, target in PAIRS]
    file = types.SimpleNamespace(iter_batches=lambda: [Batch(records[:1]), Batch(records[1:])])
    parquet = types.SimpleNamespace(ParquetFile=lambda _: file)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    path = memory(tmp_path, "a.parquet", "PAR1")
    assert pairs_of(path) == PAIRS
    assert copy_of(path, "Tee\n", "tee\n", {2}) == '{"translation": {"de": "Tee", "en": "tee"}}\n'


@pytest.mark.parametrize(("name", "library"), [("a.parquet", "pyarrow"), ("a.xlsx", "openpyxl")])
def test_some_formats_need_a_library(name: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match="is not installed") as caught:
        pairs_of(memory(tmp_path, name, "PK"))
    assert caught.value.hint.startswith(f"pip install {library}")


def test_quotes_are_text_between_tabs_unless_they_are_doubled(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.tsv", 'de\ten\n"Ja"\t"Yes\n3" Rohr\t"""3"" pipe"\n')
    assert pairs_of(path) == [('"Ja"', '"Yes'), ('3" Rohr', '"3" pipe')]


def test_the_first_column_of_a_language_counts(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.csv", "de-DE,de-AT,en\nTisch,Tafel,table\n")
    assert pairs_of(path, DE_EN) == [("Tisch", "table")]


OUTSIDE = TMX.replace('"tmx14.dtd"', '"t" [<!ENTITY a SYSTEM "/etc/passwd">]').replace("Tee", "&a;")
DAMAGED = {  # file name -> content, the end of the message
    "a.tmx": (TMX[:-20], "after unit 1: expected '>', line 7"),
    "b.tmx": (OUTSIDE, "'a' not defined"),
    "c.csv": ("de,en\na,b,c\n", "the next row has 3 fields, but the first has 2 different names"),
    "d.csv": ('de,en\n"a,b\n', "unexpected end of data"),
    "e.jsonl": ("[]\n", "the next line is no object"),
    "f.po": ("msgid\n", "line 1 is no comment"),
    "g.zip": ("", "File is not a zip file"),
    "h.tmx": ("", "no element found"),
    "i.jsonl": ('{"de": "Tee", "en": "\\ud800"}', "after unit 1: 'utf-8' codec can't encode"),
    "j.tsv": ('de\ten\n"a\nb"\tc\n', "the next row has 1 fields, but the first has 2"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_memory_is_refused(name: str, tmp_path: Path) -> None:
    content, message = DAMAGED[name]
    with pytest.raises(InputError, match=message):
        pairs_of(memory(tmp_path, name, content))


def test_text_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("de,en\nTür,door\n".encode("cp1252"))
    with pytest.raises(InputError, match="'utf-8' codec can't decode byte 0xfc") as caught:
        pairs_of(tmp_path / "a.csv")
    assert "in UTF-8" in caught.value.hint
