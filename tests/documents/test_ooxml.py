"""Paragraphs of Word and PowerPoint: formats, and what is no text, keep their place."""

import re
import time
from collections import Counter
from xml.etree import ElementTree

import pytest
from echo import echoed
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.markup import Segment
from nmt.documents.ooxml import BOXES, PARAGRAPHS

A = "http://schemas.openxmlformats.org/drawingml/2006/main"
B = "<w:rPr><w:b/></w:rPr>"


def root(content: str) -> str:
    return f'<?xml version="1.0"?>\n<w:document xmlns:w="w" xmlns:a="{A}">{content}</w:document>'


def r(text: str, properties: str = "", attributes: str = "") -> str:
    return f'<w:r{attributes}>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def translated(content: str) -> str:
    text = echoed(echoed(root(content), BOXES), PARAGRAPHS)
    before, after = root("|").split("|")
    return text.removeprefix(before).removesuffix(after)


BEGIN, SEPARATE, END = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end"))
PAGE = f"{BEGIN}<w:r><w:instrText>PAGE</w:instrText></w:r>{SEPARATE}{r('3')}{END}"
IMAGE = '<w:r><w:drawing><a:blip r="x"/></w:drawing></w:r>'
NOTE = '<w:r><w:footnoteReference w:id="1"/></w:r>'
TAB, BREAK = "<w:r><w:tab/></w:r>", "<w:r><w:br/></w:r>"
BOOKMARK = '<w:bookmarkStart w:id="1"/>', '<w:bookmarkEnd w:id="1"/>'
LINK = '<w:hyperlink w:anchor="x">{}</w:hyperlink>'
BOX = "<w:r><w:pict><w:txbxContent><w:p>{}</w:p></w:txbxContent></w:pict></w:r>"
CHANGED = f"<w:ins>{r('neu')}</w:ins><w:del><w:r><w:delText>alt</w:delText></w:r></w:del>"
RSID, DIRTY = ' w:rsidR="1"', ' dirty="0"'
SHORT = r("ein ", "", RSID) + "<w:proofErr/>" + r("Hund", '<w:rPr><w:lang w:val="de"/></w:rPr>')
FIELD = "<a:fld><a:t>3</a:t></a:fld>"
A_RUN = '<a:r><a:rPr lang="de"{}/><a:t>{}</a:t></a:r>'


@pytest.mark.parametrize(
    "content",
    [
        r("der ") + r("rote", B) + r(" Hund"),
        '<w:pPr><w:pStyle w:val="Title"/></w:pPr>' + r("a"),
        r("ein Hund") + NOTE + r(" da.") + IMAGE,
        r("Name:") + TAB + r("Hund", B) + BREAK,
        r("ein ") + LINK.format(r("Wort ", B) + r("er", "<w:rPr><w:i/></w:rPr>")) + r(" da"),
        r("Seite ") + PAGE + r(" da"),
        r("a b ") + BOOKMARK[0] + r("Hund") + BOOKMARK[1],
        CHANGED,
        r("12,5") + TAB,
        "<w:r><w:t>12</w:t></w:r><w:r/>",
        r("vorn") + BOX.format(r("der Kasten ist lang")),
        BOX.format(r("der Kasten")),
        BEGIN + r("Titel") + TAB + PAGE + "</w:p><w:p>" + r("da") + END,  # a table of contents
    ],
)
def test_a_paragraph_keeps_all_but_its_words(content: str) -> None:
    expected = re.sub("(?<=>)[^<]+(?=</w:t>)", lambda text: text[0].upper(), content)
    assert translated(f"<w:p>{content}</w:p>") == f"<w:p>{expected}</w:p>"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"<w:p>{r('ein', B)}{r(' x &amp; y')}</w:p>", f"<w:p>{r('EIN', B)}{r(' X &amp; Y')}</w:p>"),
        (f"<w:p>{r('eins', B)}{r(' x')}</w:p>", f"<w:p>{r('EINS ', B)}{r('X')}</w:p>"),  # the base is bold
        (f"<w:p>{SHORT}</w:p>", f"<w:p>{r('EIN HUND', '', RSID)}</w:p>"),
        (
            f"<a:p><a:pPr/>{A_RUN.format('', 'ein ')}{A_RUN.format(DIRTY, 'x')}<a:br/>{FIELD}<a:endParaRPr/></a:p>",
            f"<a:p><a:pPr/>{A_RUN.format('', 'EIN X')}<a:br/>{FIELD}<a:endParaRPr/></a:p>",
        ),
    ],
)
def test_formats_that_look_the_same_are_one(content: str, expected: str) -> None:
    assert translated(content) == expected


RUNS = st.builds(r, st.sampled_from(["ein ", "Hund ", " ", "a. B ", "&amp; ", "7 "]), st.sampled_from(["", B]))
ITEMS = RUNS | st.sampled_from([IMAGE, NOTE, TAB, BREAK, *BOOKMARK, PAGE, "<w:r/>"])
CONTENTS = st.lists(ITEMS | st.builds(LINK.format, st.lists(ITEMS, max_size=3).map("".join)), max_size=7).map("".join)


def tags(text: str) -> Counter[str]:
    """How often there is each tag but those of runs and their format."""
    ElementTree.fromstring(text)  # it is well-formed
    return Counter(re.findall("<(?!/?w:(?:r|t|rPr|b)\\b)[^>]*>", text))


@given(CONTENTS, st.sampled_from(["", "x", "A < b & c. D e", "eins zwei drei vier fünf sechs"]))
def test_all_that_is_no_text_is_written_once_whatever_the_translation(content: str, translation: str) -> None:
    text = root(f"<w:p>{content}</w:p>")
    found = echoed(text, PARAGRAPHS, lambda _: translation)
    assert (tags(found), found.count(PAGE)) == (tags(text), text.count(PAGE))


def test_a_paragraph_of_many_formats_takes_linear_time() -> None:
    content = "".join(r(f"{n} a", f'<w:rPr><w:sz w:val="{n}"/></w:rPr>') for n in range(6000))
    (segment,) = [part for part in PARAGRAPHS.parse(root(f"<w:p>{content}</w:p>")) if isinstance(part, Segment)]
    start_s = time.process_time()
    assert content in segment.finish(content)
    assert time.process_time() - start_s < 0.5
