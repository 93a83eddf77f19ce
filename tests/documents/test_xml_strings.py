"""Strings of applications in XML: texts are translated, all else stays."""

import re

import pytest
from conftest import rows_of
from echo import echoed

from nmt.documents.markup import Format
from nmt.documents.xml_strings import ANDROID, QT, RESX, STRINGSDICT

# Two rows for each kind of content of Android: a resource, and what becomes of it. A bar is a line break.
RESOURCES = r"""
<string name="a">it\'s \"b\"\nc \u0064 \\ \@</string>
<string name="a">IT\'S \"B\"\nC D \\ @</string>

<string name="a">  "  a  'b' "  </string>
<string name="a">  "  A \'B\' "  </string>

<string name="a">\u0020a|  b &#8230; </string>
<string name="a">\u0020A B … </string>

<string name="a">a\u0020\u0020\u0020b   c</string>
<string name="a">A\u0020\u0020 B C</string>

<string name="a">a \ud83d\ude00</string>
<string name="a">A 😀</string>

<string name="a">\@a</string>
<string name="a">\@A</string>

<string name="a"><b>a</b> <xliff:g id="b">%1$s</xliff:g> c</string>
<string name="a"><b>A</b> <xliff:g id="b">%1$s</xliff:g> C</string>

<string name="a"><![CDATA[a & <i>b</i>]]></string>
<string name="a">A &amp; &lt;i&gt;B&lt;/i&gt;</string>

<plurals name="a"><item quantity="one">b</item><item quantity="other">c</item></plurals>
<plurals name="a"><item quantity="one">B</item><item quantity="other">C</item></plurals>

<string-array name="a"><item>b</item><item>@string/c</item></string-array>
<string-array name="a"><item>B</item><item>@string/c</item></string-array>
"""
# Resources of Android that stay.
KEPT = r"""
<string name="a" translatable="false">b</string>
<string name="a">?attr/b</string>
<string name="a">@android:string/ok</string>
<string name="a">{n, plural, one {b} other {c}}</string>
<string name="a">12 &#8230;</string>
<style name="a"><item name="b">c</item></style>
"""


def android_file(resource: str) -> str:
    return f'<?xml version="1.0"?>\n<resources xmlns:xliff="a"><!-- b -->{resource}</resources>'


@pytest.mark.parametrize("case", rows_of(RESOURCES, "\n\n"))
def test_strings_of_android_are_translated_in_place(case: str) -> None:
    source, expected = case.strip().split("\n")
    source = source.replace("|", "\n")
    written = echoed(android_file(source), ANDROID)
    assert written == android_file(expected)


@pytest.mark.parametrize("resource", rows_of(KEPT))
def test_references_and_other_resources_of_android_stay(resource: str) -> None:
    text = android_file(resource)
    assert echoed(text, ANDROID) == text


def test_half_of_a_character_is_an_error() -> None:
    text = android_file(r"<string>a \ud83d</string>")
    with pytest.raises(ValueError, match="unexpected end of data"):
        ANDROID.parse(text)


# Two rows for each kind of a message of Qt Linguist: the message, and what becomes of it.
MESSAGES = """
<source>a</source><translation type="unfinished"></translation>
<source>a</source><translation type="unfinished">A</translation>

<source>a</source><translation type="unfinished"/>
<source>a</source><translation type="unfinished">A</translation>

<source>a</source><translation type="unfinished"><numerusform/><numerusform>b</numerusform></translation>
<source>a</source><translation type="unfinished"><numerusform>A</numerusform><numerusform>b</numerusform></translation>

<source>open f&amp;ile</source><translation type="unfinished"></translation>
<source>open f&amp;ile</source><translation type="unfinished">OPEN &amp;FILE</translation>

<source>AT&amp;T &amp;&amp; b</source><translation type="unfinished"></translation>
<source>AT&amp;T &amp;&amp; b</source><translation type="unfinished">AT&amp;T &amp;&amp; B</translation>

<source>a<byte value="x9"/>b</source><translation type="unfinished"></translation>
<source>a<byte value="x9"/>b</source><translation type="unfinished">A<byte value="x9"/>B</translation>

<source>a</source><translation type="unfinished">b</translation>
<source>a</source><translation type="unfinished">b</translation>

<source>a</source><translation></translation>
<source>a</source><translation></translation>

<source>a</source><translation type="vanished"></translation>
<source>a</source><translation type="vanished"></translation>
"""


@pytest.mark.parametrize("case", rows_of(MESSAGES, "\n\n"))
def test_unfinished_messages_of_qt_get_a_translation(case: str) -> None:
    source, expected = case.strip().split("\n")
    file = '<!DOCTYPE TS>\n<TS version="2.1"><context><name>a</name><message>{}</message></context></TS>'
    written = echoed(file.format(source), QT)
    assert written == file.format(expected)


# Other files. What is translated is in brackets here.
RESX_FILE = """<root><resheader name="a"><value>text/b</value></resheader>
<data name="a" xml:space="preserve"><value>[b  c]
[d] {0}</value><comment>e</comment></data>
<data name="a" type="System.Int32"><value>b</value></data>
<data name="a" mimetype="b"><value>c</value></data>
<data name="&gt;&gt;a.Name"><value>a</value></data>
</root>"""
STRINGSDICT_FILE = """<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/a.dtd">
<plist version="1.0"><dict><key>a</key><dict>
<key>NSStringLocalizedFormatKey</key><string>[b] %#@files@ [c] %1$#@days@</string>
<key>files</key><dict><key>NSStringFormatSpecTypeKey</key><string>NSStringPluralRuleType</string>
<key>NSStringFormatValueTypeKey</key><string>d</string>
<key>one</key><string>[file]</string><key>other</key><string>[files]</string></dict></dict></dict></plist>"""


@pytest.mark.parametrize(("text", "markup"), [(RESX_FILE, RESX), (STRINGSDICT_FILE, STRINGSDICT)])
def test_texts_are_translated_and_all_else_stays(text: str, markup: Format) -> None:
    expected = re.sub(r"\[(.*?)\]", lambda match: match[1].upper(), text)
    source = re.sub(r"[\[\]]", "", text)
    written = echoed(source, markup)
    assert written == expected
