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
from conftest import SOURCE, TARGET, FiveRun, out_lines, run_nmt
from echo import Echo, echo_file
from reliability.runs import damaged
from test_odf import root as odf_root
from test_ooxml import A, p, root

from nmt.documents import ZIPPED, files
from nmt.errors import InputError, NmtError
from nmt.translate import documents
from nmt.translate.translator import Translator

SLIDE = f'<p:sld xmlns:p="x" xmlns:a="{A}"><a:p><a:r><a:t>{{}}</a:t></a:r></a:p></p:sld>'
DOCUMENT = "word/document.xml"
X = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
TEXTS = {
    "a.txt": "\ufeffEin Hund rennt. Er bellt.\r\n\r\n  12\nda\n",
    "a.md": "# Titel\n\nein *Hund*\n",
    "a.html": "<html><head><title>Hund</title></head>\n<p>der <b>rote</b> Hund</html>\n",
    "a.srt": "1\r\n00:00:01,000 --> 00:00:02,500\r\n- Ein Hund?\r\n- Ja.\r\n",
    "a.vtt": "WEBVTT\n\nNOTE Notiz\n\n00:01.000 --> 00:02.500 align:start\nEin <i>Hund</i>\nbellt\n",
    "a.json": '{"Titel": "Hund",\n "b": ["da", 1, "\\u0031"], "c": {"d": "ein \\"Wort\\""}, "e": "ein Tag | Tage"}',
    "a.csv": 'Nr,Text\r\n1,"Ein ""Hund"", rot"\r\n\r\n2,"da\n"\r\n',
    "a.xlf": '<xliff version="1.2"><trans-unit id="1"><source>Ein <g>Hund</g></source></trans-unit></xliff>',
    "a.arb": '{"@@locale": "de", "a": "ein Hund", "@a": {"type": "text"}}',
    "a.ftl": "# Kommentar\na = ein { $n } Hund\n    .title = da\n",
    "a.properties": "# Kommentar\na.b = ein Hünd\n",
    "a.strings": '/* da */\n"a" = "ein Hund";\n',
    "a.tsv": "Nr\tText\n1\tda\n",
    "a.po": '# Kommentar\nmsgid "Ein Hund"\nmsgstr ""\n',
}
ARCHIVES = {  # by name, their members
    "a.docx": {
        "word/styles.xml": root(p("[Stil]")),
        DOCUMENT: root(p("[der ][*rote][ Hund]")),
        "word/header2.xml": root(p("[Kopf]")),
        "word/footnotes.xml": root(p("[Ende]")),
        "word/media/image1.png": "PNG",
    },
    "b.docx": {"word/document22.xml": root(p("[da]"))},  # as Word Online names it
    "a.pptx": {
        "ppt/slides/slide12.xml": SLIDE.format("Titel"),
        "ppt/notesSlides/notesSlide1.xml": SLIDE.format("Notiz"),
    },
}
ARCHIVES |= {
    "a.odt": {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": odf_root("<text:p>ein Hund</text:p>"),
        "styles.xml": odf_root("<text:p>Kopf</text:p>"),
        "Object 1/content.xml": odf_root("<text:p>Zeile</text:p>"),
        "meta.xml": "<title>Titel</title>",
    },
    "a.xlsx": {
        "xl/workbook.xml": '<sheet name="Blatt"/>',
        "xl/sharedStrings.xml": f"<sst {X}><si><t>Hund</t></si><si><t>Summe</t></si></sst>",
        "xl/worksheets/sheet1.xml": f'<c {X} t="str"><v>Katze</v></c>',
        "xl/worksheets/sheet2.xml": "no XML, but without strings",
        "xl/tables/table1.xml": '<tableColumn name="Summe"/>',
    },
    "a.epub": {
        "mimetype": "application/epub+zip",
        "OEBPS/a.xhtml": "<html><body><p>ein <i>Hund</i></p></body></html>",
        "OEBPS/b.xml": "<html><body><p>zwei</p></body></html>",
        "OEBPS/toc.ncx": "<ncx><text>Kapitel</text></ncx>",
        "OEBPS/book.opf": "<title>Titel</title>",
    },
}
SENTENCES = {
    "a.txt": ["Ein Hund rennt.", "Er bellt.", "da"],
    "a.md": ["Titel", "ein Hund"],
    "a.html": ["Hund", "der rote Hund"],
    "a.srt": ["Ein Hund?", "Ja."],
    "a.vtt": ["Ein Hund bellt"],
    "a.json": ["Hund", "da", 'ein "Wort"', "ein Tag", "Tage"],
    "a.csv": ['Ein "Hund", rot', "da"],
    "a.arb": ["ein Hund"],
    "a.ftl": ["ein {} Hund", "da"],
    "a.properties": ["ein Hünd"],
    "a.strings": ["ein Hund"],
    "a.tsv": ["da"],
    "a.docx": ["der rote Hund", "Kopf", "Ende"],
    "b.docx": ["da"],
    "a.pptx": ["Titel", "Notiz"],
    "a.odt": ["ein Hund", "Kopf", "Zeile"],
    "a.xlsx": ["Hund", "Katze"],
    "a.epub": ["ein Hund", "zwei", "Kapitel"],
}


