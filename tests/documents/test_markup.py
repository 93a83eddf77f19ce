"""What a document says of translations that a person has to check."""

import re
from functools import partial

import pytest

from nmt.documents.html import escape_html
from nmt.documents.markup import Format
from nmt.documents.po import PO
from nmt.documents.tables import parse_string_catalog
from nmt.documents.xliff import XLIFF, parse_tmx
from nmt.documents.xml_strings import QT
from nmt.translate.markup import Translated, units_of, written

TMX = Format(partial(parse_tmx, source="de", target="en"), escape_html)
CATALOG = Format(partial(parse_string_catalog, target="en"), str)
# A format, a document, and what becomes of it if the translations of texts with a question mark are doubtful.
DOCUMENTS = [
    (
        XLIFF,
        """<xliff version="1.2">
<trans-unit><source>a</source></trans-unit>
<trans-unit><source>a?</source></trans-unit>
<trans-unit><source>a</source><target state='new' id='1'/></trans-unit>
<trans-unit><source>1</source></trans-unit>
</xliff>
→
<xliff version="1.2">
<trans-unit><source>a</source><target state="translated">A</target></trans-unit>
<trans-unit><source>a?</source><target state="needs-review-translation">A?</target></trans-unit>
<trans-unit><source>a</source><target id='1' state="translated">A</target></trans-unit>
<trans-unit><source>1</source><target>1</target></trans-unit>
</xliff>""",
    ),
    (
        XLIFF,
        """<xliff version="2.0">
<segment state='initial'><source>a</source></segment>
<segment><source>a?</source></segment>
</xliff>
→
<xliff version="2.0">
<segment state="translated"><source>a</source><target>A</target></segment>
<segment state="initial"><source>a?</source><target>A?</target></segment>
</xliff>""",
    ),
    (
        QT,
        """<TS>
<message><source>a</source><translation type="unfinished"/></message>
<message><source>a?</source><translation type="unfinished"/></message>
<message><source>b</source><translation type="unfinished"><numerusform/><numerusform/></translation></message>
<message><source>c</source>
<translation type="unfinished"><numerusform/><numerusform>x</numerusform></translation></message>
</TS>
→
<TS>
<message><source>a</source><translation>A</translation></message>
<message><source>a?</source><translation type="unfinished">A?</translation></message>
<message><source>b</source><translation><numerusform>B</numerusform><numerusform>B</numerusform></translation></message>
<message><source>c</source>
<translation type="unfinished"><numerusform>C</numerusform><numerusform>x</numerusform></translation></message>
</TS>""",
    ),
    (
        TMX,
        """<tmx>
<tu><tuv lang="de"><seg>a</seg></tuv></tu>
<tu><tuv lang="de"><seg>a?</seg></tuv><tuv lang="en"><seg/></tuv></tu>
</tmx>
→
<tmx>
<tu><tuv lang="de"><seg>a</seg></tuv><tuv xml:lang="en" creationid="nmt"><seg>A</seg></tuv></tu>
<tu><tuv lang="de"><seg>a?</seg></tuv><tuv lang="en"><prop type="x-review">needs-review</prop><seg>A?</seg></tuv></tu>
</tmx>""",
    ),
    (
        PO,
        """# note
msgctxt "k"
msgid "a?"
msgstr ""

msgid "b"
msgid_plural "c?"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
msgid "d?"
msgstr ""

msgid "e"
msgstr ""

#~ end
→
# note
#, fuzzy
msgctxt "k"
msgid "a?"
msgstr "A?"

#, fuzzy
msgid "b"
msgid_plural "c?"
msgstr[0] "B"
msgstr[1] "C?"

#, fuzzy
msgid "d?"
msgstr "D?"

msgid "e"
msgstr "E"

#~ end""",
    ),
    (
        CATALOG,
        """{"sourceLanguage": "de", "strings": {"a?": {
      "localizations" : {
        "fr" : {"stringUnit": {"state": "new", "value": ""}}}},
    "b" : {}}}
→
{"sourceLanguage": "de", "strings": {"a?": {
      "localizations" : {
        "fr" : {
          "stringUnit" : {
            "state" : "new",
            "value" : ""
          }
        },
        "en" : {
          "stringUnit" : {
            "state" : "needs_review",
            "value" : "A?"
          }
        }
      }
    },
    "b" : {
      "localizations" : {
        "en" : {
          "stringUnit" : {
            "state" : "translated",
            "value" : "B"
          }
        }
      }
    }}}""",
    ),
]


@pytest.mark.parametrize(("markup", "case"), DOCUMENTS)
def test_a_document_says_which_translations_are_doubtful(markup: Format, case: str) -> None:
    source, expected = case.split("\n→\n")
    parts = markup.parse(source)
    translations = []
    for unit in units_of(parts, markup, 1):
        translations.append(Translated(unit.text.upper(), doubts=re.findall(r"\?", unit.text)))
    assert written(parts, iter(translations)) == expected
