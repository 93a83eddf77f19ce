"""XML formats: document types, encodings, and files of another format."""

from pathlib import Path

import pytest
from echo import echo_file, echoed

from nmt.documents.xml_strings import ANDROID

RESOURCES = "<resources><string name='a'>b</string></resources>"


@pytest.mark.parametrize("document_type", ["<!DOCTYPE resources>", '<!DOCTYPE a SYSTEM "file:///etc/passwd?b>c">'])
def test_a_document_type_without_declarations_is_copied(document_type: str) -> None:
    written = echoed(document_type + RESOURCES, ANDROID)
    expected = RESOURCES.replace(">b<", ">B<")
    assert written == document_type + expected


def test_a_file_in_utf_16_stays_in_utf_16(tmp_path: Path) -> None:
    source, output = tmp_path / "a.xml", tmp_path / "new.xml"
    text = f'<?xml version="1.0" encoding="UTF-16"?>{RESOURCES}'
    source.write_text(text, encoding="utf-16")
    echo_file(source, output, str.upper)
    result = output.read_text(encoding="utf-16")
    assert result == text.replace(">b<", ">B<")


# Damaged files, and what is said about them.
BAD = {
    "<!DOCTYPE a [<!ENTITY b 'c'>]><resources/>": "a document type is not allowed to contain declarations",
    "<!DOCTYPE a SYSTEM 'b'><resources>\n&c;</resources>": "line 2: the entity &c; is unknown",
    "<project/>": "it is no file of strings of Android: <resources>",
    "const a = 1;": "line 1: syntax error",
}


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=BAD[text]):
        ANDROID.parse(text)
