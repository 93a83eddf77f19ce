"""Headlines get sentence case, and their translations the case of the headline; other lines stay as they are."""

import functools
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import small_translator

from nmt.config import TokenizerSettings
from nmt.text.capitals import in_sentence_case, in_title_case
from nmt.text.lines import iter_lines
from nmt.text.placeholders import patterns_of
from nmt.text.tokenizer import Tokenizer
from nmt.text.tokenizer_training import train_tokenizer
from nmt.text.words import WordText
from nmt.translate.align import align
from nmt.translate.segments import Line

DATA = Path(__file__).parents[2] / "data/zh-en"
GERMAN = [
    "Ein Mann mit einem roten Hut spielt eine Gitarre.",
    "Der Hund und das Kind sehen den Mann mit der Gitarre.",
    "Die NASA zeigt dem Kind ein T-Shirt mit einem Hund.",
    "Das Kind spielt mit dem roten Hund und sieht die NASA.",
]
HEADLINES = ["THE RED DOG RUNS.", "A CAT SLEEPS HERE!", "WHERE IS THE SMALL HOUSE?"]
PLAIN = ["the red dog runs.", "a cat sleeps here!", "where is the small house?"]  # the model knows no capitals


@functools.cache
def german() -> Tokenizer:
    settings = TokenizerSettings(type="bpe", vocab_size=150, byte_fallback=False)
    return Tokenizer(train_tokenizer(GERMAN * 50, settings).model)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GERMAN[0].upper(), GERMAN[0]),
        (GERMAN[2].upper(), GERMAN[2]),
        ("DER HUND? DAS KIND: „DER HUT!“", "Der Hund? Das Kind: „der Hut!“"),
        ("DER HUT DES HuNDES UND DAS KIND", "Der Hut des Hundes und das Kind"),
        ("Ein Mann Mit Einem Roten Hut Spielt Eine Gitarre.", GERMAN[0]),
        ("Die NASA Zeigt Dem Kind Ein T-Shirt Mit Einem Hund.", GERMAN[2]),
        ("Der Hund und das Kind Sehen Einem Roten Hut", "Der Hund und das Kind sehen einem roten Hut"),
    ],
)
def test_a_line_in_capitals_or_title_case_gets_sentence_case(text: str, expected: str) -> None:
    new, style = in_sentence_case(text, german())
    assert new == expected
    styled = "DON'T STOP A T-SHIRT (2ND)." if text[1].isupper() else "Don't Stop A T-shirt (2nd)."
    assert style("don't stop a T-shirt (2nd).") == styled


@pytest.mark.parametrize(
    "text",
    [*GERMAN, "Der Hund", "Der Hund Spielt", "NASA", "ACHTUNG!", "Die NASA", "我用 USB 线", "", " ", "12:30", "A 1"],
)
def test_other_lines_stay(text: str) -> None:
    assert in_sentence_case(text, german()) == (text, str)


def test_no_line_of_a_corpus_is_a_headline() -> None:
    lines = list(islice(iter_lines([DATA / "train.en"]), 4000))
    tokenizer = Tokenizer(train_tokenizer(lines, TokenizerSettings(vocab_size=1000)).model)
    assert [line for line in lines if in_sentence_case(line, tokenizer)[1] is not str] == []
    headlines = [in_title_case(line) for line in lines if len(line.split()) > 7]
    assert sum(in_sentence_case(line, tokenizer)[1] is in_title_case for line in headlines) > 0.9 * len(headlines)


@given(st.text(alphabet="aßéИиΣσςİıÀǆﬁ我 -'.⟦1⟧\tTITLE") | st.text())
def test_characters_stay_in_their_places(text: str) -> None:
    new, style = in_sentence_case(text, german())
    assert len(new) == len(text)
    assert new.upper().replace("İ", "I") == text.upper().replace("İ", "I")
    style(text)


def test_a_translation_is_in_capitals_as_its_source_is() -> None:
    translator = small_translator()
    options = translator.with_options(n_best=3)
    plain, found = (list(translator.translate_lines(lines, options)) for lines in (PLAIN, HEADLINES))
    assert [one.source for one in found] == HEADLINES
    for of_plain, of_headline in zip(plain, found, strict=True):
        assert [one.text for one in of_headline.hypotheses] == [one.text.upper() for one in of_plain.hypotheses]

    def shown(line: str) -> list[str]:
        texts: list[str] = []
        translator.start([Line(1, line)], options, 1, lambda text_of: texts.append(text_of(0)))()
        return texts

    assert shown(HEADLINES[0]) == [text.upper() for text in shown(PLAIN[0])] != shown(PLAIN[0])
    pairs = [[(WordText.split(line), WordText.split(line)) for line in lines] for lines in (PLAIN, HEADLINES)]
    assert list(align(translator, pairs[0])) == list(align(translator, pairs[1]))


def test_placeholders_in_headlines_stay() -> None:
    translator = small_translator()
    translator.protected = patterns_of([])
    (found,) = translator.translate(["THE {name} DOG RUNS TO http://a.b/c"])
    assert "{name}" in found
    assert "http://a.b/c" in found


def test_white_space_that_the_model_does_not_know_is_read_as_spaces() -> None:
    """Models spell it in bytes; a translation would be lost."""
    translator, line = small_translator(), "the red dog runs."
    others = [line.replace(" ", "\t"), line.replace(" ", "\u00a0")]
    assert translator.translate(others) == translator.translate([line] * 2)
    settings = TokenizerSettings(type="bpe", vocab_size=150, byte_fallback=False)
    known = Tokenizer(train_tokenizer([text.replace("Hund ", "Hund\u00a0") for text in GERMAN * 50], settings).model)
    assert known.with_known_characters("a\u00a0b\tÉ") == "a\u00a0b E"
