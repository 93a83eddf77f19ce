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
from nmt.text.tokenizer import Tokenizer
from nmt.text.tokenizer_training import train_tokenizer
from nmt.text.words import WordText
from nmt.translate.align import align
from nmt.translate.translator import Translator
from nmt.translate.units import Unit

DATA = Path(__file__).parents[2] / "data/zh-en"
GUITAR = "Ein Mann mit einem roten Hut spielt eine Gitarre."
SHIRT = "Die NASA zeigt dem Kind ein T-Shirt mit einem Hund."
GERMAN = [
    GUITAR,
    "Der Hund und das Kind sehen den Mann mit der Gitarre.",
    SHIRT,
    "Das Kind spielt mit dem roten Hund und sieht die NASA.",
]
HEADLINES = ["THE RED DOG RUNS.", "A CAT SLEEPS HERE!", "WHERE IS THE SMALL HOUSE?"]
PLAIN = ["the red dog runs.", "a cat sleeps here!", "where is the small house?"]  # the model knows no capitals


def tokenizer_of(lines: list[str]) -> Tokenizer:
    settings = TokenizerSettings(type="bpe", vocab_size=150, byte_fallback=False)
    return Tokenizer(train_tokenizer(lines * 50, settings))


@functools.cache
def german() -> Tokenizer:
    return tokenizer_of(GERMAN)


IN_CAPITALS = {
    SHIRT.upper(): SHIRT,
    "DER HUND? DAS KIND: „DER HUT!“": "Der Hund? Das Kind: „der Hut!“",
    "DER HUT DES HuNDES UND DAS KIND": "Der Hut des Hundes und das Kind",
}
IN_TITLE_CASE = {
    "Ein Mann Mit Einem Roten Hut Spielt Eine Gitarre.": GUITAR,
    "Die NASA Zeigt Dem Kind Ein T-Shirt Mit Einem Hund.": SHIRT,
    "Der Hund und das Kind Sehen Einem Roten Hut": "Der Hund und das Kind sehen einem roten Hut",
}
OTHER = ["Der Hund", "Der Hund Spielt", "NASA", "ACHTUNG!", "Die NASA", "我用 USB 线", "", " ", "12:30", "A 1"]


@pytest.mark.parametrize("text", IN_CAPITALS)
def test_a_line_in_capitals_gets_sentence_case(text: str) -> None:
    new, style = in_sentence_case(text, german())
    assert new == IN_CAPITALS[text]
    assert style("don't stop a T-shirt (2nd).") == "DON'T STOP A T-SHIRT (2ND)."


@pytest.mark.parametrize("text", IN_TITLE_CASE)
def test_a_line_in_title_case_gets_sentence_case(text: str) -> None:
    new, style = in_sentence_case(text, german())
    assert new == IN_TITLE_CASE[text]
    assert style("don't stop a T-shirt (2nd).") == "Don't Stop A T-shirt (2nd)."


def test_capitals_may_be_the_usual_case_of_a_language() -> None:
    """Cherokee is written in letters that Unicode counts as capitals."""
    cherokee = ["ᎠᎨᏳᏣ ᎩᏟ ᎤᎸᏉᏗ ᏑᎾᎴᎢ.", "ᎣᎦᎵᎢ ᎩᏟ ᎠᏩᏘᎠ ᎤᏒᎢ."]
    for text in cherokee:
        assert in_sentence_case(text, tokenizer_of(cherokee)) == (text, str)


@pytest.mark.parametrize("text", [*GERMAN, *OTHER])
def test_other_lines_stay(text: str) -> None:
    assert in_sentence_case(text, german()) == (text, str)


def test_no_line_of_a_corpus_is_a_headline() -> None:
    # Most of the longer lines are recognized after they were written as headlines.
    all_lines = iter_lines([DATA / "train.en"])
    lines = list(islice(all_lines, 4000))
    settings = TokenizerSettings(vocab_size=1000)
    tokenizer = Tokenizer(train_tokenizer(lines, settings))
    n_headlines = n_found = 0
    for line in lines:
        assert in_sentence_case(line, tokenizer) == (line, str)
        if len(line.split()) > 7:
            _, style = in_sentence_case(in_title_case(line), tokenizer)
            n_headlines += 1
            n_found += style is in_title_case
    assert n_found > 0.9 * n_headlines


def without_dots(text: str) -> str:
    """The text in capitals. İ becomes I, because the lower case of both is i."""
    return text.upper().replace("İ", "I")


@given(st.text(alphabet="aßéИиΣσςİıÀǆﬁ我 -'.⟦1⟧\tTITLE") | st.text())
def test_characters_stay_in_their_places(text: str) -> None:
    new, style = in_sentence_case(text, german())
    assert len(new) == len(text)
    assert without_dots(new) == without_dots(text)
    style(text)  # no text is an error


# --- translated -------------------------------------------------------------------------------------------


def test_a_translation_is_in_capitals_as_its_source_is() -> None:
    # Each hypothesis of a headline is that of the same line in lower case.
    translator = small_translator()
    options = translator.with_options(n_best=3)
    plain = translator.translate_lines(PLAIN, options)
    in_capitals = list(translator.translate_lines(HEADLINES, options))
    assert [translation.source for translation in in_capitals] == HEADLINES
    for lower, upper in zip(plain, in_capitals, strict=True):
        for hypothesis, in_capital in zip(lower.hypotheses, upper.hypotheses, strict=True):
            assert in_capital.text == hypothesis.text.upper()


def test_what_is_shown_during_the_search_is_in_capitals_too() -> None:
    def shown(translator: Translator, line: str) -> list[str]:
        texts: list[str] = []
        units = [Unit(1, line)]
        translator.start(units, options, 1, lambda so_far: texts.extend(so_far())).result()
        return texts

    translator = small_translator()
    options = translator.with_options(n_best=3)
    plain = shown(translator, PLAIN[0])
    assert plain
    expected = [text.upper() for text in plain]
    assert shown(translator, HEADLINES[0]) == expected


def test_a_headline_is_aligned_as_in_lower_case() -> None:
    translator = small_translator()

    def links(lines: list[str]) -> list[object]:
        """How each line is aligned with itself."""
        texts = [WordText.split(line) for line in lines]
        pairs = list(zip(texts, texts, strict=True))
        return list(align(translator.engine, translator.tokenizers, pairs))

    assert links(PLAIN) == links(HEADLINES)


def test_placeholders_in_headlines_stay() -> None:
    translator = small_translator()
    (translation,) = translator.translate(["THE {name} DOG RUNS TO http://a.b/c"], protect_placeholders=True)
    assert "{name}" in translation
    assert "http://a.b/c" in translation


@pytest.mark.parametrize("space", ["\t", "\u00a0"])
def test_white_space_that_the_model_does_not_know_is_read_as_a_space(space: str) -> None:
    """Models spell it in bytes; a translation would be lost."""
    translator = small_translator()
    text = PLAIN[0].replace(" ", space)
    result = translator.translate([text])
    assert result == translator.translate(PLAIN[:1])


def test_white_space_that_the_model_knows_stays() -> None:
    lines = [line.replace("Hund ", "Hund\u00a0") for line in GERMAN]
    assert tokenizer_of(lines).characters.with_forms("a\u00a0b\tÉ") == "a\u00a0b E"
