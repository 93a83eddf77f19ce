"""HTML as parts: what is copied, what is translated as a whole, and its elements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.html import HTML, constructs
from nmt.documents.markup import Element, Segment


def outline(element: Element, text: str) -> str:
    """An element as `opening[content with its children]closing`."""
    cursor, found = element.start, ""
    for child in element.children:
        found += text[cursor : child.start] + outline(child, text)
        cursor = child.end
    content = found + text[cursor : element.end]
    return f"{element.opening}[{content}]{element.closing}" if element.opening or element.closing else content


def parts(html: str) -> list[str]:
    """What is copied, and the outline of each segment after a star."""
    found = HTML.parse(html)
    return [part if isinstance(part, str) else f"*{outline(part.root, part.text)}" for part in found]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("", []),
        ("Ein Hund", ["*Ein Hund"]),
        ("  Ein  \n Hund ", ["  ", "*Ein Hund", " "]),
        ("<p>Ein <b>Hund</b></p>\n<p>da</p>", ["<p>", "*Ein <b>[Hund]</b>", "</p>", "\n", "<p>", "*da", "</p>"]),
        ("a<br>b<br/>c", ["*a", "<br>", "*b", "<br/>", "*c"]),
        ("<td>a</td><td>b</td>", ["<td>", "*a", "</td>", "<td>", "*b", "</td>"]),
        ("1 &lt; 2 &amp;&nbsp;3 &auml;", ["*1 < 2 &\u00a03 ä"]),
        ("<b> a </b> b", ["*<b>[a ]</b>b"]),
        ("<b><i>a</i></b>", ["*<b>[<i>[a]</i>]</b>"]),
        ("a <img src='x>y'> b", ["*a <img src='x>y'>[] b"]),
        ("<b>a <img></b> b", ["*<b>[a  <img>[]]</b>b"]),  # the space before the image is also its own
        (" <img> a <i></i>\n", [" ", "*<img>[] a <i>[]</i>", "\n"]),
        ("a <x id=1 /> b", ["*a <x id=1 />[] b"]),
        ("a <!-- b --> c", ["*a <!-- b -->[] c"]),
        ("<script>if (a<b) f('</p>')</script>a", ["<script>", "if (a<b) f('</p>')", "</script>", "*a"]),
        ("<script src=a /> a<i>b</i><script>c", ["<script src=a />", " ", "*a<i>[b]</i>", "<script>", "c"]),
        ("<pre>a <pre>b</pre> c</pre>d", ["<pre>", "a ", "<pre>", "b", "</pre>", " c", "</pre>", "*d"]),
        ("nimm <code>x <b>y</b></code> da", ["*nimm <code>[x y]</code> da"]),
        ("ein <b translate=no>Wort</b> da", ["*ein <b translate=no>[Wort]</b> da"]),
        (
            "<p class='a notranslate'>Wort <i>b</i></p>c",
            ["<p class='a notranslate'>", "Wort ", "<i>", "b", "</i>", "</p>", "*c"],
        ),
        ("<!doctype html><?xml?>a", ["<!doctype html>", "<?xml?>", "*a"]),
        ("a <b>c", ["*a <b>[c]"]),
        ("a</b> c", ["*[a]</b> c"]),
        ("<b>x<p>y</b> z", ["*<b>[x]", "<p>", "*[y]</b> z"]),
        ("<b><i>a</b>c</i>", ["*[<b>[<i>[a]]</b>c]</i>"]),
        ("a < b & c <", ["*a < b & c <"]),
        ("a <![foo]> b</>", ["*a <![foo]>[] b</>"]),
        ("Hallo <?= $name ?>, du", ["*Hallo <?= $name ?>[], du"]),
        ("a <!-- b", ["*a <!-- b[]"]),
        ("a <code><img>", ["*a <code>[]"]),
        ("<b>Titel<br></b>Gestern", ["*<b>[Titel]", "<br>", "</b>", "*Gestern"]),
        ("Ende<b><br>Neu</b>", ["*Ende", "<b>", "<br>", "*[Neu]</b>"]),
        ("a <i translate='NO'>B</i> c", ["*a <i translate='NO'>[B]</i> c"]),
        ("<hr><b>...</b>", ["<hr>", "<b>...</b>"]),
    ],
)
def test_fragments_are_cut_at_blocks_and_parsed_in_between(html: str, expected: list[str]) -> None:
    assert parts(html) == expected


def test_the_content_of_code_is_copied() -> None:
    (segment,) = HTML.parse("nimm <code>a &lt; <b>b</b></code> da")
    assert isinstance(segment, Segment)
    (code,) = segment.root.children
    assert (code.verbatim, segment.text) == ("a &lt; <b>b</b>", "nimm a < b da")


def test_elements_inside_of_each_other_are_limited() -> None:
    inside = "<b>" * 99 + "Hund" + "</b>" * 99
    assert [part for part in HTML.parse(inside) if isinstance(part, Segment)]
    hostile = f"{'<b>' * 2000}Hund{'</b>' * 2000}"
    assert HTML.parse(f"{hostile}<p>da") == [hostile, "<p>", *HTML.parse("da")]
    stray = f"{'</b>' * 2000}Hund"
    assert "".join(map(str, HTML.parse(stray)))


@given(st.text(alphabet=st.sampled_from(list("<>/!-&;[]?\"' =ab\n")), max_size=60))
def test_any_text_is_parsed(text: str) -> None:
    assert "".join(raw for raw, _, _ in constructs(text)) == text
    for part in HTML.parse(text):
        if isinstance(part, Segment):
            assert part.text == part.text.strip(" ")
            assert (part.root.start, part.root.end) == (0, len(part.text))
