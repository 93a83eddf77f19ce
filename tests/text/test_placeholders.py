"""Which spans are placeholders; symbols for them, and back."""

import re

import pytest
import regex
from conftest import check_linear, rows_of
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import ConfigError
from nmt.text.placeholders import SYMBOLS, Masked, inserted, patterns_of, spans_of, with_symbols

SPAN_ONLY = patterns_of([])


def marked(text: str, *extra: str) -> str:
    """The text with brackets around its spans, with patterns of the user."""
    spans = spans_of(text, patterns_of(extra))
    for start, end in reversed(spans):
        span = text[start:end]
        text = f"{text[:start]}⟪{span}⟫{text[end:]}"
    return text


WITH_SPANS = """
⟪١٢٬٣٤٥٫٦٧⟫ ريال ⟪1'234.50⟫ CHF
Klick ⟪{name}⟫, ⟪{0}⟫ und ⟪{{ x }}⟫: ⟪${x}⟫
⟪%s⟫ ⟪%1$d⟫ ⟪%(n)s⟫ ⟪%.2f⟫ ⟪%@⟫ ⟪100⟫% sicher ⟪100⟫%ig
ein ⟪<x id="1"/>⟫ ⟪<b>⟫Wort⟪</b>⟫ ⟪1⟫ < ⟪2⟫ > ⟪0⟫
bei ⟪https://a.de/b?x=1⟫, ⟪a.b@c.de⟫.
{bei ⟪https://a.de⟫} ⟪https://a.de/{n}/b?c={d}⟫.
ein⟪&nbsp;⟫Hund ⟪&#169;⟫ & Q&A;
访问⟪https://example.com⟫吧,⟪3⟫个
ราคา⟪๗๕๐⟫บาท⟪{n}⟫ครั้ง ལོ་⟪༢༠༡༢⟫་ལ་⟪%s⟫ ទិញ⟪៥⟫គ្រាប់ 駅まで⟪12⟫分
गाँव ⟪{n}⟫ में ⟪४२⟫ घर, בעוד ⟪{n}⟫ ימים
⟪12:30⟫ ⟪1.000,5⟫ am ⟪3⟫. Mai ⟪5-6⟫
⟪2½⟫ Stunden, ⟪10⁹⟫ oder n%⟪100⟫, ⟪%10⟫
A4 v1.2 3.5x 1970s 1st x_1
gut ⟪😀⟫, ⟪👩\u200d👧⟫ ⟪🇩🇪⟫ ⟪1\ufe0f\u20e3⟫
⟪{a}%s⟫ ⟪{b}😀⟫ ⟪⟦1⟧⟫
"""


@pytest.mark.parametrize("expected", rows_of(WITH_SPANS))
def test_the_spans_of_a_text(expected: str) -> None:
    assert marked(re.sub("[⟪⟫]", "", expected)) == expected


def test_regular_expressions_of_the_user_come_first() -> None:
    assert marked("der ACME 3000 und 12", r"ACME \d+", "q*") == "der ⟪ACME 3000⟫ und ⟪12⟫"


def test_an_invalid_regular_expression_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^'\(' is no regular expression"):
        patterns_of(["("])


# A text with a bar, and what is written if {x} is inserted there.
INSERTED = {
    "Hallo| Welt.": "Hallo {x} Welt.",
    "Hallo |Welt.": "Hallo {x} Welt.",
    "Hallo|.": "Hallo {x}.",
    "你|好。": "你{x}好。",
    "ལྷ་|ས།": "ལྷ་{x}ས།",
    "(|Welt)": "({x} Welt)",
    "|": "{x}",
}


@pytest.mark.parametrize("text", INSERTED)
def test_spaces_around_an_inserted_span(text: str) -> None:
    position = text.index("|")
    without_bar = text.replace("|", "")
    result = inserted(without_bar, position, "{x}")
    assert result == INSERTED[text]


# --- symbols in training pairs ----------------------------------------------------------------------------

SYMBOL = re.compile("⟦.⟧")
WITH_SPACE = re.compile(r"⟦.⟧ (?=\w|⟦)| ⟦.⟧")  # a symbol and the space that was put beside it


def test_symbols_stand_for_what_both_sides_have_in_some_pairs() -> None:
    n_equal = n_inserted = 0
    used = set()
    for n in range(400):
        source, target = with_symbols(f"Tom hat {n} rote Hunde aus Köln.", f"From Köln, Tom has {n} red dogs.", [])
        symbols = SYMBOL.findall(source)
        # Either all that both sides have is replaced, or symbols are inserted.
        if SYMBOL.sub("", source) == " hat  rote Hunde aus .":
            n_equal += 1
            used.update(symbols)
            assert symbols == sorted(symbols)
            first, second, third = symbols
            assert source == f"{first} hat {second} rote Hunde aus {third}."
            assert target == f"From {third}, {first} has {second} red dogs."
        elif symbols:
            n_inserted += 1
    assert 150 < n_equal < 250
    assert 30 < n_inserted < 90
    assert used == set(SYMBOLS)


def test_symbols_are_a_function_of_the_pair() -> None:
    for n in range(50):
        pair = f"Tom hat {n} Hunde.", f"Tom has {n} dogs."
        assert with_symbols(*pair, []) == with_symbols(*pair, [])


def test_symbols_are_put_at_the_ends_and_around_words_with_their_translations() -> None:
    """Short words, and what one side has, are left."""
    was_and_war = ((4, 7), (5, 8))
    n_changed = n_before_words = 0
    for n in range(400):
        old = f"Was war {n}?", f"What was war, {n + 1}?"
        source, target = with_symbols(*old, [was_and_war])
        symbols = SYMBOL.findall(source)
        assert SYMBOL.findall(target) == symbols
        assert symbols == sorted(set(symbols))
        assert WITH_SPACE.sub("", source) == old[0]
        assert WITH_SPACE.sub("", target) == old[1]
        n_changed += bool(symbols)
        n_before_words += "⟧ war" in source and "⟧ was" in target
    assert 90 < n_changed < 150
    assert n_before_words > 0


