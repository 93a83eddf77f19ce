"""Documents: all of a document is translated, or nothing is written."""

import errno
import os
import random
import re
import zipfile
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree

import pytest
from conftest import SOURCE, TARGET, FiveRun, one_clear_error, out_lines, run_nmt
from echo import echo_file
from test_ooxml import A, B, r, root

from nmt.documents import ZIPPED, files
from nmt.errors import InputError, NmtError
from nmt.translate import documents
from nmt.translate.translator import Translator

SLIDE = f'<p:sld xmlns:p="x" xmlns:a="{A}"><a:p><a:r><a:t>{{}}</a:t></a:r></a:p></p:sld>'
DOCUMENT = "word/document.xml"
DOCUMENTS: dict[str, dict[str, str]] = {  # by name, their members
    "a.txt": {"": "\ufeffEin Hund rennt. Er bellt.\r\n\r\n  12\nda\n"},
    "a.md": {"": "# Titel\n\nein *Hund*\n"},
    "a.html": {"": "<html><head><title>Hund</title></head>\n<p>der <b>rote</b> Hund</html>\n"},
    "a.srt": {"": "1\r\n00:00:01,000 --> 00:00:02,500\r\n- Ein Hund?\r\n- Ja.\r\n"},
    "a.vtt": {"": "WEBVTT\n\nNOTE Notiz\n\n00:01.000 --> 00:02.500 align:start\nEin <i>Hund</i>\nbellt\n"},
    "a.json": {"": '{"Titel": "Hund",\n "b": ["da", 1, "\\u0031"], "c": {"d": "ein \\"Wort\\""}}'},
    "a.csv": {"": 'Nr,Text\r\n1,"Ein ""Hund"", rot"\r\n\r\n2,"da\n"\r\n'},
    "a.xlf": {"": '<xliff version="1.2"><trans-unit id="1"><source>Ein <g>Hund</g></source></trans-unit></xliff>'},
    "a.po": {"": '# Kommentar\nmsgid "Ein Hund"\nmsgstr ""\n'},
    "a.docx": {
        "word/styles.xml": root(f"<w:p>{r('Stil')}</w:p>"),
        DOCUMENT: root(f"<w:p>{r('der ')}{r('rote', B)}{r(' Hund')}</w:p>"),
        "word/header2.xml": root(f"<w:p>{r('Kopf')}</w:p>"),
        "word/footnotes.xml": root(f"<w:p>{r('Ende')}</w:p>"),
        "word/media/image1.png": "PNG",
    },
    "b.docx": {"word/document22.xml": root(f"<w:p>{r('da')}</w:p>")},  # as Word Online names it
    "a.pptx": {
        "ppt/slides/slide12.xml": SLIDE.format("Titel"),
        "ppt/notesSlides/notesSlide1.xml": SLIDE.format("Notiz"),
    },
}


def write(path: Path, members: dict[str, str]) -> None:
    if "" in members:
        path.write_bytes(members[""].encode(errors="surrogateescape"))
        return
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 2, 2, 2, 2, 2)), text, zipfile.ZIP_DEFLATED)


def read(path: Path) -> list[tuple[object, ...]]:
    """The members of a document, with name, time, compression and content."""
    if path.suffix not in ZIPPED:
        return [(path.read_bytes(),)]
    with zipfile.ZipFile(path) as archive:
        return [(one.filename, one.date_time, one.compress_type, archive.read(one)) for one in archive.infolist()]


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("a.txt", ["Ein Hund rennt.", "Er bellt.", "da"]),
        ("a.md", ["Titel", "ein Hund"]),
        ("a.html", ["Hund", "der rote Hund"]),
        ("a.srt", ["Ein Hund?", "Ja."]),
        ("a.vtt", ["Ein Hund bellt"]),
        ("a.json", ["Hund", "da", 'ein "Wort"']),
        ("a.csv", ['Ein "Hund", rot', "da"]),
        ("a.docx", ["der rote Hund", "Kopf", "Ende"]),
        ("b.docx", ["da"]),
        ("a.pptx", ["Titel", "Notiz"]),
    ],
)
def test_texts_are_translated_and_all_else_stays(tmp_path: Path, name: str, sentences: list[str]) -> None:
    source, new, back = (tmp_path / f"{i}.{name}" for i in range(3))
    write(source, DOCUMENTS[name])
    assert echo_file(source, new, str.swapcase, column="Text") == sentences
    assert echo_file(new, back, str.swapcase, column="Text") != sentences
    assert read(back) == read(source)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_damaged_document_is_one_error_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    source, output, randomness, errors = tmp_path / name, tmp_path / f"new.{name}", random.Random(name), list[str]()
    write(source, DOCUMENTS[name])
    whole = source.read_bytes()
    for _ in range(200):
        damaged = bytearray(whole)
        for at in randomness.choices(range(len(whole)), k=randomness.randint(1, 4)):
            damaged[at] = randomness.randrange(256)
        source.write_bytes(damaged[: randomness.choice([len(whole), randomness.randrange(len(whole))])])
        try:
            echo_file(source, output, column="2")
            output.unlink()
        except InputError as error:
            errors.append(str(error))
        assert list(tmp_path.iterdir()) == [source]
    assert len(errors) > 50
    assert all(re.fullmatch(f"(which column of )?{source}.+", error) for error in errors)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({DOCUMENT: "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>"}, "a document type is not"),
        ({DOCUMENT: root("<w:p>" * 1500 + "</w:p>" * 1500)}, f"{DOCUMENT} maximum recursion depth"),
        ({DOCUMENT: "<a>\n<b></a>"}, f"{DOCUMENT} line 2: mismatched tag"),
        ({DOCUMENT: "a" * 20_001}, "has 20,001 bytes of text, over 20,000"),
        ({"word/media/a.bin": "a" * 500_001}, "over 500,000 bytes unpacked"),
        ({f"{i}.xml": "" for i in range(11)}, "or 10 members"),
        ({"word/styles.xml": "<a/>"}, "it has no text of Word or PowerPoint"),
        ({"": "\0"}, "is not a zip file"),
        ({"": "\udcd0\udccf\x11\udce0"}, "it has a password, or the format of Office 97"),
    ],
)
@mock.patch.multiple(files, MAX_MEMBERS=10)
@mock.patch.multiple(documents, MAX_TEXT_BYTES=20_000)
def test_hostile_documents(tmp_path: Path, members: dict[str, str], message: str) -> None:
    source, output = tmp_path / "a.docx", tmp_path / "b.docx"
    write(source, members)
    with pytest.raises(InputError, match=message):
        echo_file(source, output)
    assert not output.exists()


