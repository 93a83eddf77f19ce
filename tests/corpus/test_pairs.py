"""Faults of a pair."""

import math

import pytest

from nmt.corpus import pairs


@pytest.mark.parametrize(
    ("source", "target", "differ"),
    [
        ("im Jahr 1987", "in 1978", True),
        ("1.234,50 Euro", "1,234.5 euros", False),
        ("2 500 Schafe", "2,500 sheep", False),
        ("es kostet 2 Euro", "it costs 2.00 euros", False),
        ("Ruf 555-1234 an", "Call 555 1234", False),
        ("zwei Hunde", "2 dogs", False),
        ("Er zählte", "He counted 128", True),
        ("3 Millionen", "3,000,000", False),
        ("3万", "30,000", False),
        ("um halb drei", "at 2:30", False),
        ("16 km", "10 miles", False),
        ("７点", "7 o'clock", False),
        ("二百", "200", False),
    ],
)
def test_numbers(source: str, target: str, differ: bool) -> None:
    assert pairs.numbers_differ(source, target) == differ
    assert pairs.numbers_differ(target, source) == differ


@pytest.mark.parametrize(
    ("text", "sign"),
    [("Ja.", "."), ("好。", "."), ("Was?", "?"), ("„Was?“", "?"), ("(Ja.)", "."), ("Ja,", ","), ("Ja", ""), ("", "")],
)
def test_final_signs(text: str, sign: str) -> None:
    assert pairs.final(text) == sign


@pytest.mark.parametrize("text", ["a (b", 'he said "yes', "„ja", "【x", "«a"])
def test_unclosed(text: str) -> None:
    assert pairs.is_unclosed(text)
    assert pairs.TESTS["brackets"](text, "a b")
    assert not pairs.TESTS["brackets"](text, text)


@pytest.mark.parametrize("text", ["a (b)", '"yes"', "„ja“", "a :)", "1) first", "a) b) c)", "don't"])
def test_closed(text: str) -> None:
    assert not pairs.is_unclosed(text)


@pytest.mark.parametrize("text", ["no no no", "of the of the of the", "hahahaha", "nooooo", "what?!!!!!", "哈哈哈哈哈"])
def test_repeated(text: str) -> None:
    assert pairs.repeats(text)


@pytest.mark.parametrize(
    "text", ["no, no", "1,000,000,000", "great-great-great-aunt", "that that is, is", "...", "-----"]
)
def test_not_repeated(text: str) -> None:
    assert not pairs.repeats(text)


def test_copies_but_not_names() -> None:
    assert pairs.is_copy("Das ist ein Haus", "das ist ein haus")
    assert not pairs.is_copy("Tom!", "Tom!")
    assert not pairs.is_copy("Ja", "Yes")


def test_addresses_and_placeholders() -> None:
    assert pairs.urls_differ("siehe www.a.de.", "see www.b.de.")
    assert not pairs.urls_differ("siehe http://a.de/x.", "see http://A.de/x")
    assert pairs.placeholders_differ("{0} Dateien", "0 files")
    assert not pairs.placeholders_differ("100% sicher, %s", "%s, 100% certain")


def test_capitals_and_lines_without_words() -> None:
    assert pairs.TESTS["capitals"]("Alles ist gut", "ALL IS WELL")
    assert not pairs.TESTS["capitals"]("AI 代表人工智能", "AI stands for it")
    assert pairs.has_no_words("--- 12/3 ===")
    assert not pairs.has_no_words("Am 3.4.")


def test_a_cut_text_is_short_and_has_no_stop() -> None:
    rarely, often = (0.01, 0.01), (0.5, 0.5)
    assert pairs.cut_off("Ein langer Satz mit Ende.", "A long", -2.0, rarely)
    assert pairs.cut_off("Ein", "A long sentence with an end.", 2.0, rarely)
    assert not pairs.cut_off("Ein langer Satz mit Ende.", "A long.", -2.0, rarely)
    assert not pairs.cut_off("Ein langer Satz.", "A long sentence", -0.5, rarely)
    assert not pairs.cut_off("Ein langer Satz mit Ende.", "A long", -2.0, often)
    assert not pairs.cut_off("", "A long sentence with an end.", math.nan, rarely)
