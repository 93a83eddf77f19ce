"""Paragraphs of Word and PowerPoint: formats, and what is no text, keep their place."""

import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from conftest import check_linear
from echo import Change, echoed
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.markup import Segment
from nmt.documents.ooxml import OOXML, workbook_formats

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
B = "<w:rPr><w:b/></w:rPr>"


def root(content: str) -> str:
    namespaces = f'xmlns:w="{W}" xmlns:a="{A}" xmlns:mc="mc" xmlns:c="c" xmlns:x="x"'
    return f'<?xml version="1.0"?>\n<w:document {namespaces}>{content}</w:document>'


def r(text: str, properties: str = "", attributes: str = "") -> str:
    """A run of Word."""
    return f'<w:r{attributes}>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def p(content: str) -> str:
    """A paragraph of Word. Brackets are around the text of a run; a star begins that of a bold one."""
    content = re.sub(r"\[\*(.*?)\]", r(r"\1", B), content)
    content = re.sub(r"\[(.*?)\]", r(r"\1"), content)
    return f"<w:p>{content}</w:p>"


def translated(content: str, change: Change = str.upper) -> str:
    text = root(content)
    for markup in OOXML:
        text = echoed(text, markup, change)
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

RUBY = "<w:r><w:ruby><w:rt><w:r><w:t>x</w:t></w:r></w:rt><w:rubyBase>{}</w:rubyBase></w:ruby></w:r>"
CONTROL = '<w:sdt><w:sdtPr><w:alias w:val="x"/></w:sdtPr><w:sdtContent>{}</w:sdtContent></w:sdt>'
LINK_FIELD = f'{BEGIN}<w:r><w:instrText> </w:instrText></w:r><w:r><w:instrText>hyperlink "x"</w:instrText></w:r>'
LINK_FIELD += f"{SEPARATE}{{}}{END}"
SIMPLE_FIELD = '<w:fldSimple w:instr=" {}">{}</w:fldSimple>'
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
    "content control": p(f"[ein ]{CONTROL.format('[*Wort ][er]')}[ da]"),
    "paragraph in a content control": p(CONTROL.format("[ein Wort]")),
    "break in a content control": p(f"[ein ]{CONTROL.format(f'[Wort]{BREAK}[er]')}[ da]"),
    "link field": p(f"[ein ]{LINK_FIELD.format('[Wort]')}[ da]"),
    "number in a link field": p(LINK_FIELD.format(f"[Titel]{TAB}{PAGE}")),
    "simple link field": p(SIMPLE_FIELD.format("HYPERLINK x", "[ein Wort]")),
    "form": p(SIMPLE_FIELD.format("FORMTEXT", "[ein Wort]")),
    "direction": p('[ein ]<w:bdo w:val="rtl">[Wort]</w:bdo>'),
    "custom XML": p('[ein ]<w:customXml w:element="a">[Wort]</w:customXml>'),
    "tab in a link": p(LINK.format(f"[1]{TAB}[ein Wort]{TAB}{PAGE}")),
    "position tab": p("[links]<w:r><w:ptab/></w:r>[rechts]"),
    "two texts for programs": p(
        "[da]<mc:AlternateContent><mc:Choice>[neu]</mc:Choice><mc:Fallback>[alt]</mc:Fallback></mc:AlternateContent>"
    ),
    "box in a box": p(f"[a]{BOX.format('[b]' + BOX.format('[c]'))}"),
    "table of contents": p(f"{BEGIN}[Titel]{TAB}{PAGE}") + p(f"[da]{END}"),
}


@pytest.mark.parametrize("name", PARAGRAPHS_OF_WORD)
def test_a_paragraph_keeps_all_but_its_words(name: str) -> None:
    content = PARAGRAPHS_OF_WORD[name]
    expected = re.sub("(?<=>)[^<]+(?=</w:t>)", lambda text: text[0].upper(), content)
    assert translated(content) == expected


