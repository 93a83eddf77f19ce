"""Markdown: only texts are replaced, and what is in them keeps its place."""

import re
import sys
from pathlib import Path

import pytest
from echo import echoed

from nmt.documents.markdown import MARKDOWN, markdown_it
from nmt.errors import InputError

TAG = re.compile("<[^>]*>")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Ein *roter* Hund\n", "EIN *ROTER* HUND\n"),
        ("# Ein `ls -l` Titel #\r\n\r\nda\r\n===\r\n", "# EIN `ls -l` TITEL #\r\n\r\nDA\r\n===\r\n"),
        ("> Ein Hund\n> rennt.\n", "> EIN HUND RENNT.\n"),
        ("- a\n  1. b\n- [ ] c\n", "- A\n  1. B\n- [ ] C\n"),
        ("[ein **Hund**](a_b 'T') da", "[EIN **HUND**](a_b 'T') DA"),
        ("ein [Hund][x] da\n\n[x]: http://x.de 'T'\n", "EIN [HUND][x] DA\n\n[x]: http://x.de 'T'\n"),
        ("a ![b](c.png) d <http://x.de> e", "A ![b](c.png) D <http://x.de> E"),
        ("ein <b>Hund</b><br>da", "EIN <b>HUND</b><br>DA"),
        ("Hund[^1] da\n\n[^1]: ein Wort\n", "HUND[^1] DA\n\n[^1]: EIN WORT\n"),
        ("der {{ name }} und $a_1 * b$ da", "DER {{ name }} UND $a_1 * b$ DA"),
        ("ein\\\nWort  \nda", "EIN\\\nWORT  \nDA"),
        ("|a|b|\n|-|-|\n| a \\| b | *a* |\n| 1 | a |\n", "|A|B|\n|-|-|\n| A \\| B | *A* |\n| 1 | A |\n"),
        ("~~~\nein Hund\n~~~\n\n    auch\n\n<div>\nHund\n</div>\n", None),
        ("---\ntitle: Hund\n---\nda\n", "---\ntitle: Hund\n---\nDA\n"),
        ("1. 1\n2. a\n", "1. 1\n2. A\n"),
        ("![a](b) der {{ &lt;b&gt; }} da <http://x.de>", "![a](b) DER {{ \\<b> }} DA <http://x.de>"),
        ("a \\*b\\* snake_case &amp; x < y", "A \\*B\\* SNAKE_CASE & X < Y"),
    ],
)
def test_texts_are_translated_and_the_rest_is_copied(source: str, expected: str | None) -> None:
    assert echoed(source, MARKDOWN) == (source if expected is None else expected)


@pytest.mark.parametrize("text", ["- x", "1. x", "# x", "> x", "*x*", "`x`", "<b>", "[x](y)", "&lt;", "a_ _b", "~~x~~"])
def test_a_translation_is_text_whatever_its_characters(text: str) -> None:
    (_, block, _) = markdown_it().parse(echoed("Hund", MARKDOWN, lambda _: text))
    assert [token.type for token in block.children] == ["text"]
    assert block.content.replace("\\", "") == text


@pytest.mark.parametrize("page", sorted(ROOT.glob("nmt/*/README.md")), ids=lambda page: page.parent.name)
def test_pages_of_this_project_stay_as_they_are_if_the_words_do(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    before, after = (markdown_it().render(one) for one in (text, echoed(text, MARKDOWN, str)))
    assert TAG.sub("", after).split() == TAG.sub("", before).split()
    assert sorted(TAG.findall(after)) == sorted(TAG.findall(before))


def test_a_missing_library_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    markdown_it.cache_clear()
    with pytest.raises(InputError, match="markdown-it-py is not installed") as found:
        MARKDOWN.parse("a")
    assert found.value.hint == "pip install 'nmt-trainer[documents]'"
