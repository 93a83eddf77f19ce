"""Which spans are placeholders; symbols for them, and back."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import ConfigError
from nmt.text.placeholders import SYMBOLS, Masked, inserted, patterns_of, spans_of, with_symbols

SPAN_ONLY = patterns_of([])


def found(text: str, *extra: str) -> list[str]:
    return [text[start:end] for start, end in spans_of(text, patterns_of(extra))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Klick {name}, {0} und {{ x }}: ${x}", ["{name}", "{0}", "{{ x }}", "${x}"]),
        ("%s %1$d %(n)s %.2f %@ 100% sicher 100%ig", ["%s", "%1$d", "%(n)s", "%.2f", "%@", "100", "100"]),
        ('ein <x id="1"/> <b>Wort</b> 1 < 2 > 0', ['<x id="1"/>', "<b>", "</b>", "1", "2", "0"]),
        ("bei https://a.de/b?x=1, a.b@c.de.", ["https://a.de/b?x=1", "a.b@c.de"]),
        ("访问https://example.com吧,3个", ["https://example.com", "3"]),
        ("12:30 1.000,5 am 3. Mai 5-6", ["12:30", "1.000,5", "3", "5-6"]),
        ("A4 v1.2 3.5x 1970s 1st x_1", []),
        ("gut 😀, 👩\u200d👧 🇩🇪 1\ufe0f\u20e3", ["😀", "👩\u200d👧", "🇩🇪", "1\ufe0f\u20e3"]),
        ("{a}%s {b}😀 ⟦1⟧", ["{a}%s", "{b}😀", "⟦1⟧"]),
        ("x" * 50_000 + "." * 50_000 + "<a " * 9_000 + "{" * 9_000, []),
    ],
)
def test_the_spans_of_a_text(text: str, expected: list[str]) -> None:
    assert found(text) == expected


def test_regular_expressions_of_the_user_come_first() -> None:
    assert found("der ACME 3000 und 12", r"ACME \d+", "q*") == ["ACME 3000", "12"]
    with pytest.raises(ConfigError, match=r"^'\(' is no regular expression"):
        patterns_of(["("])


def test_spaces_around_an_inserted_span() -> None:
    for at in (5, 6):
        assert inserted("Hallo Welt.", at, "{x}") == "Hallo {x} Welt."
    assert inserted("Hallo.", 5, "{x}") == "Hallo {x}."
    assert inserted("你好。", 1, "{x}") == "你{x}好。"
    assert inserted("(Welt)", 1, "{x}") == "({x} Welt)"
    assert inserted("", 0, "{x}") == "{x}"


def test_symbols_stand_for_what_both_sides_have_in_some_pairs() -> None:
    pairs = [(f"Tom hat {n} rote Hunde aus Köln.", f"From Köln, Tom has {n} red dogs.") for n in range(400)]
    changed = [(i, with_symbols(*pair, [])) for i, pair in enumerate(pairs) if with_symbols(*pair, []) != pair]
    replaced = [(source, target) for i, (source, target) in changed if str(i) not in re.sub("⟦.⟧", "", source)]
    assert 150 < len(replaced) < 250
    assert 30 < len(changed) - len(replaced) < 90
    assert changed == [(i, with_symbols(*pairs[i], [])) for i, _ in changed], "a function of the pair"
    for source, target in replaced:
        first, second, third = re.findall("⟦.⟧", source)
        assert first < second < third
        assert source == f"{first} hat {second} rote Hunde aus {third}."
        assert target == f"From {third}, {first} has {second} red dogs."
    assert {symbol for source, _ in replaced for symbol in re.findall("⟦.⟧", source)} == set(SYMBOLS)


def test_symbols_are_put_at_the_ends_and_around_words_with_their_translations() -> None:
    """Short words, and what one side has, are left."""
    pairs = [(f"Was war {n}?", f"What was war, {n + 1}?") for n in range(400)]
    changed = [(pair, with_symbols(*pair, [((4, 7), (5, 8))])) for pair in pairs]
    changed = [(pair, texts) for pair, texts in changed if texts != pair]
    assert 90 < len(changed) < 150
    for pair, texts in changed:
        symbols = [re.findall("⟦.⟧", text) for text in texts]
        assert symbols[0] == symbols[1] == sorted(set(symbols[0]))
        assert tuple(re.sub(r"⟦.⟧ (?=\w|⟦)| ⟦.⟧", "", text) for text in texts) == pair
    assert any("⟧ war" in source and "⟧ was" in target for _, (source, target) in changed)


SPANS = ["{name}", "%1$d", '<x id="1"/>', "https://a.de/b", "a@b.de", "12", "3,5", "😀", "⟦2⟧"]
TEXTS = st.lists(st.sampled_from([*SPANS, "Hund", "我", "。", ", ", "a b"]), max_size=14).map(" ".join)
WRITTEN = st.lists(st.sampled_from([*SYMBOLS, "dog", "。", ".", "12", "x-1"]), max_size=12).map(" ".join)


@given(TEXTS, WRITTEN, st.sampled_from([SYMBOLS, []]))
def test_each_span_is_once_in_a_translation_or_missing(text: str, translation: str, symbols: list[str]) -> None:
    mask = Masked.of(text, SPAN_ONLY, symbols)
    settled, missing = mask.settled(translation)
    lacking = [mask.marks[i] for i in missing]
    for mark in {*SYMBOLS, *mask.marks} - {""}:
        assert settled.split().count(mark) == mask.marks.count(mark) - lacking.count(mark)
    assert lacking.count("") == mask.marks.count("")


def test_what_becomes_of_spans_that_are_doubled_or_invented() -> None:
    mask = Masked.of("{a} b {c} 3", SPAN_ONLY, SYMBOLS[:2])
    assert mask.text == "⟦1⟧ b ⟦2⟧ 3"
    assert Masked.of("a ⟦2⟧ " * 7, SPAN_ONLY, SYMBOLS).marks == [*SYMBOLS, ""], "more look-alikes than symbols"
    assert mask.settled("x ⟦2⟧ ⟦2⟧ ⟦3⟧ 3 3.") == ("x ⟦2⟧ ⟦1⟧ 3.", [])
    assert mask.settled("x ⟦1⟧ ⟦1⟧ ⟦2⟧3.") == ("x ⟦1⟧ ⟦2⟧3.", [])
    assert mask.settled("x ⟦2⟧ y.") == ("x ⟦2⟧ y.", [0, 2])
    assert Masked.of("%s1 ist 1", SPAN_ONLY, []).settled("1 is 1") == ("1 is 1", [0])


def test_without_symbols_all_but_numbers_are_taken_out() -> None:
    texts = {"{a} {b} Hund {c}.": "Hund.", "Ein {a} {b} Hund mit 3 ({c}) 😀": "Ein Hund mit 3 ()", "{a}: 3": ""}
    assert {text: Masked.of(text, SPAN_ONLY, []).text for text in texts} == texts


def test_of_many_spans_numbers_stay_in_the_text() -> None:
    mask = Masked.of("1 {a} 2 {b} 3 {c} 4 {d} 5 {e} 6 {f} Hunde", SPAN_ONLY, SYMBOLS)
    assert mask.text == "1 ⟦1⟧ 2 ⟦2⟧ 3 ⟦3⟧ 4 ⟦4⟧ 5 ⟦5⟧ 6 ⟦6⟧ Hunde"
    assert Masked.of("7 Hunde, 42 {a}", SPAN_ONLY, [], is_known="7".__eq__).text == "7 Hunde,", "unless it is unknown"


def test_many_spans_take_linear_time() -> None:
    text, start = "".join(f"{chr(0x4E00 + n)}a 1 ↯ " for n in range(10_000)), time.process_time()
    Masked.of(text, SPAN_ONLY, SYMBOLS, {*text} - {*"a 1"})
    assert time.process_time() - start < 2