def test_a_content_control_is_not_bound_to_a_text_that_stays() -> None:
    control = CONTROL.format("[{}]")
    bound = control.replace("<w:alias", "<w:dataBinding w:xpath='/a'/><w:alias")
    result = translated(p(bound.format("ein")))
    assert result == p(control.format("EIN"))


def test_the_base_of_ruby_is_translated() -> None:
    result = translated(p(f"{RUBY.format('[ein]')}[ da]"))
    assert result == p(f"{RUBY.format('[EIN]')}[ DA]")


def test_a_run_of_a_field_and_its_text_is_divided() -> None:
    field = LINK_FIELD.format("<w:r><w:t>Wort</w:t></w:r>").replace("</w:r><w:r>", "")
    new = translated(p(field))
    assert "<w:t>WORT</w:t>" in new.replace(' xml:space="preserve"', "")
    result = re.findall("<w:(?:fldChar|instrText).*?>", new)
    assert result == re.findall("<w:(?:fldChar|instrText).*?>", field)


@pytest.mark.parametrize("name", ["PAGE", "REF x", "MERGEFIELD FORMTEXT"])
def test_the_result_of_another_field_stays(name: str) -> None:
    field = SIMPLE_FIELD.format(name, "[Kapitel]")
    result = translated(p(f"[in ]{field}"))
    assert result == p(f"[IN ]{field}")


def test_a_field_alone_is_no_text() -> None:
    date = p(SIMPLE_FIELD.format("DATE", "[März]") + "[ ]")
    assert translated(date) == date


def test_a_hyphen_without_break_is_part_of_the_word() -> None:
    word = "<w:r><w:t>E</w:t><w:noBreakHyphen/><w:t>Mail</w:t></w:r>"
    result = translated(p(word))
    assert result == p("[E-MAIL]")
    result = translated(p("<w:r><w:t>1</w:t><w:noBreakHyphen/></w:r>"))
    assert result == p("<w:r><w:t>1</w:t><w:noBreakHyphen/></w:r>")


@pytest.mark.parametrize("separator", ["\t", "\n", "_x000B_"])
def test_a_tab_or_line_end_in_the_text_of_powerpoint_separates_texts(separator: str) -> None:
    run = "<a:r><a:t>{}</a:t></a:r>"
    new = translated(f"<a:p>{run.format(f'Name:{separator}der Hund')}</a:p>")
    assert new == f"<a:p>{run.format('NAME:')}{run.format(separator)}{run.format('DER HUND')}</a:p>"


def test_prefixes_are_those_of_the_document() -> None:
    source = root(p(f"[ein ][*Hund]{TAB}{LINK.format('[da]')}"))
    expected = root(p(f"[EIN ][*HUND]{TAB}{LINK.format('[DA]')}"))
    for prefix in ("ns0:", ""):
        new = renamed(source, prefix)
        for markup in OOXML:
            new = echoed(new, markup)
        assert new == renamed(expected, prefix)


def renamed(text: str, prefix: str) -> str:
    """A Word document of strict OOXML with another prefix. Attributes need one."""
    text = text.replace(W, "http://purl.oclc.org/ooxml/wordprocessingml/main")
    text = re.sub(r" w:\w+=\S+?(?=[ />])", "", text)
    declaration = f"xmlns:{prefix.removesuffix(':')}=" if prefix else "xmlns="
    return re.sub("(</?)w:", rf"\1{prefix}", text.replace("xmlns:w=", declaration))


