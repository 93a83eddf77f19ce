"""Where tags go, by links written by hand; every tag once, well nested, whatever the links."""

import re
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import small_translator

from nmt.documents.html import HTML
from nmt.documents.markup import STAND_IN, Segment, descendants, shown_by_stand_in
from nmt.text.lines import Pause
from nmt.text.spans import indices_between
from nmt.translate.align import Links
from nmt.translate.markup import MarkupTranslator
from nmt.translate.options import TranslationOptions
from nmt.translate.placement import Placement, TaggedPair, cut_spans, word_spans
from nmt.translate.tags import show_opaque
from nmt.translate.units import Markup, TextHypothesis, Translation

TRANSLATOR = small_translator()
MARKUP_TRANSLATOR = MarkupTranslator(TRANSLATOR, HTML)


def tagged_pair(segment: Segment, translation: str) -> TaggedPair:
    """Return a segment of one sentence with its translation."""
    hypothesis = TextHypothesis([], [], 0.0, [], translation)
    hypothesis.sentences = [(0, len(translation))]
    source = Translation(segment.text, [hypothesis])
    source.sentences = [(0, len(segment.text))]
    markup = Markup(segment.root, HTML.escape)
    return TaggedPair(markup, source, hypothesis)


def written(pair: TaggedPair, links: Links) -> str:
    """Return the translation of a pair with tags, given links that all have the same weight."""
    pair.links = links
    for t, shares in enumerate(pair.shares):
        sources = [source for source, target in links if target == t]
        for s in sources:
            shares[s] = 1 / len(sources)
    return Placement(pair).written()


def links_of(text: str) -> Links:
    """Return links that are written as `source-target`."""
    pairs = []
    for link in text.split():
        s, t = link.split("-")
        pairs.append((int(s), int(t)))
    return pairs


def placed(source: str, translation: str, links: str) -> str:
    """The translation of one segment of HTML with its tags. A circled number is the stand-in with this number."""
    (segment,) = [part for part in HTML.parse(source) if isinstance(part, Segment)]
    for number, stand_in in zip("①②", STAND_IN.findall(segment.text), strict=False):
        translation = translation.replace(number, stand_in)
    return written(tagged_pair(segment, translation), links_of(links))