DATE = (2020, 2, 2, 2, 2, 2)


def zip_file(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            info = zipfile.ZipInfo(name, DATE)
            archive.writestr(info, text, zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED)
    return path


def sample(path: Path, name: str) -> Path:
    """Write one of the documents above."""
    if name in ARCHIVES:
        return zip_file(path, ARCHIVES[name])
    path.write_bytes(TEXTS[name].encode())
    return path


def contents(path: Path) -> list[object]:
    """The members of a document, with name, time, compression and content."""
    if path.suffix not in ZIPPED:
        return [path.read_bytes()]
    members: list[object] = []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            members += [info.filename, info.date_time, info.compress_type, archive.read(info)]
    return members


@pytest.mark.parametrize("name", SENTENCES)
def test_texts_are_translated_and_all_else_stays(tmp_path: Path, name: str) -> None:
    source = sample(tmp_path / name, name)
    new, back = tmp_path / f"new.{name}", tmp_path / f"back.{name}"
    sentences = echo_file(source, new, str.swapcase, column="Text")
    assert sentences == SENTENCES[name]
    assert contents(new) != contents(source)
    echo_file(new, back, str.swapcase, column="Text")
    assert contents(back) == contents(source)


# Hardly any text is no property file.
@pytest.mark.parametrize("name", sorted({*TEXTS, *ARCHIVES} - {"a.properties"}))
def test_a_damaged_document_is_one_error_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    source, output = sample(tmp_path / name, name), tmp_path / f"new.{name}"
    whole = source.read_bytes()
    randomness = random.Random(name)
    errors = []
    for _ in range(200):
        source.write_bytes(damaged(whole, randomness))
        try:
            echo_file(source, output, column="Text")
            output.unlink()
        except InputError as error:
            errors.append(str(error))
        assert list(tmp_path.iterdir()) == [source]
    assert len(errors) > 20
    for message in errors:
        assert re.fullmatch(f"(which column of )?{source}.+", message)


@mock.patch.multiple(documents, MAX_TEXT_BYTES=20_000)
def refusal(path: Path) -> str:
    """The message of the error of translating a document, which writes nothing."""
    output = path.with_stem("new")
    with pytest.raises(InputError) as caught:
        echo_file(path, output)
    assert not output.exists()
    return str(caught.value)


DEEP = root("<w:r>" * 1500 + "</w:r>" * 1500)
NESTED = root("<w:p>" * 4 + "</w:p>" * 4)
HOSTILE = {
    "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>": "a document type is not",
    DEEP: f"{DOCUMENT} line 2 is nested over 100 deep",
    NESTED: f"{DOCUMENT} over 3 paragraphs are inside of each other",
    "<a>\n<b></a>": f"{DOCUMENT} line 2: mismatched tag",
    "a" * 20_001: "has 20,001 bytes of text, over 20,000",
}


@pytest.mark.parametrize("text", HOSTILE, ids=list(HOSTILE.values()))
def test_a_hostile_member_is_refused(tmp_path: Path, text: str) -> None:
    path = zip_file(tmp_path / "a.docx", {DOCUMENT: text})
    assert HOSTILE[text] in refusal(path)


def test_a_text_with_deep_nesting_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ftl"
    path.write_text("a = " + "{" * 5000)
    assert refusal(path).endswith("is damaged: nested too deeply")


def test_a_file_that_is_large_unpacked_is_refused(tmp_path: Path) -> None:
    path = zip_file(tmp_path / "a.docx", {"word/media/a.bin": "a" * 500_001})
    assert "over 500,000 bytes unpacked" in refusal(path)


@mock.patch.multiple(files, MAX_MEMBERS=10)
def test_a_file_of_many_members_is_refused(tmp_path: Path) -> None:
    members = {f"{i}.xml": "" for i in range(11)}
    path = zip_file(tmp_path / "a.docx", members)
    assert "or 10 members" in refusal(path)


def test_a_file_without_text_is_refused(tmp_path: Path) -> None:
    path = zip_file(tmp_path / "a.docx", {"word/styles.xml": "<a/>"})
    assert "it has no member with text" in refusal(path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    path.write_bytes(b"\0")
    assert "is not a zip file" in refusal(path)


def test_the_format_of_office_97_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    path.write_bytes(b"\xd0\xcf\x11\xe0")  # also that of a document with a password
    assert "it has a password, or the format of Office 97" in refusal(path)


ENCRYPTED = {
    "a.odt": {"META-INF/manifest.xml": "<manifest:file-entry><manifest:encryption-data/></manifest:file-entry>"},
    "a.epub": {
        "META-INF/encryption.xml": '<EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/>'
    },
}


@pytest.mark.parametrize("name", ENCRYPTED)
def test_an_encrypted_document_is_refused(tmp_path: Path, name: str) -> None:
    path = zip_file(tmp_path / name, ARCHIVES[name] | ENCRYPTED[name])
    assert "it is encrypted" in refusal(path)


def test_a_book_with_encrypted_fonts_is_translated(tmp_path: Path) -> None:
    fonts = {"META-INF/encryption.xml": '<EncryptionMethod Algorithm="http://www.idpf.org/2008/embedding"/>'}
    path = zip_file(tmp_path / "a.epub", ARCHIVES["a.epub"] | fonts)
    result = echo_file(path, tmp_path / "b.epub")
    assert result == SENTENCES["a.epub"]


@pytest.mark.parametrize("name", ["a.docx", "a.txt", "a.json"])
def test_a_document_without_words_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("[12]")
    if name == "a.docx":
        zip_file(path, {DOCUMENT: root(p("[12]"))})
    assert "a.docx has no text to translate".replace("a.docx", name) in refusal(path)


def test_a_finished_file_of_messages_stays(tmp_path: Path) -> None:
    source, output = tmp_path / "a.po", tmp_path / "b.po"
    source.write_text('msgid "a"\nmsgstr "b"\n')
    assert echo_file(source, output) == []
    assert output.read_text() == source.read_text()


def test_the_number_of_texts_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    echo_file(folder_of(tmp_path, "a.txt") / "a.txt", tmp_path / "b.txt")
    assert caplog.messages == [f"{tmp_path / 'a.txt'}: texts translated: 1"]


# --- plain text and encodings -----------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["\t", "  ", "   ", "\f", "\r", "\r\n", "\u3000"])
def test_columns_of_plain_text_are_separate(tmp_path: Path, space: str) -> None:
    source, output = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_bytes(f"{space}ein Hund{space}da".encode())
    assert echo_file(source, output) == ["ein Hund", "da"]
    result = output.read_bytes()
    assert result == f"{space}EIN HUND{space}DA".encode()


BYTES = {  # of a file before and after
    "a.properties": (b"a=da", rb"a=DA\u00e9\u6211\ud83d\ude00"),
    "latin.properties": (b"a=\xe4", b"a=\xc4\xe9" + rb"\u6211\ud83d\ude00"),
    "utf8.properties": ("a=ä".encode(), "a=Äé我😀".encode()),
    "a.strings": ('\ufeff"a" = "da";'.encode("utf-16-le"), '\ufeff"a" = "DAé我😀";'.encode("utf-16-le")),
    "a.html": (b'<?xml encoding="latin1"?>da', b'<?xml encoding="latin1"?>DA&#233;&#25105;&#128512;'),
    "ä.html": ('<meta charset="latin1">ä'.encode(), b'<meta charset="latin1">&#196;&#233;&#25105;&#128512;'),
    "bom.html": ('\ufeff<meta charset="latin1">ä'.encode(), '\ufeff<meta charset="latin1">Äé我😀'.encode()),
    "utf8.html": (b'<meta charset="utf-8">da', '<meta charset="utf-8">DAé我😀'.encode()),
    "a.txt": ("\ufeffda\r\n".encode("utf-16-be"), "\ufeffDAé我😀\r\n".encode("utf-16-be")),
}


@pytest.mark.parametrize("name", BYTES)
def test_a_file_keeps_its_encoding(tmp_path: Path, name: str) -> None:
    source, output = tmp_path / name, tmp_path / f"new.{name}"
    before, after = BYTES[name]
    source.write_bytes(before)
    echo_file(source, output, lambda text: text.upper() + "é我😀")
    assert output.read_bytes() == after


def test_a_column_is_filled(tmp_path: Path) -> None:
    source, output = tmp_path / "a.tsv", tmp_path / "b.tsv"
    source.write_text("de\ten\nda\t\n")
    echo_file(source, output, column="de", into="en")
    assert output.read_text() == "de\ten\nda\tDA\n"


# --- the command ------------------------------------------------------------------------------------------


def test_the_command_translates_documents(five_run: FiveRun, tmp_path: Path) -> None:
    source, output = tmp_path / "Text.TXT", tmp_path / "new.txt"
    source.write_bytes(five_run.source_file.read_bytes())
    done = run_nmt("translate", "-m", five_run.run, source, "-o", output)
    assert out_lines(done) == []
    assert output.read_bytes() == five_run.target_file.read_bytes()


def test_a_place_that_is_not_for_the_translation_is_refused(tmp_path: Path) -> None:
    """tests/cli/test_source.py has the options that do not go with documents."""
    source = folder_of(tmp_path, "a.txt") / "a.txt"
    with pytest.raises(InputError, match=r"is not named as a \.txt file"):
        echo_file(source, tmp_path / "a.docx")
    with pytest.raises(InputError, match="is a folder") as caught:
        echo_file(source, tmp_path)
    assert caught.value.hint == f"-o {tmp_path}/NEW.txt"
    with pytest.raises(InputError, match="would be overwritten"):
        echo_file(source, source)
    with pytest.raises(InputError, match="has no documents outside of"):
        echo_file(tmp_path, tmp_path)


def test_the_command_translates_lines_of_markdown(five_run: FiveRun) -> None:
    done = run_nmt("translate", "-m", five_run.run, "--format", "markdown", input=b"# **12**\n")
    assert out_lines(done) == ["# **12**"]


# --- folders ----------------------------------------------------------------------------------------------


def folder_of(path: Path, *names: str) -> Path:
    """Make a folder with documents."""
    for name in names:
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("da")
    return path


def test_a_folder_is_translated_but_for_bad_documents(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = folder_of(tmp_path / "a", "b/c.txt", "bad.csv", "~$d.docx")  # the last is Word's mark of an open file
    output = source / "new"
    with pytest.raises(NmtError, match="1 of 2 documents could not be translated"):
        echo_file(source, output)
    assert "; --column NAME" in caplog.text
    assert (output / "b" / "c.txt").read_text() == "DA"


def test_in_a_folder_files_that_only_have_the_suffix_of_a_document_are_left_out(tmp_path: Path) -> None:
    source, output = folder_of(tmp_path / "a", "code.ts", "layout.xml"), tmp_path / "new"
    (source / "strings.xml").write_text("<resources><string>da</string></resources>")
    (source / "code.ts").write_text("function f<TState>() {}")
    assert echo_file(source, output) == ["da"]
    assert [path.name for path in output.iterdir()] == ["strings.xml"]


def test_with_resume_newer_translations_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    source, output = folder_of(tmp_path / "a", "c.txt", "b/d.txt"), tmp_path / "new"
    echo_file(source, output)
    first, second = output / "c.txt", output / "b/d.txt"
    first.unlink()
    second.write_text("kept")
    assert echo_file(source, output, resume=True) == ["da"]
    assert second.read_text() == "kept"
    assert caplog.messages[-1] == "1 of 2 documents had been translated before"


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its documents would be missing in the output."""
    source, output = folder_of(tmp_path / "a", "c.txt", "closed/d.txt"), tmp_path / "new"
    scandir = os.scandir

    def scan(path: str) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(InputError, match=r"cannot read .*closed: Permission denied"):
        echo_file(source, output)
    assert not output.exists()


# --- sentences --------------------------------------------------------------------------------------------


def unwatched(translations: Any, _: object) -> Any:
    return translations


def translate(translator: Translator, text: str, output: Path, **arguments: Any) -> str:
    """Translate a text file, and return what is written."""
    source = output.with_name("source.txt")
    source.write_text(text)
    documents.translate_file(translator, source, output, watch=unwatched, **arguments)
    return output.read_text()


def test_sentences_and_translations_are_written(translator: Translator, tmp_path: Path) -> None:
    columns = translate(translator, f"{SOURCE[0]}\n\n12\n", tmp_path / "a.tsv", bilingual=True)
    assert columns == f"{SOURCE[0]}\t{TARGET[0]}\n"


def test_a_translation_memory_is_written(translator: Translator, tmp_path: Path) -> None:
    source = f"<{SOURCE[1]}"
    memory = translate(translator, source, tmp_path / "a.tmx", bilingual=True)
    segments = ElementTree.fromstring(memory).iter("seg")
    expected = [source, *translator.translate([source])]
    assert [segment.text for segment in segments] == expected
    assert 'srclang="zh"' in memory


MARKED = [
    ("a.tsv", f"{TARGET[0]}\tconfidence "),
    ("a.tmx", f'<prop type="x-review">needs-review</prop><seg>{TARGET[0]}</seg>'),
]


@pytest.mark.parametrize(("name", "marked"), MARKED)
def test_doubtful_sentences_are_marked(name: str, marked: str, translator: Translator, tmp_path: Path) -> None:
    text = translate(translator, SOURCE[0], tmp_path / name, bilingual=True, min_confidence=1.0)
    assert marked in text


def test_a_translation_memory_is_translated_into_the_language_of_the_model(
    translator: Translator, tmp_path: Path
) -> None:
    source, output = tmp_path / "a.tmx", tmp_path / "new.tmx"
    source.write_text(f'<tmx><tu><tuv xml:lang="zh-CN"><seg>{SOURCE[0]}</seg></tuv></tu></tmx>')
    documents.translate_file(translator, source, output, watch=unwatched)
    assert f'<tuv xml:lang="en" creationid="nmt"><seg>{TARGET[0]}</seg></tuv>' in output.read_text()


def test_a_translation_memory_needs_the_languages_of_the_model(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "languages_of", lambda _: ("zh", ""))
    source = tmp_path / "a.tmx"
    source.write_text("<tmx/>")
    with pytest.raises(InputError, match="the model does not name its languages"):
        documents.translate_file(translator, source, tmp_path / "new.tmx", watch=unwatched)


def test_samples_and_messages_of_plain_text_are_those_of_its_lines(
    translator: Translator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    too_long = "我 昨天 " * 600
    lines = ["", SOURCE[0], "", "12", SOURCE[0]]
    options = translator.with_options(sample=True, beam=1, max_length_b=8)
    written = translate(translator, "\n".join([*lines, too_long]), tmp_path / "b.txt", options=options)
    assert "line 6 has " in caplog.text
    translations = translator.translate_lines(lines, options)
    expected = [translation.text for translation in translations]
    assert written.split("\n")[:-1] == expected


@pytest.mark.parametrize("name", TEXTS)
def test_string_tables_protect_placeholders_without_an_option(name: str, tmp_path: Path) -> None:
    is_table = name not in ("a.txt", "a.md", "a.html", "a.srt", "a.vtt")
    source = sample(tmp_path / name, name)
    with mock.patch.object(Echo, "translate_lines", autospec=True, side_effect=Echo.translate_lines) as translate:
        echo_file(source, tmp_path / f"new{source.suffix}", column="Text")
    result = bool(translate.call_args.kwargs.get("options"))
    assert result == is_table
