"""Markdown: only texts are replaced, and what is in them keeps its place."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from echo import echoed

from nmt.documents.markdown import MARKDOWN, markdown_it
from nmt.errors import InputError

TAG = re.compile("<[^>]*>")
ROOT = Path(__file__).parents[2]

# Each word in capitals is one that is translated, by a translator that returns capitals.
INLINE = [
    "EIN *ROTER* HUND\n",
    "[EIN **HUND**](a_b 't') DA",
    "EIN [HUND][x] DA\n\n[x]: http://x.de 't'\n",
    "A ![b](c.png) D <http://x.de> E",
    "EIN <b>HUND</b><br>DA",
    "HUND[^1] DA\n\n[^1]: EIN WORT\n",
    "DER {{ name }} UND $a_1 * b$ DA",
    "![a](b) DER {{ x }} DA <http://x.de>",
]
BLOCKS = [
    "# EIN `ls -l` TITEL #\r\n\r\nDA\r\n===\r\n",
    "- A\n  1. B\n- [ ] C\n",
    "EIN\\\nWORT  \nDA",
    "|A|B|\n|-|-|\n| A \\| B | *A* |\n| 1 | A |\n",
    "~~~\nein Hund\n~~~\n\n    auch\n\n<div>\nHund\n</div>\n",
    "---\ntitle: x\n---\nDA\n",
    "1. 1\n2. A\n",
]


@pytest.mark.parametrize("expected", [*INLINE, *BLOCKS])
def test_texts_are_translated_and_the_rest_is_copied(expected: str) -> None:
    source = re.sub(r"\b[A-ZÄ]+\b", lambda word: word[0].lower(), expected)
    assert echoed(source, MARKDOWN) == expected


def test_a_paragraph_becomes_one_line() -> None:
    assert echoed("> Ein Hund\n> rennt.\n", MARKDOWN) == "> EIN HUND RENNT.\n"


def test_entities_become_characters() -> None:
    assert echoed("a \\*b\\* snake_case &amp; x < y", MARKDOWN) == "A \\*B\\* SNAKE_CASE & X < Y"
    assert echoed("der {{ &lt;b&gt; }} da", MARKDOWN) == "DER {{ \\<b> }} DA"


# Texts that would be marks.
LOOK_ALIKES = ["- x", "1. x", "# x", "> x", "*x*", "`x`", "<b>", "[x](y)", "&lt;", "a_ _b", "~~x~~"]


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_a_translation_is_text_whatever_its_characters(text: str) -> None:
    # The parser reads what is written as one text.
    written = echoed("Hund", MARKDOWN, lambda _: text)
    _, block, _ = markdown_it().parse(written)
    (token,) = block.children
    assert token.type == "text"
    assert block.content.replace("\\", "") == text


def words_of_page(html: str) -> list[str]:
    return TAG.sub("", html).split()


PAGES = sorted(ROOT.glob("nmt/*/README.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_pages_of_this_project_stay_as_they_are_if_the_words_do(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    before = markdown_it().render(text)
    copied = echoed(text, MARKDOWN, str)
    after = markdown_it().render(copied)
    assert words_of_page(after) == words_of_page(before)
    assert Counter(TAG.findall(after)) == Counter(TAG.findall(before))


def test_a_missing_library_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    markdown_it.cache_clear()
    with pytest.raises(InputError, match="markdown-it-py is not installed") as caught:
        MARKDOWN.parse("a")
    assert caught.value.hint == "pip install 'nmt-trainer[documents]'"
