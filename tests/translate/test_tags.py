"""Where tags go, by links written by hand; every tag once, well nested, whatever the links."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import small_translator

from nmt.documents.html import HTML
from nmt.documents.markup import Segment
from nmt.text.lines import Pause
from nmt.translate.markup import MarkupTranslator
from nmt.translate.placement import Placement, TaggedPair, word_spans
from nmt.translate.units import Markup, TextHypothesis, Translation


def pair_of(html: str, translation: str) -> TaggedPair:
    """Return a fragment of one unit of one sentence, with its translation."""
    (segment,) = (part for part in HTML.parse(html) if isinstance(part, Segment))
    return tagged_pair(segment, translation)


def tagged_pair(segment: Segment, translation: str) -> TaggedPair:
    hypothesis = TextHypothesis([], [], 0.0, [], translation, sentences=[(0, len(translation))])
    source = Translation(segment.text, [hypothesis], sentences=[(0, len(segment.text))])
    return TaggedPair(Markup(segment.root, HTML.escape), source, hypothesis)


def marked(html: str, translation: str, links: str) -> str:
    """The translation with tags, given links between the words and punctuation marks of both texts."""
    pair = linked(pair_of(html, translation), [tuple(map(int, link.split("-"))) for link in links.split()])
    return Placement(pair).written()


def linked(pair: TaggedPair, links: Iterable[tuple[int, ...]]) -> TaggedPair:
    pair.links = [(s, t) for s, t in links]
    for t, shares in enumerate(pair.shares):
        of_word = [s for s, target in pair.links if target == t]
        shares |= dict.fromkeys(of_word, 1 / max(len(of_word), 1))
    return pair


@pytest.mark.parametrize(
    ("source", "translation", "links", "expected"),
    [
        ("Ein <b>Hund</b> rennt.", "A dog runs.", "0-0 1-1 2-2 3-3", "A <b>dog</b> runs."),
        ("Ich habe <i>ein Buch</i> gekauft", "I bought a book", "0-0 1-1 2-2 3-3 4-1", "I bought <i>a book</i>"),
        ("<b>Gestern</b> regnete es", "It rained yesterday", "0-2 1-1 2-0", "It rained <b>yesterday</b>"),
        ("<b>Ein Hund rennt.</b>", "A dog runs.", "", "<b>A dog runs.</b>"),
        ("<b>Ein Hund</b> rennt", "A dog runs", "1-1 2-2", "<b>A dog</b> runs"),
        ("Er <b>gibt</b> es <b>auf</b>", "He gives it up", "0-0 1-1 2-2 3-3", "He <b>gives</b> it <b>up</b>"),
        ("<i>der <b>rote</b> Hund</i> da", "that red dog", "0-0 1-1 2-2 3-0", "<i>that <b>red</b> dog</i>"),
        ("<i>a <b>b</b></i> c", "c b a", "0-2 1-1 2-0", "c <i><b>b</b> a</i>"),
        ("<i>ein</i><b>zig</b>artig", "unique thing", "0-0 1-0", "<b></b><i>unique</i> thing"),
        ("Hund<img/> da", "there dog", "0-1 1-0", "there dog<img/>"),
        ("Hund <img/>da", "there dog", "0-1 1-0", "<img/>there dog"),
        ("a <i></i> b", "b a", "0-1 1-0", "<i></i> b a"),
        ("a b <i>c</i>", "x y z", "", "x y <i></i>z"),
        ("<b>das <img> ist</b> gut", "good is that", "0-2 1-1 2-0", "good <b><img> is that</b>"),
        ("<code>a b c d e</code> f", "a b f c d e", "0-0 1-1 5-2 2-3 3-4 4-5", "a b f <code>a b c d e</code>"),
        ("nimm <code>ls -l</code> da", "take ls -l there", "0-0 1-3", "take <code>ls -l</code> there"),
        ("nimm <code>a &lt; b</code> jetzt", "now take a < b", "0-1 1-2 2-3 3-4 4-0", "now take <code>a &lt; b</code>"),
        ("<b>a x b</b> <code>x</code>", "a x b y x", "0-0 1-1 2-2 3-4", "<b>a x b</b> y <code>x</code>"),
        ("the <code>option</code> a", "l’option a", "0-0 1-0 2-1", "l’<code>option</code> a"),
        ("the <code>foo</code> value", "der foowert", "0-0 1-1 2-1", "der <code>foo</code>wert"),
        ("take <code>foo</code> x", "nimm Foox", "0-0 1-1 2-1", "nimm <code>foo</code>Foox"),
        ("<i>a</i> &amp; <b>b</b>", "x & < y", "0-0 2-3", "<i>x</i> &amp; &lt; <b>y</b>"),
    ],
)
def test_tags_go_around_the_words_that_the_tagged_ones_became(
    source: str, translation: str, links: str, expected: str
) -> None:
    assert marked(source, translation, links) == expected


def test_an_interval_leaves_out_what_belongs_to_other_words_if_it_is_more() -> None:
    assert marked("<b>a b</b> c d e", "a c d e b", "0-0 1-4 2-1 3-2 4-3") == "<b>a</b> c d e b"
    assert marked("<b>a b c</b> d", "a b d c", "0-0 1-1 2-3 3-2") == "<b>a b</b> d c"


def test_words_are_cut_at_tags() -> None:
    text = "ein-zig’s 我们。"
    assert [text[start:end] for start, end in word_spans(text, [1, 4])] == ["e", "in", "-", "zig’s", "我", "们", "。"]
    for word in ("हिन्दी", "ko\u0308nnte", "кни\u0301га", "ที่"):
        assert word_spans(word)[0] == (0, len(word) if word != "ที่" else 3), "marks belong to their letters"


WORDS = ["a", "b.c", "ü", "我", "&amp;", "&lt;", "-"]
TAGS = ["b", "i", "span x='>'", 'a href="&quot;<"', "code", "img/"]


def element(tag: str, content: list[str]) -> str:
    return f"<{tag}>" if tag == "img/" else f"<{tag}>{' '.join(content)}</{tag.split()[0]}>"


@st.composite
def inline(draw: st.DrawFn, depth: int = 3) -> list[str]:
    """Words, and elements with words and elements in them."""
    one = st.sampled_from(WORDS)
    items = one if not depth else one | st.builds(element, st.sampled_from(TAGS), inline(depth - 1))
    return draw(st.lists(items, max_size=5))


FRAGMENTS = inline().map(" ".join)
TAG = re.compile(r"""<(?:[^<>"']|"[^"]*"|'[^']*')*>""")


@given(FRAGMENTS, st.data())
def test_every_tag_is_written_once_and_well_nested_whatever_the_links(fragment: str, data: st.DataObject) -> None:
    written = ""
    for part in HTML.parse(fragment):
        if isinstance(part, str):
            written += part
            continue
        pair = tagged_pair(part, data.draw(st.sampled_from(["", "x", "x, y < z.", "a b c d"])))
        n_source, n_target = len(pair.source_words), len(pair.target_words)
        links: list[tuple[int, int]] = []
        if n_source and n_target:
            words = st.tuples(st.integers(0, n_source - 1), st.integers(0, n_target - 1))
            links = data.draw(st.lists(words, unique=True))
        tagged = Placement(linked(pair, sorted(links))).written()
        if "<code>" not in tagged:
            text = "".join(ElementTree.fromstring(f"<r>{entities(tagged)}</r>").itertext())
            assert "".join(text.split()) == "".join(pair.target.split())
        written += tagged
    assert Counter(TAG.findall(written)) == Counter(TAG.findall(fragment))
    ElementTree.fromstring(f"<r>{entities(written)}</r>")


def entities(html: str) -> str:
    """HTML as XML, in which an attribute's value has no `<`."""
    return html.replace('"&quot;<"', '"&quot;"')


@given(FRAGMENTS)
def test_if_every_word_stays_so_does_the_fragment(fragment: str) -> None:
    written = ""
    for part in HTML.parse(fragment):
        if isinstance(part, Segment):
            pair = tagged_pair(part, part.text)
            pair.target_words = pair.source_words  # cut at tags, as the source
            pair.shares = [{} for _ in pair.target_words]
            part = Placement(linked(pair, [(i, i) for i in range(len(pair.source_words))])).written()
        written += part
    assert re.sub(r"\s", "", written) == re.sub(r"\s", "", fragment)


def translated(lines: Sequence[str | Pause], **arguments: Any) -> list[Translation]:
    return list(MarkupTranslator(small_translator(), HTML).translate_lines(lines, **arguments))


def test_one_warning_names_the_cut_lines_of_all_windows(caplog: pytest.LogCaptureFixture) -> None:
    short = small_translator().with_options(beam=1, max_length_a=0, max_length_b=1)
    translated(["the <b>dog</b>", "", "a cat. a dog.", "the cat"], window=2, options=short)
    (warning,) = [record.getMessage() for record in caplog.records if "cut off" in record.getMessage()]
    assert "3 lines (1, 3, 4)" in warning


def test_text_is_that_of_the_translation_without_tags() -> None:
    plain = ["the red dog runs.", "a cat", "where is the small house?"]
    tagged = ["<p>the <b>red</b> dog runs.</p>", "<i>a cat</i><br>", "where is <a href='x'>the <b>small</b></a> house?"]
    expected = small_translator().translate(plain)
    found = translated(tagged, window=2)
    assert [one.source for one in found] == tagged
    assert [re.sub("<.*?>", "", one.text) for one in found] == expected
    assert [Counter(TAG.findall(one.text)) for one in found] == [Counter(TAG.findall(line)) for line in tagged]


def test_lines_without_text_are_copied_and_a_pause_is_nothing() -> None:
    lines = ["", "<hr>", "<b> </b>", "<!-- x -->"]
    calls: list[int] = []
    found = translated([lines[0], Pause(), *lines[1:]], after_window=lambda: calls.append(1))
    assert [one.text for one in found] == lines
    assert calls == [1, 1], "a pause ends a window"


@pytest.mark.parametrize("window", [1, 2, 10])
def test_a_sample_depends_on_the_line_and_the_text_in_it_not_on_other_lines(window: int) -> None:
    translator = small_translator()
    options = translator.with_options(sample=True, beam=1, max_length_b=10)
    plain = [one.text for one in translator.translate_lines(["a", "", "the red dog", "a cat"], options)]
    tagged = ["<p>the dog</p><p>a cat</p>", "<hr>", "<p>the red dog</p><p>the red dog</p>", "a cat"]
    found = [one.text for one in translated(tagged, options=options, window=window)]
    first, second = re.fullmatch("<p>(.*)</p><p>(.*)</p>", found[2]).groups()  # type: ignore[union-attr]
    assert first == HTML.escape(plain[2]) != second
    assert found[3] == HTML.escape(plain[3])


def test_messages_name_the_line_not_the_text(caplog: pytest.LogCaptureFixture) -> None:
    translated([f"<p>a</p><p>{'the dog runs ' * 30}</p>", f"<p>{'a cat ' * 60}</p>"], first=7)
    split = [message for message in caplog.messages if "pieces, the model takes" in message]
    assert [message.split(" has ")[0] for message in split] == ["line 7", "line 8"]
