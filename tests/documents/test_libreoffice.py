"""What LibreOffice writes is translated without a change of its structure, and LibreOffice reads the translation."""

import shutil
import subprocess
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from echo import echo_file

TEXT = "<h1>Ein Mann</h1><p>Ein <b>Mann</b> mit <i>rotem Hut</i>.</p><ul><li>Zwei <a href='http://a.b'>Kinder</a></li></ul>"
TABLE = "<table><tr><td>Ein Kind</td><td>Eine Frau</td></tr></table>"
SPACE = {"{http://www.w3.org/XML/1998/namespace}space": "preserve"}
pytestmark = pytest.mark.skipif(not shutil.which("soffice"), reason="LibreOffice is not installed")


def converted(file: Path, kind: str, folder: Path) -> Path:
    profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
    command = ["soffice", profile, "--headless", "--convert-to", kind, "--outdir", str(folder), str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder / f"{file.stem}.{kind.partition(':')[0]}"


def structure(file: Path) -> dict[str, object]:
    """The members of a Word file as bytes, that with the paragraphs as its elements; `xml:space` may be added."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    trees = {name: ElementTree.fromstring(text) for name, text in members.items() if name == "word/document.xml"}
    return members | {name: [(one.tag, one.attrib | SPACE) for one in tree.iter()] for name, tree in trees.items()}


@pytest.mark.parametrize("kind", ["docx:MS Word 2007 XML", "html"])
def test_text_is_translated_and_structure_stays(tmp_path: Path, kind: str) -> None:
    (tmp_path / "page.html").write_text(f"<html><body>{TEXT}{TABLE}</body></html>", encoding="utf-8")
    file = converted(tmp_path / "page.html", kind, tmp_path / "old")
    new = tmp_path / f"new{file.suffix}"
    assert echo_file(file, new) == ["Ein Mann", "Ein Mann mit rotem Hut.", "Zwei Kinder", "Ein Kind", "Eine Frau"]
    if file.suffix == ".docx":
        assert structure(file) == structure(new)
    before, after = (converted(one, "txt:Text", tmp_path / one.stem).read_text("utf-8-sig") for one in (file, new))
    assert after == before.upper() != before