# An element encloses the translations of its source words. Links are between words and punctuation marks.
PLACED = [
    ("Ein <b>Hund</b> rennt.", "A dog runs.", "0-0 1-1 2-2 3-3", "A <b>dog</b> runs."),
    ("<b>Ein Hund rennt.</b>", "A dog runs.", "", "<b>A dog runs.</b>"),
    ("<b>Ein Hund</b> rennt", "A dog runs", "0-0 1-1 2-2", "<b>A dog</b> runs"),
    ("<i>der <b>rote</b> Hund</i> da", "that red dog", "0-0 1-1 2-2 3-0", "<i>that <b>red</b> dog</i>"),
    ("<i>a <b>b</b></i> c", "c b a", "0-2 1-1 2-0", "c <i><b>b</b> a</i>"),
    ("<i>ein</i><b>zig</b>artig", "unique thing", "0-0 1-0", "<i></i>unique<b></b> thing"),
    ("Hund<img/> da", "there dog", "0-1 1-0", "there dog<img/>"),
    ("Hund <img/>da", "there dog", "0-1 1-0", "<img/>there dog"),
    ("a <i></i> b", "b a", "0-1 1-0", "<i></i> b a"),
    ("a b <i>c</i>", "x y z", "", "x y <i></i>z"),
    ("<b>das <img> ist</b> gut", "good is that", "0-2 1-1 2-0", "good <b><img> is that</b>"),
    # An interval leaves out what belongs to other words, if that is more.
    ("<b>a b</b> c d e", "a c d e b", "0-0 1-4 2-1 3-2 4-3", "<b>a</b> c d e b"),
    ("<i>a</i> &amp; <b>b</b>", "x & < y", "0-0 2-3", "<i>x</i> &amp; &lt; <b>y</b>"),
    ("<b>the option</b> a", "l’option a", "0-0 1-0 2-1", "<b>l’option</b> a"),
]
# An opaque element replaces its stand-in. A footnote mark follows the translation of the word before it.
OPAQUE = [
    ("nimm <code>a &lt; b</code> jetzt", "now take ①", "0-1 2-0", "now take <code>a &lt; b</code>"),
    ("<code>x</code> und <code>y</code>", "② and ①", "0-0 1-1", "<code>y</code> and <code>x</code>"),
    ("<code>x</code> und x", "x and ①", "1-1 2-0", "x and <code>x</code>"),
    ("<b>nimm <code>x</code></b> da", "there take the ①", "0-1 2-0", "there <b>take the <code>x</code></b>"),
    ("nimm <code>x</code> da", "take there", "0-0 2-1", "take <code>x</code>there"),
    ("<i>rot</i> <b>x <code>y</code></b>", "x red ① y", "0-1 1-0", "x <i>red</i> <b><code>y</code></b> y"),
    ("Buch<sup>[1]</sup>, da", "there, book", "0-2 1-1 2-0", "there, book<sup>[1]</sup>"),
    ("Buch<sup>1</sup> da", "a book there", "1-2", "a book<sup>1</sup> there"),
    ("<a>das Buch</a>, <img>", "book the,", "0-1 1-0 2-2", "<a>book the</a>, <img>"),
    ("<a>das Buch</a>, <img>", "it, this", "0-2 1-0 2-1", "<img> <a>it, this</a>"),
    ("买<sup>1</sup>书", "a book bought", "0-2 1-1", "a book bought<sup>1</sup>"),
    ("Tür <b>3</b>.", "door ①.", "0-0 2-2", "door <b>3</b>."),
    ("<ruby>我<rt>wǒ</rt></ruby>买", "bought I", "0-1 1-0", "bought <ruby>I<rt>wǒ</rt></ruby>"),
]
# An element within a word encloses the same characters in the target word. If that word lacks them, the element goes
# beside it. Tags split words into parts, and links are between these parts.
IN_WORDS = [
    ("H<sub>2</sub>O da", "there H2O", "0-1 1-1 2-1 3-0", "there H<sub>2</sub>O"),
    ("<b>H</b>aus", "house", "0-0 1-0", "<b></b>house"),
    ("<b>H</b>aus", "Hof", "0-0 1-0", "<b>H</b>of"),
    ("n<sup>te</sup> da", "there te nth", "0-2 1-2 2-0", "there te nth<sup></sup>"),
    ("<a>서울</a>에 가다", "go to Seoul", "0-2 1-1 2-0", "go to <a>Seoul</a>"),
    ("1<sup>er</sup> da", "there first", "0-1 1-1 2-0", "there first<sup></sup>"),
    ("<a>das Haus</a>es da", "there das Hauses", "0-1 1-2 2-2 3-0", "there <a>das Haus</a>es"),
    ("x<sup>1 y</sup> da", "da x1 y", "0-1 1-1 2-2 3-0", "da x<sup>1 y</sup>"),
    ("<a>das Haus</a>es da", "there the houses", "0-1 1-2 2-2 3-0", "there <a>the houses</a>"),
    ("<b>das Haus</b><i>tür da</i>", "das Haustür there", "0-0 1-1 2-1 3-2", "<b>das Haus</b><i>tür there</i>"),
    (
        "<b>das H</b><i>austür da so</i>",
        "das Haustür there so",
        "0-0 1-1 2-1 3-2 4-3",
        "<b>das H</b><i>austür there so</i>",
    ),
    ("Haus<!-- x -->tür da", "there Haustür", "0-1 1-1 2-0", "there Haus<!-- x -->tür"),
    ("ein<i>zig</i>a<b>rt</b>ig", "einzigartig", "0-0 1-0 2-0 3-0 4-0", "ein<i>zig</i>a<b>rt</b>ig"),
    (
        "ein<i>zig</i>art<b>ig da</b> so",
        "so einzigartig da",
        "0-1 1-1 2-1 3-1 4-2 5-0",
        "so ein<i>zig</i>art<b>ig da</b>",
    ),
]


@pytest.mark.parametrize(("source", "translation", "links", "expected"), [*PLACED, *OPAQUE, *IN_WORDS])
def test_elements_are_placed_by_links(source: str, translation: str, links: str, expected: str) -> None:
    assert placed(source, translation, links) == expected