# --- masked texts -----------------------------------------------------------------------------------------

PARTS = ["{name}", "%1$d", '<x id="1"/>', "https://a.de/b", "a@b.de", "12", "3,5", "😀", "⟦2⟧"]
WORDS = ["Hund", "我", "。", ", ", "a b"]
WRITTEN = [*SYMBOLS, "dog", "。", ".", "12", "x-1"]


def texts_of(parts: list[str]) -> st.SearchStrategy[str]:
    some_parts = st.lists(st.sampled_from(parts), max_size=14)
    return some_parts.map(" ".join)


@given(texts_of(PARTS + WORDS), texts_of(WRITTEN), st.sampled_from([SYMBOLS, []]))
def test_each_span_is_once_in_a_translation_or_missing(text: str, translation: str, symbols: list[str]) -> None:
    mask = Masked.of(text, SPAN_ONLY, symbols)
    settled, missing = mask.settled(translation)
    written = settled.split()
    lacking = [mask.marks[i] for i in missing]
    for mark in {*SYMBOLS, *mask.marks} - {""}:
        n_settled = written.count(mark) + lacking.count(mark)
        assert n_settled == mask.marks.count(mark)
    n_unmarked = mask.marks.count("")
    assert lacking.count("") == n_unmarked


# What becomes of a translation of "⟦1⟧ b ⟦2⟧ 3", and the indices of the spans that it lacks.
SETTLED: dict[str, tuple[str, list[int]]] = {
    "x ⟦2⟧ ⟦2⟧ ⟦3⟧ 3 3.": ("x ⟦2⟧ ⟦1⟧ 3.", []),  # the second ⟦2⟧ takes the place of ⟦1⟧
    "x ⟦1⟧ ⟦1⟧ ⟦2⟧3.": ("x ⟦1⟧ ⟦2⟧3.", []),
    "x ⟦2⟧ y.": ("x ⟦2⟧ y.", [0, 2]),
}


@pytest.mark.parametrize("translation", SETTLED)
def test_what_becomes_of_spans_that_are_doubled_or_invented(translation: str) -> None:
    mask = Masked.of("{a} b {c} 3", SPAN_ONLY, SYMBOLS[:2])
    assert mask.text == "⟦1⟧ b ⟦2⟧ 3"
    assert mask.settled(translation) == SETTLED[translation]


def test_look_alikes_of_symbols_are_masked_as_long_as_there_are_symbols() -> None:
    mask = Masked.of("a ⟦2⟧ " * 7, SPAN_ONLY, SYMBOLS)
    assert mask.marks == [*SYMBOLS, ""]


def test_a_number_within_a_placeholder_that_was_taken_out_is_no_mark() -> None:
    result = Masked.of("%s1 ist 1", SPAN_ONLY, []).settled("1 is 1")
    assert result == ("1 is 1", [0])


MASKED = {
    "{h}:{m} Hund {c}.": "Hund.",
    "Ein %d.%d.%d Hund mit 3 ({c}@{d}) 😀": "Ein Hund mit 3",
    "{a}: 3": "",
    "Werte: {a}, {b} - {c} / %sx%s und „{c}“, 3, 5": "Werte: und, 3, 5",
}


@pytest.mark.parametrize("text", MASKED)
def test_without_symbols_all_but_numbers_are_taken_out(text: str) -> None:
    result = Masked.of(text, SPAN_ONLY, []).text
    assert result == MASKED[text]


def test_nothing_is_left_to_translate_beside_a_tag() -> None:
    assert Masked.of(">>de<< {a}", SPAN_ONLY, SYMBOLS, tag=">>de<<").text == ""


def test_of_many_spans_numbers_stay_in_the_text() -> None:
    mask = Masked.of("1 {a} 2 {b} 3 {c} 4 {d} 5 {e} 6 {f} Hunde", SPAN_ONLY, SYMBOLS)
    assert mask.text == "1 ⟦1⟧ 2 ⟦2⟧ 3 ⟦3⟧ 4 ⟦4⟧ 5 ⟦5⟧ 6 ⟦6⟧ Hunde"


def test_of_more_spans_than_symbols_those_of_a_list_are_one() -> None:
    mask = Masked.of("Hund: {a}, {b}, {c} oder ({d})", SPAN_ONLY, SYMBOLS[:2])
    result = [kept.original for kept in mask.kept]
    assert result == ["{a}, {b}, {c}", "({d})"]
    assert mask.text == "Hund: ⟦1⟧ oder ⟦2⟧"


def test_words_stay_apart_where_a_character_between_them_is_taken_out() -> None:
    icon = regex.compile("\ue000|\u00ad")
    assert Masked.of("ein\ue000Hund, Dampf\u00adschiff", [icon], []).text == "ein Hund, Dampfschiff"


def test_a_number_that_the_model_does_not_know_is_taken_out() -> None:
    result = Masked.of("7 Hunde, 42 {a}", SPAN_ONLY, [], is_known="7".__eq__).text
    assert result == "7 Hunde,"


def test_many_spans_are_masked_in_linear_time() -> None:
    code_points = range(0x4E00, 0x4E00 + 10_000)
    characters = map(chr, code_points)
    text = "a 1 ↯ ".join(characters)
    unknown = set(text) - set("a 1")
    check_linear(lambda n: Masked.of(text[:n], SPAN_ONLY, SYMBOLS, unknown), len(text))
