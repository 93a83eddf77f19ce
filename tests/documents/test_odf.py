"""Paragraphs of OpenDocument: what is no text keeps its place."""

import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from echo import echoed
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.odf import ODF

SCHEMA = "urn:oasis:names:tc:opendocument:xmlns"
PREFIXES = ("text", "table", "office", "presentation")


def root(content: str) -> str:
    namespaces = " ".join(f'xmlns:{prefix}="{SCHEMA}:{prefix}:1.0"' for prefix in PREFIXES)
    return f'<?xml version="1.0"?>\n<office:text {namespaces} xmlns:draw="d">{content}</office:text>'


def translated(text: str) -> str:
    """A document, with all letters outside of braces in capitals. Braces are around what is no text."""
    for markup in ODF:
        text = echoed(text, markup)
    return text


CITATION = "<text:note-citation>[i]</text:note-citation>"
NOTE = f"<text:note>{CITATION}<text:note-body><text:p>{{}}</text:p></text:note-body></text:note>"
FRAME = "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
FIELD = "<text:page-number>[iv]</text:page-number>"
RUBY = "<text:ruby><text:ruby-base>{}</text:ruby-base><text:ruby-text>[x]</text:ruby-text></text:ruby>"
SPAN = '<text:span text:style-name="T1">{}</text:span>'
ANNOTATION = "<office:annotation><text:p>[note]</text:p></office:annotation>"
CELL = '<table:table-cell office:value-type="{}"><text:p>{}</text:p></table:table-cell>'
FORMULA = "<table:table-cell table:formula='x' office:string-value='da'><text:p>da</text:p></table:table-cell>"
# Texts in brackets are not translated.
DOCUMENTS = {
    "heading": "<text:h>Titel</text:h>",
    "spans and links": f"<text:p>ein {SPAN.format('Wort')} <text:a>und mehr</text:a></text:p>",
    "entities": "<text:p>a &lt; b</text:p>",
    "tab and break": f"<text:p>Name:<text:tab/>{SPAN.format('ein<text:line-break/>Hund')} da</text:p>",
    "spaces": "<text:p><text:s text:c='4'/>ein Hund <text:s/>da</text:p>",
    "note": f"<text:p>ein Wort{NOTE.format('eine Note')} da</text:p>",
    "frame in a frame": f"<text:p>{FRAME.format('a' + FRAME.format('b'))}</text:p>",
    "field": f"<text:p>Seite {FIELD}</text:p>",
    "only a field": f"<text:p>{FIELD} </text:p>",
    "ruby": f"<text:p>{RUBY.format('ein')} Hund</text:p>",
    "bookmark": "<text:p>a <text:bookmark/>b</text:p>",
    "comment": f"<text:p>ein Wort{ANNOTATION}</text:p>",
    "deleted text": "<text:tracked-changes><text:p>[alt]</text:p></text:tracked-changes><text:p>a</text:p>",
    "title of the index": "<text:index-title-template>Inhalt</text:index-title-template>",
    "footer": "<presentation:footer-decl>ein Hund</presentation:footer-decl>",
    "cells": CELL.format("string", "Hund") + CELL.format("date", "[März]"),
    "formula": "<table:table-cell table:formula='x'><text:p>[Summe]</text:p></table:table-cell>",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_keeps_all_but_its_words(name: str) -> None:
    source = root(DOCUMENTS[name])
    expected = re.sub(r">([^<>\[\]]+)(?=<)", lambda text: text[0].upper(), source)
    result = translated(source)
    assert result == expected.replace("&LT;", "&lt;")


def test_a_space_element_between_words_is_a_space() -> None:
    result = translated(root("<text:p>a<text:s/>b</text:p>"))
    assert result == root("<text:p>A B</text:p>")


def test_a_cell_does_not_keep_the_source_as_its_value() -> None:
    cell = "<table:table-cell{}><text:p>{}</text:p></table:table-cell>"
    source = cell.format(" office:string-value='da'", "da")
    expected = cell.format("", "DA")
    assert translated(root(source + FORMULA)) == root(expected + FORMULA)


def test_prefixes_are_those_of_the_document() -> None:
    source = f'<a xmlns:ns1="{SCHEMA}:text:1.0"><ns1:p>ein <ns1:a>Hund</ns1:a></ns1:p></a>'
    result = translated(source)
    assert result == source.replace("ein", "EIN").replace("Hund", "HUND")


ITEMS = st.sampled_from(["ein ", "Hund. ", "7", "<text:tab/>", "<text:s/>", FIELD, NOTE.format("a"), ANNOTATION])
IN_SPANS = st.lists(ITEMS, max_size=3).map("".join)
AROUND = st.sampled_from([SPAN, "<text:a>{}</text:a>", RUBY])
CONTENTS = st.lists(ITEMS | st.builds(str.format, AROUND, IN_SPANS)).map("".join)


def tags(text: str) -> Counter[str]:
    """How often there is each tag, except for spaces."""
    ElementTree.fromstring(text)  # it is well-formed
    return Counter(re.findall("<(?!text:s/)[^>]*>", text))


@given(CONTENTS, st.sampled_from(["", "x", "A < b & c. D e", "eins zwei drei vier fünf sechs"]))
def test_all_that_is_no_text_is_written_once_whatever_the_translation(content: str, translation: str) -> None:
    source = root(f"<text:p>{content}</text:p>")
    written = echoed(source, ODF[-1], lambda _: translation)
    assert tags(written) == tags(source)
