"""HTML as parts: what is copied, what is translated as a whole, and its elements."""

import pytest
from conftest import rows_of
from echo import echoed
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.constructs import constructs
from nmt.documents.html import HTML
from nmt.documents.markup import STAND_IN, Element, Segment


def outline(element: Element, text: str) -> str:
    """An element as `opening[content with its children]closing`; an opaque one as its markup between braces."""
    if element.verbatim is not None:
        return f"{element.opening}{{{element.verbatim}}}{element.closing}"
    cursor, content = element.start, ""
    for child in element.children:
        content += text[cursor : child.start]
        content += outline(child, text)
        cursor = child.end
    content += text[cursor : element.end]
    if element.opening or element.closing:
        return f"{element.opening}[{content}]{element.closing}"
    return content


def parts(html: str) -> str:
    """What is copied, and the outline of each segment between stars, with bars between the parts."""
    shown = []
    for part in HTML.parse(html):
        if isinstance(part, Segment):
            shown.append(f"*{outline(part.root, part.text)}*")
        else:
            shown.append(part)
    return "|".join(shown)


# Tables of a fragment and below it its parts, as `parts` shows them. Blocks separate segments.
BLOCKS = """
Ein Hund
*Ein Hund*

Ein<head>Hund
*Ein*|<head>|*Hund*

<p>Ein <b>Hund</b></p> <p>da</p>
<p>|*Ein <b>[Hund]</b>*|</p>| |<p>|*da*|</p>

a<br>b<br/>c
*a*|<br>|*b*|<br/>|*c*

<td>a</td><td>b</td>
<td>|*a*|</td>|<td>|*b*|</td>

<!doctype html><?xml?>a
<!doctype html>|<?xml?>|*a*

<hr><b>...</b>
<hr>|<b>...</b>
"""
# Inline tags are elements of a segment.
INLINE = """
1 &lt; 2 &amp;&nbsp;3 &auml;
*1 < 2 &\u00a03 ä*

<b> a </b> b
*<b>[a ]</b>b*

<b><i>a</i></b>
*<b>[<i>[a]</i>]</b>*

a <img src='x>y'> b
*a <img src='x>y'>[] b*

<b>a <img></b> b
*<b>[a  <img>[]]</b>b*

a <x id=1 /> b
*a <x id=1 />[] b*

a <!-- b --> c
*a <!-- b -->[] c*

a <![foo]> b</>
*a <![foo]>[] b</>*

Hallo <?= $name ?>, du
*Hallo {<?= $name ?>}, du*

a < b & c <
*a < b & c <*
"""
# Some elements are copied.
COPIED = """
<script>if (a<b) f('</p>')</script>a
<script>|if (a<b) f('</p>')|</script>|*a*

<script src=a /> a<i>b</i><script>c
<script src=a />| |*a<i>[b]</i>*|<script>|c

<pre>a <pre>b</pre> c</pre>d
<pre>|a |<pre>|b|</pre>| c|</pre>|*d*

nimm <code>x <b>y</b></code> da
*nimm <code>{x <b>y</b>}</code> da*

ein <b translate=no>Wort</b> da
*ein <b translate=no>{Wort}</b> da*

a <i translate='NO'>B</i> c
*a <i translate='NO'>{B}</i> c*

<p class='a notranslate'>Wort <i>b</i></p>c
<p class='a notranslate'>|Wort |<i>|b|</i>|</p>|*c*

<ul><li translate=no>a<ol><li>b<li>c</ol>d<li>e</ul>f
<ul>|<li translate=no>|a|<ol>|<li>|b|<li>|c|</ol>|d|<li>|*e*|</ul>|*f*

<td translate=no>a<table><tr><td>b<td>c</table>d<tr>e
<td translate=no>|a|<table>|<tr>|<td>|b|<td>|c|</table>|d|<tr>|*e*

<div><p translate=no>a<br><b>b</b></div>c
<div>|<p translate=no>|a|<br>|<b>|b|</b>|</div>|*c*
"""
# Readings are copied with their base.
READINGS = """
<ruby>漢<rp>(</rp><rt>kan</rt></ruby>です
*<ruby>[漢<rp>{(}</rp><rt>{kan}</rt>]</ruby>です*

<ruby>漢<rt>kan<rt>zi</ruby>です
*<ruby>[漢<rt>{kan}<rt>{zi}]</ruby>です*
"""
# A part of what is copied may be translated.
TRANSLATED = """
<p translate=no>a <b translate=yes>Hund</b> c</p>d
<p translate=no>|a |<b translate=yes>|*[Hund]</b>*| c|</p>|*d*

<dl translate=no><dt translate=yes>a<dd>b</dl>c
<dl translate=no>|<dt translate=yes>|*a*|<dd>|b|</dl>|*c*

ein <b translate=no>Haus <i translate="">Hund</i></b> da
*ein <b translate=no>[{Haus }<i translate="">[Hund]</i>]</b> da*
"""
# An element without letters is opaque unless it is in a word.
WITHOUT_LETTERS = """
Buch<sup>[1]</sup>, da
*Buch<sup>{[1]}</sup>, da*

Buch<sup><a>1</a></sup><i>*</i> da
*Buch<sup>{<a>1</a>}</sup><i>{*}</i> da*

Buch <b>3</b>.
*Buch <b>{3}</b>.*

Buch<b> 3 </b>da
*Buch <b>{3}</b> da*

Buch<sup>1 </sup>da
*Buch<sup>{1}</sup> da*

ein <a><code>x</code></a> da
*ein <a>{<code>x</code>}</a> da*

H<sub>2</sub>O und CO<sub>2</sub> da
*H<sub>[2]</sub>O und CO<sub>{2}</sub> da*

a<b> </b>b
*a<b>[ ]</b>b*

<b>Hund</b><i>!</i> <i>„</i>Ja<i>“</i> <b>&amp;</b> da
*<b>[Hund]</b><i>[!]</i> <i>[„]</i>Ja<i>[“]</i> <b>{&amp;}</b> da*
"""
# A text continues the one before it if it looks so.
NEIGHBORS = """
<a>Ja</a><a>nein</a>
*<a>[Ja]</a>*|<a>|*[nein]</a>*

<strong>Hinweis:</strong><em>Ein Hund</em>
*<strong>[Hinweis:]</strong>*|<em>|*[Ein Hund]</em>*

<a>Berlin</a><sup><a>[1]</a></sup> da
*<a>[Berlin]</a><sup>{<a>[1]</a>}</sup> da*

<b>Ha</b><i>us</i>
*<b>[Ha]</b><i>[us]</i>*

<b>C</b><b>P</b><b>U</b> <b>昨</b><i>天</i>
*<b>[C]</b><b>[P]</b><b>[U]</b> <b>[昨]</b><i>[天]</i>*

<label>Ja</label><input>nein
*<label>[Ja]</label>*|<input>|*nein*

Suche<img>Hilfe
*Suche<img>[]*|*Hilfe*

<x-a>Ja</x-a><x-b>nein</x-b>
<x-a>|*Ja*|</x-a>|<x-b>|*nein*|</x-b>
"""
# Templates are opaque, and statements separate segments.
TEMPLATES = """
ein {{ a | b }} und <?= $a->b ?> da
*ein {{{ a | b }}} und {<?= $a->b ?>} da*

{% if a > 1 %}Hund{% else %}Katze{% endif %}
{% if a > 1 %}|*Hund*|{% else %}|*Katze*|{% endif %}

<?php if ($a > 1): ?>Hund<?php endif; ?>
<?php if ($a > 1): ?>|*Hund*|<?php endif; ?>

{{#each a}}Hund {{! b }}{{/each}} {# c > d #}da <%# e %>
{{#each a}}|*Hund {{{! b }}}*|{{/each}}| |*{# c > d #}[]da <%# e %>[]*

<a href="{{ a > "b" }}" {% if a > 1 %}b{% endif %}>Hund</a> da
*<a href="{{ a > "b" }}" {% if a > 1 %}b{% endif %}>[Hund]</a> da*

a {{ b <i>c</i> }}
*a {{ b <i>[c]</i> }}*

{{- /* a {{ b }} */ -}}Hund {{/* c */}}
*{{- /* a {{ b }} */ -}}[]Hund {{/* c */}}[]*
"""
# Tags may lack their partner.
HALF_TAGS = """
a <b>c
*a <b>[c]*

a</b> c
*[a]</b> c*

<b>x<p>y</b> z
*<b>[x]*|<p>|*[y]</b> z*

<b><i>a</b>c</i>
*[<b>[<i>[a]]</b>c]</i>*

a <!-- b
*a <!-- b[]*

a <code><img>
*a <code>[<img>[]]*

<a href="b"">c</a> <i title='d's' 'e>f</i> g
*<a href="b"">[c]</a> <i title='d's' 'e>[f]</i> g*

a <![CDATA[b > c]]> d
*a <![CDATA[b > c]]>[] d*

<b>Titel<br></b>Gestern
*<b>[Titel]*|<br>|</b>|*Gestern*

Ende<b><br>Neu</b>
*Ende*|<b>|<br>|*[Neu]</b>*
"""


