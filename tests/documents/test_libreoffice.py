"""What LibreOffice writes is translated without a change of its structure, and LibreOffice reads the translation."""

import re
import shutil
import subprocess
import zipfile
from html import unescape
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from echo import echo_file

from nmt.documents.files import MEMBERS

TEXT = "<h1>Ein Mann</h1><p>Ein <b>Mann</b> mit <i>rotem Hut</i>.</p><ul><li>Zwei <a href='http://a.b'>Kinder</a></li></ul>"
PAGE = f"<html><body>{TEXT}<table><tr><td>Ein Kind</td><td>Eine Frau</td></tr></table></body></html>"
SCHEMA = "urn:oasis:names:tc:opendocument:xmlns"
NAMESPACES = f'xmlns:office="{SCHEMA}:office:1.0" xmlns:text="{SCHEMA}:text:1.0" xmlns:draw="{SCHEMA}:drawing:1.0"'
DECK = f"""<?xml version="1.0" encoding="UTF-8"?>
<office:document {NAMESPACES} office:version="1.2" office:mimetype="application/vnd.oasis.opendocument.presentation">
<office:body><office:presentation><draw:page><draw:frame><draw:text-box><text:p>Ein Mann</text:p>
<text:p>Ein Mann mit rotem Hut.</text:p></draw:text-box></draw:frame></draw:page></office:presentation></office:body>
</office:document>"""
TABLE = 'N,TEXT\n1,Ein Mann\n2,Ein Mann mit rotem Hut.\n3,"Zwei, ""Kinder"""\n'
FIRST = ["Ein Mann", "Ein Mann mit rotem Hut."]
OTHERS = ["Zwei Kinder", "Ein Kind", "Eine Frau"]
SPACE = {"{http://www.w3.org/XML/1998/namespace}space": "preserve"}
pytestmark = pytest.mark.skipif(not shutil.which("soffice"), reason="LibreOffice is not installed")


def converted(file: Path, kind: str, folder: Path) -> Path:
    profile = folder / "profile"
    command = [
        "soffice",
        f"-env:UserInstallation={profile.as_uri()}",
        "--headless",
        "--convert-to",
        kind,
        "--outdir",
        str(folder),
        str(file),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    suffix, _, _filter = kind.partition(":")
    return folder / f"{file.stem}.{suffix}"


def structure(file: Path) -> dict[str, object]:
    """The members of a file as bytes, those with paragraphs as their elements; `xml:space` may be added."""
    found: dict[str, object] = {}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            found[name] = archive.read(name)
            if MEMBERS.fullmatch(name):
                elements = ElementTree.fromstring(archive.read(name)).iter()
                found[name] = [(element.tag, element.attrib | SPACE) for element in elements]
    return found


def shown(file: Path, kind: str, folder: Path) -> list[str]:
    """The lines, paragraphs or cells that LibreOffice reads."""
    page = converted(file, kind, folder).read_text("utf-8-sig")
    _, _, text = page.rpartition("<office:body>")  # a text file has no head
    paragraphs = re.findall("<text:p.*?</text:p>", text) or text.split("\n")
    texts = [re.sub("<[^>]*>", "", paragraph) for paragraph in paragraphs]
    return list(map(unescape, texts))


CONTENTS = {"page.html": PAGE, "deck.fodp": DECK, "table.csv": TABLE}


class Case(NamedTuple):
    name: str
    kind: str  # of the document that LibreOffice makes of it
    flat: str  # kind of a file that shows what is in this document
    others: list[str]  # sentences after `FIRST`
    before: tuple[str, ...] = ()  # sentences before `FIRST`


CASES = [
    Case("page.html", "docx:MS Word 2007 XML", "txt:Text", OTHERS),
    Case("page.html", "html", "txt:Text", OTHERS),
    Case("deck.fodp", "pptx", "fodp", []),
    Case("page.html", "odt:writer8", "txt:Text", OTHERS),
    Case("deck.fodp", "odp", "fodp", []),
    Case("table.csv", "ods", "fods", ['Zwei, "Kinder"'], ("Page 1", "N", "TEXT")),
    Case("table.csv", "xlsx", "fods", ['Zwei, "Kinder"'], ("N", "TEXT")),
    Case("table.csv", "csv", "fods", ['Zwei, "Kinder"']),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_text_is_translated_and_structure_stays(tmp_path: Path, case: Case) -> None:
    written = tmp_path / case.name
    written.write_text(CONTENTS[case.name], encoding="utf-8")
    file = converted(written, case.kind, tmp_path / "old")
    new = tmp_path / f"new{file.suffix}"
    column = "TEXT" if case.kind == "csv" else ""
    result = echo_file(file, new, column=column)
    assert result == [*case.before, *FIRST, *case.others]
    if zipfile.is_zipfile(file):
        assert structure(new) == structure(file)
    before = shown(file, case.flat, tmp_path / "before")
    after = shown(new, case.flat, tmp_path / "after")
    assert after != before
    assert after == list(map(str.upper, before))
