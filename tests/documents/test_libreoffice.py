"""What LibreOffice writes is translated without a change of its structure, and LibreOffice reads the translation."""

import re
import shutil
import subprocess
import zipfile
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from echo import echo_file

from nmt.documents.files import MEMBERS

TEXT = "<h1>Ein Mann</h1><p>Ein <b>Mann</b> mit <i>rotem Hut</i>.</p><ul><li>Zwei <a href='http://a.b'>Kinder</a></li></ul>"
TABLE = "<table><tr><td>Ein Kind</td><td>Eine Frau</td></tr></table>"
PAGE = f"<html><body>{TEXT}{TABLE}</body></html>"
NAMES = " ".join(f'xmlns:{x}="urn:oasis:names:tc:opendocument:xmlns:{x}:1.0"' for x in ("office", "text"))
NAMES += ' xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"'
DECK = f"""<?xml version="1.0" encoding="UTF-8"?>
<office:document {NAMES} office:version="1.2" office:mimetype="application/vnd.oasis.opendocument.presentation">
<office:body><office:presentation><draw:page><draw:frame><draw:text-box><text:p>Ein Mann</text:p>
<text:p>Ein Mann mit rotem Hut.</text:p></draw:text-box></draw:frame></draw:page></office:presentation></office:body>
</office:document>"""
SPACE = {"{http://www.w3.org/XML/1998/namespace}space": "preserve"}
pytestmark = pytest.mark.skipif(not shutil.which("soffice"), reason="LibreOffice is not installed")


def converted(file: Path, kind: str, folder: Path) -> Path:
    profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
    command = ["soffice", profile, "--headless", "--convert-to", kind, "--outdir", str(folder), str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder / f"{file.stem}.{kind.partition(':')[0]}"


def structure(file: Path) -> dict[str, object]:
    """The members of a file as bytes, those with paragraphs as their elements; `xml:space` may be added."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    trees = {name: ElementTree.fromstring(text) for name, text in members.items() if MEMBERS.fullmatch(name)}
    return members | {name: [(one.tag, one.attrib | SPACE) for one in tree.iter()] for name, tree in trees.items()}


def shown(file: Path, kind: str, folder: Path) -> list[str]:
    """The lines, paragraphs or cells that LibreOffice reads."""
    text = converted(file, kind, folder).read_text("utf-8-sig").rpartition("<office:body>")[2]
    return [unescape(re.sub("<[^>]*>", "", one)) for one in re.findall("<text:p.*?</text:p>", text) or text.split("\n")]


@pytest.mark.parametrize(
    ("name", "content", "kind", "flat"),
    [
        ("page.html", PAGE, "docx:MS Word 2007 XML", "txt:Text"),
        ("page.html", PAGE, "html", "txt:Text"),
        ("deck.fodp", DECK, "pptx", "fodp"),
        ("table.csv", 'N,TEXT\n1,Ein Mann\n2,Ein Mann mit rotem Hut.\n3,"Zwei, ""Kinder"""\n', "csv", "fods"),
    ],
)
def test_text_is_translated_and_structure_stays(tmp_path: Path, name: str, content: str, kind: str, flat: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    file = converted(tmp_path / name, kind, tmp_path / "old")
    new = tmp_path / f"new{file.suffix}"
    sentences = echo_file(file, new, column="TEXT" if kind == "csv" else "")
    assert sentences[:2] == ["Ein Mann", "Ein Mann mit rotem Hut."]
    assert sentences[2:] == {"csv": ['Zwei, "Kinder"'], "pptx": []}.get(kind, ["Zwei Kinder", "Ein Kind", "Eine Frau"])
    if zipfile.is_zipfile(file):
        assert structure(file) == structure(new)
    before, after = (shown(one, flat, tmp_path / one.stem) for one in (file, new))
    assert after == [*map(str.upper, before)] != before