TABLES = BLOCKS, INLINE, COPIED, READINGS, TRANSLATED, WITHOUT_LETTERS, NEIGHBORS, TEMPLATES, HALF_TAGS


@pytest.mark.parametrize("case", rows_of("".join(TABLES), "\n\n"))
def test_a_fragment_has_these_parts(case: str) -> None:
    html, expected = case.split("\n")
    assert parts(html) == expected


def test_white_space_around_a_segment_is_copied() -> None:
    assert parts("  Ein  \n Hund ") == "  |*Ein Hund*| "
    assert parts(" <img> a <i></i>\n") == " |*<img>[] a <i>[]</i>*|\n"


def test_a_no_break_space_stays_with_the_image_before_it() -> None:
    assert echoed("<a><img>&nbsp;Der Hund</a>", HTML) == "<a><img>\xa0DER HUND</a>"


def test_an_empty_text_has_no_parts() -> None:
    assert HTML.parse("") == []


def test_a_reader_sees_the_content_of_code() -> None:
    (segment,) = HTML.parse("nimm <code>a &lt; <b>b</b></code> da")
    assert isinstance(segment, Segment)
    (code,) = segment.root.children
    assert code.shown == "a < b"
    assert STAND_IN.fullmatch(segment.text[code.start : code.end])