def test_the_pairs_of_a_translation_have_what_a_reader_sees() -> None:
    line = "nimm <code>a &lt; b</code> <ruby>da<rt>x</rt></ruby>"
    (segment,) = [part for part in HTML.parse(line) if isinstance(part, Segment)]
    sentence = Translation(segment.text, [TextHypothesis([], [], 0.0, [], f"take {segment.text[5]}")])
    show_opaque(Translation(segment.text, [], parts=[sentence]), shown_by_stand_in(segment.root, segment.text))
    assert (sentence.source, sentence.text) == ("nimm a < b da", "take a < b")


def test_a_target_word_that_belongs_to_an_element_with_nearly_even_chances_is_in_it() -> None:
    segment = next(part for part in HTML.parse("Ein <b>Hund</b> rennt") if isinstance(part, Segment))
    pair = tagged_pair(segment, "A dog runs")
    pair.links = links_of("0-0 1-1 1-2")
    pair.shares = [{0: 1.0}, {1: 1.0}, {1: 0.45, 2: 0.55}]
    assert Placement(pair).written() == "A <b>dog runs</b>"


def test_words_are_cut_at_tags() -> None:
    text = "ein-zig’s 我们。"
    words = [text[start:end] for start, end in cut_spans(word_spans(text), [1, 4])]
    assert words == ["e", "in", "-", "zig’s", "我", "们", "。"]


@pytest.mark.parametrize("word", ["हिन्दी", "ko\u0308nnte", "кни\u0301га", "ที่", "ရောင်း", "ស្ត្រី", "ເກົ່າ", "རྒྱབ་", "בַּיִת"])
def test_marks_belong_to_their_letters(word: str) -> None:
    assert word_spans(word) == [(0, len(word))]


# --- whatever the links -----------------------------------------------------------------------------------

WORDS = st.sampled_from(["a", "b.c", "ü", "我", "&amp;", "&lt;", "-"])
TAGS = st.sampled_from(["b", "i", "span x='>'", 'a href="&quot;<"', "code", "img/"])
TAG = re.compile(r"""<(?:[^<>"']|"[^"]*"|'[^']*')*>""")
TAG_OR_SPACE = re.compile(f"{TAG.pattern}| ")


def element(tag: str, content: list[str]) -> str:
    if tag == "img/":
        return f"<{tag}>"
    name, *_ = tag.split()
    return f"<{tag}>{' '.join(content)}</{name}>"


@st.composite
def inline(draw: st.DrawFn, depth: int = 3) -> list[str]:
    """Words, and elements with words and elements in them."""
    items = WORDS
    if depth:
        items |= st.builds(element, TAGS, inline(depth - 1))
    return draw(st.lists(items, max_size=5))


FRAGMENTS = inline().map(" ".join)


def without_spaces(fragment: str) -> str:
    """Remove the spaces outside of tags."""
    return TAG_OR_SPACE.sub(lambda match: match[0].strip(), fragment)


WITHOUT_SPACES = FRAGMENTS.map(without_spaces)


def random_links(data: st.DataObject, pair: TaggedPair) -> Links:
    n_source, n_target = len(pair.source_words), len(pair.target_words)
    if not n_source or not n_target:
        return []
    sources = st.integers(0, n_source - 1)
    targets = st.integers(0, n_target - 1)
    links = st.lists(st.tuples(sources, targets), unique=True)
    return sorted(data.draw(links))


def parsed(html: str) -> ElementTree.Element:
    """Parse HTML as XML, in which an attribute's value has no `<`."""
    xml = html.replace('"&quot;<"', '"&quot;"')
    return ElementTree.fromstring(f"<r>{xml}</r>")


@given(FRAGMENTS | WITHOUT_SPACES, st.data())
def test_every_tag_is_written_once_and_well_nested_whatever_the_links(fragment: str, data: st.DataObject) -> None:
    new = ""
    for part in HTML.parse(fragment):
        if isinstance(part, str):
            new += part
            continue
        translation = data.draw(st.sampled_from(["", "x", "x, y < z.", "a b c d", part.text]))
        opaque = [element for element in descendants(part.root) if element.verbatim is not None]
        pair = tagged_pair(part, translation)
        tagged = written(pair, random_links(data, pair))
        if not opaque:
            text = "".join(parsed(tagged).itertext())
            assert "".join(text.split()) == "".join(translation.split())
        new += tagged
    result = Counter(TAG.findall(new))
    assert result == Counter(TAG.findall(fragment))
    parsed(new)  # it is well nested


