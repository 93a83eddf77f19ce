"""Markdown: only texts are replaced, and what is in them keeps its place."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from echo import echoed
from markdown_it import MarkdownIt

from nmt.documents.markdown import MARKDOWN
from nmt.documents.markdown_delimiters import CLOSED, OPENED, close_emphasis
from nmt.documents.markdown_syntax import markdown_it
from nmt.documents.markup import Segment
from nmt.errors import InputError

TAG = re.compile("<[^>]*>")
# Words in capitals, except for those of marks.
WORDS = re.compile(r"(?<![!_])\b[A-ZÄ]+\b(?!\]:)")
GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])
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
    "\\_\\_EIN\\_\\_ HUND__DA **C:\\\\** [EIN \\] WORT](da)",
    "# DIE TASTE \\#",
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


# Lines and marks that are copied.
COPIED = [
    "> [!NOTE]\n> EIN WORT\n",
    "> [!NOTE]- EIN TITEL\n> WORT\n",
    "+++\r\na = 'wort'\r\n+++\r\nDA\r\n",
    ';;;\n"a": "wort"\n;;;\nDA\n',
    '{\n"a": "wort"\n}\nDA\n',
    ":::tip wort\nDA\n:::\n",
    '!!! note "wort"\n\n    DA\n\n    - WORT\nHUND\n',
    "??? tip\n    DA\n\n    !!! note\n        WORT\n",
    '=== "wort"\n\n    DA\n',
    "# EIN TITEL {#wort .da}\n",
    "EIN WORT\n{: .da }\n",
    "[toc]\n\n[[_TOC_]]\nEIN [[wort]] DA\n",
    "EIN WORT\n:   DA\n\n    HUND\n",
    "DA[^a]\n\n[^a]: EIN WORT\n\n    ZWEI\n",
    '{{< wort "da" >}}\nEIN {{% wort %}} HUND\n',
    "{% highlight da %}\nwort\n\nhund\n{% endhighlight %}\n",
    "EIN\n$$\nda\n$$\nWORT $$x * y$$, \\(x_1 * y_1\\) UND \\[ x = y \\]\n",
    "\\[\nda\n\\]\n",
    "DAS KOSTET $5 ODER $10\n",
    "EIN __:wort: WORT__ UND {ref}`da`\n",
    "*[WORT]: wort\n--8<-- 'da'\n",
    "[EIN WORT]({{ '/da' | url }}) DA\n",
    "> A\\\n>   B\n\n- A  \r\n  B\r\n",
    "- \\[ ] EIN WORT\n- \\[!DA]\n\n\\:::DA\n\n\\>DA\n",
    "## [v1.2.0] - 2024\n\n[v1.2.0]: da\n",
    "[WORT](https://x.de/a_b)\n",
    "[EIN [1] WORT](da) [[2]](da)\n",
    "[WORT](javascript:da) DA\n",
    "[WORT][da.hund]\n",
]


@pytest.mark.parametrize("expected", [*INLINE, *BLOCKS, *COPIED])
def test_texts_are_translated_and_the_rest_is_copied(expected: str) -> None:
    source = WORDS.sub(lambda word: word[0].lower(), expected)
    assert echoed(source, MARKDOWN) == expected


def test_a_paragraph_becomes_one_line() -> None:
    assert echoed("> Ein Hund\n> rennt.\n", MARKDOWN) == "> EIN HUND RENNT.\n"


@pytest.mark.parametrize("text", ["https://x.de/a_b?c=d*e", "ftp://x.de", "www.x.de/a_b", "a.b@x.de"])
def test_addresses_are_copied(text: str) -> None:
    assert echoed(f"Hund {text}, da [{text}](x) und\n\n{text}", MARKDOWN, str) == (
        f"Hund {text}, da [{text}](x) und\n\n{text}"
    )
    assert has_copied(text)


def has_copied(text: str) -> bool:
    """Return whether a text is copied inside of a paragraph."""
    (segment,) = [part for part in MARKDOWN.parse(f"Hund {text} da") if isinstance(part, Segment)]
    return [child.verbatim for child in segment.root.children] == [text]


def test_a_link_keeps_its_label_if_its_text_is_translated() -> None:
    definitions = "\n\n[Hund]: a\n[*Mann* da]: b\n[x]: c"
    source = "[Hund], [Hund][], [*Mann*\nda] und [Frau][x]" + definitions
    assert echoed(source, MARKDOWN) == "[HUND][Hund], [HUND][Hund], [*MANN* DA][*Mann* da] UND [FRAU][x]" + definitions
    result = echoed("[Hund] [Hund][]" + definitions, MARKDOWN, str)
    assert result == "[Hund] [Hund][]" + definitions


def test_prose_between_escaped_brackets_is_translated() -> None:
    assert echoed("\\(siehe oben\\) und \\[Quelle fehlt\\]", MARKDOWN) == "(SIEHE OBEN) UND [QUELLE FEHLT]"


def test_blocks_of_copied_elements_only_are_not_translated() -> None:
    source = "`wort`\n\n$x$\n\n|`a`|\n|-|\n|`b`|\n\nhttps://x.de\n"
    assert MARKDOWN.parse(source) == [source]


# A translation with "<" and ">" around emphasis, and what is written.
EMPHASIS = [
    ("<**x？**>我", "**x**？我", "<strong>x</strong>？我"),
    ("我<**“x”**>我", "我&#8203;**“x”**&#8203;我", "我\u200b<strong>“x”</strong>\u200b我"),
    ("我<_x_>我", "我*x*我", "我<em>x</em>我"),
    ("我<__x__>我<**y**>", "我**x**我**y**", "我<strong>x</strong>我<strong>y</strong>"),
    ("<*a*><**b**>", "*a*&#8203;**b**", "<em>a</em>\u200b<strong>b</strong>"),
    ("<****>a <_b_>", "a _b_", "a <em>b</em>"),
    ("<_a_> <~~b!~~> c", "_a_ ~~b!~~ c", "<em>a</em> <s>b!</s> c"),
    ("<`a`<`b`<**c**>", "`a`&#8203;`b`**c**", "<code>a</code>\u200b<code>b</code><strong>c</strong>"),
    ("我<**<`a`**>我", "我&#8203;**`a`**&#8203;我", "我\u200b<strong><code>a</code></strong>\u200b我"),
]


@pytest.mark.parametrize(("marked", "written", "html"), EMPHASIS)
def test_emphasis_is_closed_whatever_its_neighbors_are(marked: str, written: str, html: str) -> None:
    text = close_emphasis(marked.replace("<", OPENED).replace(">", CLOSED))
    assert text == written
    assert GFM.renderInline(text) == html


def test_spans_of_code_never_become_one() -> None:
    # Without the word between them, "``" would be the delimiter of one span of code.
    written = echoed("`a`和`b`，我", MARKDOWN, lambda text: text.replace("和", "").upper())
    assert GFM.renderInline(written) == "<code>a</code>\u200b<code>b</code>，我"


def test_a_comment_begins_no_block() -> None:
    written = echoed("Der <!-- a -->Hund\n", MARKDOWN, lambda _: "Hund")
    assert GFM.render(written) == "<p>\u200b<!-- a -->Hund</p>\n"


MARKS_WITHOUT_END = ["{{", "{%", "$", "$$", "\\(", "\\[\n", "[[", "a@", "{% highlight\n", "!!! a\n", "[^a]: "]


def test_many_unfinished_constructs_take_linear_time() -> None:
    for mark in MARKS_WITHOUT_END:
        MARKDOWN.parse(mark * 5_000)


def test_entities_become_characters() -> None:
    assert echoed("a \\*b\\* snake_case &amp; x < y", MARKDOWN) == "A \\*B\\* SNAKE_CASE & X < Y"


# Texts that would be marks.
LOOK_ALIKES = ["- x", "1. x", "# x", "> x", "*x*", "`x`", "<b>", "[x](y)", "&lt;", "a_ _b", "~~x~~", "~x~"]


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
    before = GFM.render(text)
    copied = echoed(text, MARKDOWN, str)
    after = GFM.render(copied)
    assert words_of_page(after) == words_of_page(before)
    result = Counter(TAG.findall(after))
    assert result == Counter(TAG.findall(before))


def test_a_missing_library_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    markdown_it.cache_clear()
    with pytest.raises(InputError, match="markdown-it-py and mdit-py-plugins are not installed") as caught:
        MARKDOWN.parse("a")
    assert caught.value.hint == "pip install 'nmt-trainer[documents]'"
