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
ITALIC = "<w:rPr><w:i/></w:rPr>"


def root(content: str) -> str:
    return f'<?xml version="1.0"?>\n<w:document xmlns:w="w" xmlns:a="{A}">{content}</w:document>'


def r(text: str, properties: str = "", attributes: str = "") -> str:
    """A run of Word."""
    return f'<w:r{attributes}>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def translated(content: str) -> str:
    text = echoed(echoed(root(content), BOXES), PARAGRAPHS)
    before, after = root("|").split("|")
    return text.removeprefix(before).removesuffix(after)


# A field: marks of its begin and end, in between an instruction and what it shows.
BEGIN, SEPARATE, END = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end"))
PAGE = f"{BEGIN}<w:r><w:instrText>PAGE</w:instrText></w:r>{SEPARATE}{r('3')}{END}"
IMAGE = '<w:r><w:drawing><a:blip r="x"/></w:drawing></w:r>'
NOTE = '<w:r><w:footnoteReference w:id="1"/></w:r>'
TAB = "<w:r><w:tab/></w:r>"
BREAK = "<w:r><w:br/></w:r>"
MARK = '<w:bookmarkStart w:id="1"/>'
MARK_END = '<w:bookmarkEnd w:id="1"/>'
LINK = '<w:hyperlink w:anchor="x">{}</w:hyperlink>'
BOX = "<w:r><w:pict><w:txbxContent><w:p>{}</w:p></w:txbxContent></w:pict></w:r>"
# Tracked changes.
DELETED = "<w:del><w:r><w:delText>alt</w:delText></w:r></w:del>"

PARAGRAPHS_OF_WORD = {
    "formats": f"{r('der ')}{r('rote', B)}{r(' Hund')}",
    "style": f'<w:pPr><w:pStyle w:val="Title"/></w:pPr>{r("a")}',
    "note and image": f"{r('ein Hund')}{NOTE}{r(' da.')}{IMAGE}",
    "tab and break": f"{r('Name:')}{TAB}{r('Hund', B)}{BREAK}",
    "link": f"{r('ein ')}{LINK.format(r('Wort ', B) + r('er', ITALIC))}{r(' da')}",
    "field": f"{r('Seite ')}{PAGE}{r(' da')}",
    "bookmark": f"{r('a b ')}{MARK}{r('Hund')}{MARK_END}",
    "insertion and deletion": f"<w:ins>{r('neu')}</w:ins>{DELETED}",
    "no letters": f"{r('12,5')}{TAB}",
    "empty run": "<w:r><w:t>12</w:t></w:r><w:r/>",
    "text and box": f"{r('vorn')}{BOX.format(r('der Kasten ist lang'))}",
    "box": BOX.format(r("der Kasten")),
    "table of contents": f"{BEGIN}{r('Titel')}{TAB}{PAGE}</w:p><w:p>{r('da')}{END}",
}


@pytest.mark.parametrize("name", PARAGRAPHS_OF_WORD)
def test_a_paragraph_keeps_all_but_its_words(name: str) -> None:
    content = f"<w:p>{PARAGRAPHS_OF_WORD[name]}</w:p>"
    expected = re.sub("(?<=>)[^<]+(?=</w:t>)", lambda text: text[0].upper(), content)
    assert translated(content) == expected


def test_the_words_of_a_format_keep_it() -> None:
    assert translated(f"<w:p>{r('ein', B)}{r(' x &amp; y')}</w:p>") == f"<w:p>{r('EIN', B)}{r(' X &amp; Y')}</w:p>"


def test_the_format_of_most_characters_is_the_base() -> None:
    """Spaces between two formats are in it."""
    assert translated(f"<w:p>{r('eins', B)}{r(' x')}</w:p>") == f"<w:p>{r('EINS ', B)}{r('X')}</w:p>"


def test_formats_that_look_the_same_are_one() -> None:
    first, second = r("ein ", "", ' w:rsidR="1"'), r("Hund", '<w:rPr><w:lang w:val="de"/></w:rPr>')
    expected = r("EIN HUND", "", ' w:rsidR="1"')
    assert translated(f"<w:p>{first}<w:proofErr/>{second}</w:p>") == f"<w:p>{expected}</w:p>"


def test_a_paragraph_of_powerpoint() -> None:
    run = '<a:r><a:rPr lang="de"/><a:t>{}</a:t></a:r>'
    dirty = run.replace("lang", 'dirty="0" lang').format("x")
    rest = "<a:br/><a:fld><a:t>3</a:t></a:fld><a:endParaRPr/></a:p>"
    source = f"<a:p><a:pPr/>{run.format('ein ')}{dirty}{rest}"
    assert translated(source) == f"<a:p><a:pPr/>{run.format('EIN X')}{rest}"


RUNS = st.builds(r, st.sampled_from(["ein ", "Hund ", " ", "a. B ", "&amp; ", "7 "]), st.sampled_from(["", B]))
ITEMS = RUNS | st.sampled_from([IMAGE, NOTE, TAB, BREAK, MARK, MARK_END, PAGE, "<w:r/>"])
LINKS = st.lists(ITEMS, max_size=3).map("".join).map(LINK.format)
CONTENTS = st.lists(ITEMS | LINKS, max_size=7).map("".join)


def tags(text: str) -> Counter[str]:
    """How often there is each tag but those of runs and their format."""
    ElementTree.fromstring(text)  # it is well-formed
    return Counter(re.findall("<(?!/?w:(?:r|t|rPr|b)\\b)[^>]*>", text))


@given(CONTENTS, st.sampled_from(["", "x", "A < b & c. D e", "eins zwei drei vier fünf sechs"]))
def test_all_that_is_no_text_is_written_once_whatever_the_translation(content: str, translation: str) -> None:
    source = root(f"<w:p>{content}</w:p>")
    written = echoed(source, PARAGRAPHS, lambda _: translation)
    assert tags(written) == tags(source)
    assert written.count(PAGE) == source.count(PAGE)


def test_a_paragraph_of_many_formats_takes_linear_time() -> None:
    content = "".join(r(f"{n} a", f'<w:rPr><w:sz w:val="{n}"/></w:rPr>') for n in range(6000))
    parts = PARAGRAPHS.parse(root(f"<w:p>{content}</w:p>"))
    (segment,) = [part for part in parts if isinstance(part, Segment)]
    start_s = time.process_time()
    assert content in segment.finish(content)
    assert time.process_time() - start_s < 0.5
