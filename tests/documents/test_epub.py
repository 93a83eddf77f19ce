"""Books: pages of HTML, and labels of NCX."""

from echo import echoed

from nmt.documents.epub import EPUB
from nmt.documents.files import encoded


def test_a_page_is_translated() -> None:
    page = '<?xml version="1.0"?><html><head><title>a</title></head><body><p id="p">ein <b>Hund</b></p></body></html>'
    result = echoed(page, EPUB)
    assert result == page.replace(">a<", ">A<").replace("ein", "EIN").replace("Hund", "HUND")


def test_a_page_that_names_another_encoding_gets_references() -> None:
    page = '<?xml version="1.0" encoding="latin1"?><p>{}</p>'
    assert encoded(page.format("ä"), "utf-8", ".epub") == page.format("&#228;").encode()


def test_the_labels_of_a_table_of_contents_are_translated() -> None:
    labels = "<docTitle><text>Das Buch</text></docTitle><navLabel><text>1. a &amp; b</text></navLabel>"
    ncx = f'<!DOCTYPE ncx PUBLIC "x" "y"><ncx xmlns="n"><head><meta content="x"/></head>{labels}<text/></ncx>'
    expected = ncx.replace("Das Buch", "DAS BUCH").replace("1. a &amp; b", "1. A &amp; B")
    assert echoed(ncx, EPUB) == expected
