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
    """A run of Word."""
    return f'<w:r{attributes}>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def p(content: str) -> str:
    """A paragraph of Word. Brackets are around the text of a run; a star begins that of a bold one."""
    content = re.sub(r"\[\*(.*?)\]", r(r"\1", B), content)
    content = re.sub(r"\[(.*?)\]", r(r"\1"), content)
    return f"<w:p>{content}</w:p>"


def translated(content: str) -> str:
    text = echoed(echoed(root(content), BOXES), PARAGRAPHS)
    before, after = root("|").split("|")
    return text.removeprefix(before).removesuffix(after)


# A field: marks of its begin and end, in between an instruction and what it shows.
BEGIN = '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
SEPARATE = '<w:r><w:fldChar w:fldCharType="separate"/></w:r>'
END = '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
INSTRUCTION = "<w:r><w:instrText>PAGE</w:instrText></w:r>"
PAGE = f"{BEGIN}{INSTRUCTION}{SEPARATE}[3]{END}"
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
    "formats": p("[der ][*rote][ Hund]"),
    "style": p('<w:pPr><w:pStyle w:val="Title"/></w:pPr>[a]'),
    "note and image": p(f"[ein Hund]{NOTE}[ da.]{IMAGE}"),
    "tab and break": p(f"[Name:]{TAB}[*Hund]{BREAK}"),
    "link": p(f"[ein ]{LINK.format('[*Wort ][er]')}[ da]"),
    "field": p(f"[Seite ]{PAGE}[ da]"),
    "bookmark": p(f"[a b ]{MARK}[Hund]{MARK_END}"),
    "insertion and deletion": p(f"<w:ins>[neu]</w:ins>{DELETED}"),
    "no letters": p(f"[12,5]{TAB}"),
    "empty run": p("<w:r><w:t>12</w:t></w:r><w:r/>"),
    "text and box": p(f"[vorn]{BOX.format('[der Kasten ist lang]')}"),
    "table of contents": p(f"{BEGIN}[Titel]{TAB}{PAGE}") + p(f"[da]{END}"),
}


@pytest.mark.parametrize("name", PARAGRAPHS_OF_WORD)
def test_a_paragraph_keeps_all_but_its_words(name: str) -> None:
    content = PARAGRAPHS_OF_WORD[name]
    expected = re.sub("(?<=>)[^<]+(?=</w:t>)", lambda text: text[0].upper(), content)
    assert translated(content) == expected


def test_the_words_of_a_format_keep_it() -> None:
    result = translated(p("[*ein][ x &amp; y]"))
    assert result == p("[*EIN][ X &amp; Y]")


def test_the_format_of_most_characters_is_the_base() -> None:
    """Spaces between two formats are in it."""
    result = translated(p("[*eins][ x]"))
    assert result == p("[*EINS ][X]")


def test_formats_that_look_the_same_are_one() -> None:
    first = r("ein ", "", ' w:rsidR="1"')
    second = r("Hund", '<w:rPr><w:lang w:val="de"/></w:rPr>')
    expected = r("EIN HUND", "", ' w:rsidR="1"')
    result = translated(p(f"{first}<w:proofErr/>{second}"))
    assert result == p(expected)


def test_a_paragraph_of_powerpoint() -> None:
    run = '<a:r><a:rPr lang="de"/><a:t>{}</a:t></a:r>'
    dirty = run.replace("lang", 'dirty="0" lang').format("x")
    rest = "<a:br/><a:fld><a:t>3</a:t></a:fld><a:endParaRPr/></a:p>"
    source = f"<a:p><a:pPr/>{run.format('ein ')}{dirty}{rest}"
    result = translated(source)
    assert result == f"<a:p><a:pPr/>{run.format('EIN X')}{rest}"


RUNS = ["[ein ]", "[*Hund ]", "[ ]", "[* ]", "[a. B ]", "[*a. B ]", "[&amp; ]", "[7 ]", "[*7 ]"]
ITEMS = st.sampled_from([*RUNS, IMAGE, NOTE, TAB, BREAK, MARK, MARK_END, PAGE, "<w:r/>"])
IN_LINKS = st.lists(ITEMS, max_size=3).map("".join)
CONTENTS = st.lists(ITEMS | IN_LINKS.map(LINK.format)).map("".join)


def tags(text: str) -> Counter[str]:
    """How often there is each tag but those of runs and their format."""
    ElementTree.fromstring(text)  # it is well-formed
    return Counter(re.findall("<(?!/?w:(?:r|t|rPr|b)\\b)[^>]*>", text))


@given(CONTENTS, st.sampled_from(["", "x", "A < b & c. D e", "eins zwei drei vier fünf sechs"]))
def test_all_that_is_no_text_is_written_once_whatever_the_translation(content: str, translation: str) -> None:
    source = root(p(content))
    written = echoed(source, PARAGRAPHS, lambda _: translation)
    assert tags(written) == tags(source)
    page = PAGE.replace("[3]", r("3"))
    result = written.count(page)
    assert result == content.count(PAGE)


def test_a_paragraph_of_many_formats_takes_linear_time() -> None:
    content = ""
    for n in range(6000):
        content += r(f"{n} a", f'<w:rPr><w:sz w:val="{n}"/></w:rPr>')
    source = root(p(content))
    (segment,) = [part for part in PARAGRAPHS.parse(source) if isinstance(part, Segment)]
    start_s = time.process_time()
    assert content in segment.finish(content)
    assert time.process_time() - start_s < 0.5