def test_elements_may_be_inside_of_each_other() -> None:
    html = "<b>" * 99 + "Hund" + "</b>" * 99
    shown = "<b>[" * 99 + "Hund" + "]</b>" * 99
    assert parts(f"{html} da") == f"*{shown} da*"


def test_a_segment_of_too_many_elements_inside_of_each_other_is_copied() -> None:
    hostile = "<b>" * 2000 + "Hund" + "</b>" * 2000
    assert parts(f"{hostile}<p>da") == f"{hostile}|<p>|*da*"


def test_a_segment_of_too_many_closing_tags_is_copied() -> None:
    hostile = "</b>" * 2000 + "Hund"
    assert HTML.parse(hostile) == [hostile]


@given(st.text("<>/!-&;[]?\"' =ab\n", max_size=60))
def test_any_text_is_parsed(text: str) -> None:
    raw = [construct.raw for construct in constructs(text)]
    assert "".join(raw) == text
    for part in HTML.parse(text):
        if isinstance(part, Segment):
            assert part.text == part.text.strip(" ")
            assert part.root.start == 0
            assert part.root.end == len(part.text)


def test_tags_keep_their_place_in_a_placeholder_of_two_sentences() -> None:
    html = "x &lt;da ist. So <b>ist</b> es&gt; da"
    result = echoed(html, HTML, str)
    assert result == html