CHART = "<c:tx><c:strCache><c:pt><c:v>{}</c:v></c:pt></c:strCache></c:tx><c:numCache><c:v>1e5</c:v></c:numCache>"
TEXTS_OF_EXCEL = {  # before and after; x:rPh has a phonetic reading
    "plain": ("<x:si><x:t>ein_x000D_\nHund   da</x:t></x:si>", "<x:si><x:t>EIN_x000D_\nHUND   DA</x:t></x:si>"),
    "reading": (
        "<x:si><x:t>a</x:t><x:rPh><x:t>b</x:t></x:rPh></x:si>",
        "<x:si><x:t>A</x:t><x:rPh><x:t>b</x:t></x:rPh></x:si>",
    ),
    "cell": (
        '<x:c t="inlineStr"><x:is><x:t>a</x:t></x:is></x:c>',
        '<x:c t="inlineStr"><x:is><x:t>A</x:t></x:is></x:c>',
    ),
    "string": ('<x:c t="str"><x:v>a</x:v></x:c>', '<x:c t="str"><x:v>A</x:v></x:c>'),
    "formula": ('<x:c t="str"> <x:f>b</x:f><x:v>a</x:v></x:c>', '<x:c t="str"> <x:f>b</x:f><x:v>a</x:v></x:c>'),
    "error": ('<x:c t="e"><x:v>#NAME</x:v></x:c>', '<x:c t="e"><x:v>#NAME</x:v></x:c>'),
    "labels of a chart": (CHART.format("a"), CHART.format("A")),
}


@pytest.mark.parametrize("name", TEXTS_OF_EXCEL)
def test_texts_without_runs(name: str) -> None:
    before, after = TEXTS_OF_EXCEL[name]
    assert translated(before) == after


def test_the_formats_and_lines_of_a_cell_stay() -> None:
    run = '<x:r>{}<x:t xml:space="preserve">{}</x:t></x:r>'
    bold = "<x:rPr><x:b/></x:rPr>"
    lines = run.format("", " Hund") + run.format("", "\n") + run.format("", "da")
    before = f"<x:si>{run.format(bold, 'ein')}{lines}</x:si>"
    after = before.replace("ein", "EIN").replace("Hund", "hUND").replace("da", "DA")
    assert translated(before, str.swapcase) == after, "each text is translated once"


def test_the_names_of_columns_of_excel_stay() -> None:
    """The table has a copy of them."""
    table = '<table name="T"><tableColumn id="1" name="A_x000a_&amp; B"/><tableColumn name=\'C\'/></table>'
    formats = workbook_formats({"xl/tables/table1.xml": table.encode()})
    source = root("<x:si><x:t>A\n&amp; B</x:t></x:si><x:si><x:r><x:t>C</x:t></x:r></x:si><x:si><x:t>d</x:t></x:si>")
    new = source
    for markup in formats:
        new = echoed(new, markup, str.swapcase)
    assert new == source.replace("<x:t>d", "<x:t>D")


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
AROUND = st.sampled_from([LINK, CONTROL, LINK_FIELD, RUBY])
CONTAINERS = st.builds(str.format, AROUND, IN_LINKS)
CONTENTS = st.lists(ITEMS | CONTAINERS).map("".join)


def tags(text: str) -> Counter[str]:
    """How often there is each tag but those of runs and their format."""
    ElementTree.fromstring(text)  # it is well-formed
    return Counter(re.findall("<(?!/?w:(?:r|t|rPr|b)\\b)[^>]*>", text))


@given(CONTENTS, st.sampled_from(["", "x", "A < b & c. D e", "eins zwei drei vier fünf sechs"]))
def test_all_that_is_no_text_is_written_once_whatever_the_translation(content: str, translation: str) -> None:
    source = root(p(content))
    written = echoed(source, OOXML[-1], lambda _: translation)
    assert tags(written) == tags(source)
    page = PAGE.replace("[3]", r("3"))
    result = written.count(page)
    assert result == content.count(PAGE)


def test_a_paragraph_of_many_formats_takes_linear_time() -> None:
    def finish(n_formats: int) -> None:
        content = "".join(r(f"{n} a", f'<w:rPr><w:sz w:val="{n}"/></w:rPr>') for n in range(n_formats))
        source = root(p(content))
        (segment,) = [part for part in OOXML[-1].parse(source) if isinstance(part, Segment)]
        assert content in segment.finish(content)

    check_linear(finish, 6000)