def test_the_command_translates_documents(five_run: FiveRun, tmp_path: Path) -> None:
    source, output = tmp_path / "Text.TXT", tmp_path / "new.txt"
    source.write_bytes(five_run.source_file.read_bytes())
    common = ["translate", "-m", five_run.run, source]
    assert out_lines(run_nmt(*common, "-o", output)) == []
    assert output.read_bytes() == five_run.target_file.read_bytes()
    one_clear_error(run_nmt(*common, "-o", output, "--column", "a"), 2, "--column is for a .csv file")
    one_clear_error(run_nmt(*common[:3], tmp_path, "-o", tmp_path, "--bilingual"), 2, "--bilingual is for a document")
    one_clear_error(run_nmt(*common[:3], tmp_path, "-o", tmp_path), 2, "has no documents outside of")
    one_clear_error(run_nmt(*common), 2, "needs a file or a folder")
    one_clear_error(run_nmt(*common, "-o", output, "--json"), 2, "Text.TXT is a document: --json would have no effect")
    one_clear_error(run_nmt(*common, "-o", output, "--resume"), 2, "Text.TXT is a document")
    one_clear_error(run_nmt(*common, "-o", source), 2, "would be overwritten")
    one_clear_error(run_nmt(*common, "-o", tmp_path / "a.docx"), 2, "is not named as a .txt file")
    assert out_lines(run_nmt(*common[:3], "--format", "markdown", input=b"# **12**\n")) == ["# **12**"]


def test_a_folder_is_translated_but_for_bad_documents(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = tmp_path / "a" / "b" / "c.txt", tmp_path / "a" / "new" / "b" / "c.txt"
    old.parent.mkdir(parents=True)
    old.write_text("da")
    (tmp_path / "a" / "bad.csv").write_text("1,2")
    (tmp_path / "a" / "~$d.docx").write_text("of Word")
    for text in ("DA", "kept"):
        with pytest.raises(NmtError, match="1 of 2 documents could not be translated"):
            echo_file(tmp_path / "a", new.parents[1], resume=True)
        assert "; --column NAME" in caplog.text
        assert new.read_text() == text
        new.write_text("kept")


def test_a_resumed_folder_says_what_it_skips(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/c.txt", "a/b/d.txt"):
        (tmp_path / name).write_text("da")
    caplog.set_level("INFO")
    assert echo_file(tmp_path / "a", tmp_path / "new") == ["da", "da"]
    (tmp_path / "new" / "c.txt").unlink()
    assert echo_file(tmp_path / "a", tmp_path / "new", resume=True) == ["da"]
    assert caplog.messages[-1] == "1 of 2 documents had been translated before"


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its documents would be missing in the output."""
    (tmp_path / "a" / "closed").mkdir(parents=True)
    (tmp_path / "a" / "c.txt").write_text("da")
    scandir = os.scandir

    def scan(path: str) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(InputError, match=r"cannot read .*closed: Permission denied"):
        echo_file(tmp_path / "a", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_sentences_and_translations_are_written(translator: Translator, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{SOURCE[0]}\n\n12\n<{SOURCE[1]}")
    for new in (tmp_path / "a.tsv", tmp_path / "a.tmx"):
        documents.translate_file(translator, tmp_path / "a.txt", new, watch=lambda found, _: found, bilingual=True)
    first, second = (line.split("\t") for line in (tmp_path / "a.tsv").read_text().splitlines())
    assert first == [SOURCE[0], TARGET[0]]
    assert [segment.text for segment in ElementTree.parse(new).iter("seg")] == [*first, *second]
    assert 'srclang="zh"' in new.read_text()


def test_samples_and_messages_of_plain_text_are_those_of_its_lines(
    translator: Translator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["", SOURCE[0], "", "12", SOURCE[0], "我 昨天 " * 600]
    (tmp_path / "a.txt").write_text("\r\n".join(lines))
    options = translator.with_options(sample=True, beam=1, max_length_b=8)
    arguments: dict[str, Any] = {"watch": lambda found, _: found, "options": options}
    documents.translate_file(translator, tmp_path / "a.txt", tmp_path / "b.txt", **arguments)
    messages = [record.getMessage() for record in caplog.records]
    expected = [found.text for found in translator.translate_lines(lines[:5], options)]
    assert (tmp_path / "b.txt").read_text().split("\n")[:5] == expected
    assert [message for message in messages if message.startswith("line 6 has ")]
