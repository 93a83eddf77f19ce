"""Marks of the direction in documents that are translated into or from a language that runs from right to left."""

from pathlib import Path

import pytest
from conftest import rows_of
from echo import echo_file
from test_document_files import DOCUMENT, contents, zip_file
from test_ooxml import p, r, root

from nmt.documents.direction import is_right_to_left, redirected_html, redirected_odf, redirected_word

PROPERTIES = '<w:pPr><w:pStyle w:val="a"/>{}<w:jc w:val="both"/></w:pPr>'
FORMAT = '<w:rPr><w:b/>{}<w:lang w:val="he"/></w:rPr>'
BIDI, RTL = "<w:bidi/>", "<w:rtl/>"
NEW_RTL = f"<w:rPr>{RTL}</w:rPr>"


def redirected(content: str, direction: str) -> str:
    """The content of a Word document in another direction."""
    before, after = root("|").split("|")
    return redirected_word(root(content), direction).removeprefix(before).removesuffix(after)


def test_only_what_runs_from_right_to_left_is_marked() -> None:
    latin = p(r("PDF"))
    plain = p(r("ספר", FORMAT.format("")) + r("PDF") + r("אדום"))
    content = r("ספר", FORMAT.format(RTL)) + r("PDF") + r("אדום", NEW_RTL)
    expected = f"<w:p><w:pPr>{BIDI}</w:pPr>{content}</w:p>{latin}"
    assert redirected(plain + latin, "rtl") == expected
    assert redirected(expected, "rtl") == expected


def test_a_mark_has_its_place_among_the_properties() -> None:
    plain = p(PROPERTIES.format("") + r("دفتر", FORMAT.format("")))
    marked = p(PROPERTIES.format(BIDI) + r("دفتر", FORMAT.format(RTL)))
    assert redirected(plain, "rtl") == marked


@pytest.mark.parametrize(("bidi", "rtl"), [(BIDI, RTL), ('<w:bidi w:val="1"/>', '<w:rtl w:val="true" />')])
def test_old_marks_are_removed(bidi: str, rtl: str) -> None:
    marked = p(PROPERTIES.format(bidi) + r("book", FORMAT.format(rtl)))
    plain = p(PROPERTIES.format("") + r("book", FORMAT.format("")))
    assert redirected(marked, "ltr") == plain


def test_a_paragraph_with_a_latin_name_has_the_direction_of_its_document() -> None:
    assert BIDI in redirected(p(r("ספר Microsoft")), "rtl")
    assert redirected(p(r("ספר Microsoft")), "ltr") == p(r("ספר Microsoft"))


def test_marks_have_the_prefix_of_the_document() -> None:
    word = root(p(r("ספר"))).replace("w:", "ns0:").replace(":w=", ":ns0=")
    assert "<ns0:p><ns0:pPr><ns0:bidi/></ns0:pPr><ns0:r><ns0:rPr><ns0:rtl/></ns0:rPr><ns0:t" in redirected_word(
        word, "rtl"
    )


def test_texts_of_drawings_stay() -> None:
    text = "<a:p><a:r><a:t>ספר</a:t></a:r></a:p>"
    assert redirected_word(text, "rtl") == text
    assert redirected(text, "rtl") == text


def test_pages_of_opendocument_get_the_direction() -> None:
    styles = '<a style:writing-mode="lr-tb"/><b style:writing-mode="page"/>'
    expected = '<a style:writing-mode="rl-tb"/><b style:writing-mode="page"/>'
    assert redirected_odf(styles, "rtl") == expected
    assert redirected_odf(expected, "ltr") == styles


# HTML before and after its direction is set.
PAGES = """
<html lang='a' dir=ltr><p dir=ltr>
<html lang='a' dir="rtl"><p dir="rtl">

<HTML><body dir="ltr">
<HTML dir="rtl"><body dir="rtl">

<html class='a>b'><code dir="ltr"><p dir=auto>
<html class='a>b' dir="rtl"><code dir="ltr"><p dir=auto>

<p>a</p>
<p>a</p>
"""


@pytest.mark.parametrize("case", rows_of(PAGES, "\n\n"))
def test_elements_of_html_get_the_direction(case: str) -> None:
    before, after = case.strip().split("\n")
    assert redirected_html(before, "rtl") == after


def test_vowel_signs_have_no_direction() -> None:
    assert is_right_to_left("ދިވެހިރާއްޖެ")


def in_hebrew(text: str) -> str:
    return text.translate({ord("a"): "א", ord("b"): "ב"})


def test_documents_get_the_direction_of_their_translation(tmp_path: Path) -> None:
    page, new_page = tmp_path / "a.html", tmp_path / "b.html"
    page.write_text("<html><p>ab</p></html>")
    echo_file(page, new_page, in_hebrew)
    assert new_page.read_text() == '<html dir="rtl"><p>אב</p></html>'
    echo_file(page, new_page, str.swapcase)
    assert new_page.read_text() == "<html><p>AB</p></html>"

    letter, new_letter = zip_file(tmp_path / "a.docx", {DOCUMENT: root(p(r("ab")))}), tmp_path / "b.docx"
    echo_file(letter, new_letter, in_hebrew)
    assert root(f"<w:p><w:pPr>{BIDI}</w:pPr>{r('אב', NEW_RTL)}</w:p>").encode() in contents(new_letter)