def links_to_itself(pair: TaggedPair) -> Links:
    """Return links of all parts of words to the words, in a translation that is the text itself."""
    links = []
    for t, word in enumerate(pair.target_words):
        links += [(s, t) for s in indices_between(pair.source_words, *word)]
    return links


@given(FRAGMENTS | WITHOUT_SPACES)
def test_if_every_word_stays_so_does_the_fragment(fragment: str) -> None:
    new = ""
    for part in HTML.parse(fragment):
        if isinstance(part, Segment):
            pair = tagged_pair(part, part.text)
            new += written(pair, links_to_itself(pair))
        else:
            new += part
    result = "".join(new.split())
    assert result == "".join(fragment.split())


# --- lines with markup ------------------------------------------------------------------------------------


def translated(lines: Sequence[str | Pause], options: TranslationOptions | None = None, window: int = 9) -> list[str]:
    translations = MARKUP_TRANSLATOR.translate_lines(lines, options, window=window)
    return [translation.text for translation in translations]


def test_one_warning_names_the_cut_lines_of_a_window(caplog: pytest.LogCaptureFixture) -> None:
    options = TRANSLATOR.with_options(beam=1, max_length_a=0, max_length_b=1)
    translated(["the <b>dog</b>", "", "a cat. a dog.", "the cat"], options)
    (warning,) = caplog.messages
    assert "3 lines (1, 3, 4)" in warning


TAGGED = [
    ("the red dog runs.", "<p>the <b>red</b> dog runs.</p>"),
    ("a cat", "<i>a cat</i><br>"),
    ("where is the small house?", "where is <a href='x'>the <b>small</b></a> house?"),
]


@pytest.mark.parametrize(("plain", "tagged"), TAGGED)
def test_text_is_that_of_the_translation_without_tags(plain: str, tagged: str) -> None:
    (text,) = translated([tagged])
    (without_tags,) = TRANSLATOR.translate([plain])
    assert TAG.sub("", text) == without_tags
    result = Counter(TAG.findall(text))
    assert result == Counter(TAG.findall(tagged))


@pytest.mark.parametrize("symbols", [False, True])
def test_an_opaque_element_is_written_once_whatever_the_model_writes(symbols: bool) -> None:
    translator = MarkupTranslator(small_translator(placeholders=symbols), HTML)
    keys, mark = "<kbd>a&lt;</kbd>+<kbd><b>b</b></kbd><kbd>c</kbd>", "<sup>[1]</sup>"
    lines = [f"the dog {keys} runs.", f"the dog{mark} runs {{{{ a > b }}}} the cat."]
    first, second = [translation.text for translation in translator.translate_lines(lines)]
    assert first.count(keys) == second.count(mark) == second.count("{{ a > b }}") == 1
    assert not STAND_IN.search(first + second)
    assert "[1]" not in second.replace(mark, "")


def test_lines_without_text_are_copied() -> None:
    lines = ["", "<hr>", "<b> </b>", "<!-- x -->"]
    assert translated(lines) == lines


def test_a_pause_is_not_a_line() -> None:
    translations = MARKUP_TRANSLATOR.translate_lines(["", Pause(), "<hr>"])
    assert [translation.source for translation in translations] == ["", "<hr>"]


@pytest.mark.parametrize("window", [1, 2, 10])
def test_a_sample_depends_on_the_line_and_the_text_in_it_not_on_other_lines(window: int) -> None:
    options = TRANSLATOR.with_options(sample=True, beam=1, max_length_b=10)
    plain = TRANSLATOR.translate_lines(["a", "", "the red dog", "a cat"], options)
    # Markup characters in translations are escaped.
    *_, of_third, of_fourth = [HTML.escape(translation.text) for translation in plain]
    tagged = ["<p>the dog</p><p>a cat</p>", "<hr>", "<p>the red dog</p><p>the red dog</p>", "a cat"]
    _, _, third, fourth = translated(tagged, options, window)
    first, second = third.removeprefix("<p>").removesuffix("</p>").split("</p><p>")
    assert first == of_third
    assert second != of_third
    assert fourth == of_fourth


def test_messages_name_the_line_not_the_text(caplog: pytest.LogCaptureFixture) -> None:
    translated(["<p>a</p>", f"<p>a</p><p>{'the dog runs ' * 30}</p>"])
    assert caplog.messages[0].startswith("line 2 has ")
