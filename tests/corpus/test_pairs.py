"""Faults of a pair: what they are, and what is none."""

import math
from itertools import combinations

import pytest

from nmt.corpus import pairs

DIFFERENT_NUMBERS = {
    "im Jahr 1987": "in 1978",
    "सन् १९८७ में": "in 1978",
    "৪,৫০০ টাকা": "5,400 taka",
    "88,76,543 रुपये": "8,876,534 rupees",
    "１２８７．５キロ": "12,875 kilometers",
    "بمبلغ ٤١٢٫٧٥": "at 41,275",
}
EQUAL_NUMBERS = {
    "1.234,50 Euro": "1,234.5 euros",
    "es kostet 2 Euro": "it costs 2.00 euros",
    "Ruf 555-1234 an": "Call 555 1234",
    "Artikel 4711 1200 Mal": "1200 times article 4711",
    # Each script has its digits, and some group them in their own way.
    "लगभग १,२३,४५६ लोग": "some 123,456 people",
    "السعر ١٢٬٣٤٥٫٥٠ ريالا": "the price is 12,345.5 riyals",
    "سال ۱۴۰۲، صفحه ۳۱۸۶": "page 3186, year 1402",
    "၂၀၁၉ ခုနှစ်": "the year 2019",
    "སྤྱི་ལོ་༢༠༠༨": "the year 2008",
    "តម្លៃ ២៥.០០០ រៀល": "the price is 25,000 riel",
    "ราคา ๔,๙๙๐ บาท": "4,990 baht",
    "߁߉߅߈": "1958",
    "am 24.11.2026": "on 2026-11-24",
    "vom 24.11.2026": "from 11/24/2026",
    "bis 24.11.2026": "until November 24, 2026",
    # In words.
    "zwei Hunde": "2 dogs",
    "3 Millionen": "3,000,000",
    "3万": "30,000",
    "um halb drei": "at 2:30",
    "Il y avait cent personnes": "There were 100 people",
}
# One value in the digits and with the separators of several languages.
ONE_VALUE = [
    "8876543",
    "88,76,543",
    "8.876.543",
    "८८,७६,५४३",
    "8 876 543",
    "８８７６５４３",
    "8’876’543",
    "٨٬٨٧٦٬٥٤٣",
    "༨༨༧༦༥༤༣",
]
ONE_DECIMAL = ["1287.5", "1.287,50", "1,287.5", "1 287,5", "１，２８７．５", "١٬٢٨٧٫٥", "१,२८७.५०", "၁,၂၈၇.၅"]
ONE_TIME = ["17.45", "17:45", "5:45", "1745", "၁၇:၄၅", "１７：４５"]


@pytest.mark.parametrize("source", DIFFERENT_NUMBERS)
def test_different_numbers_are_a_fault(source: str) -> None:
    assert_fault("numbers", source, DIFFERENT_NUMBERS[source])


@pytest.mark.parametrize("source", EQUAL_NUMBERS)
def test_equal_numbers_are_no_fault_however_they_are_written(source: str) -> None:
    assert_no_fault("numbers", source, EQUAL_NUMBERS[source])


@pytest.mark.parametrize("equal", [ONE_VALUE, ONE_DECIMAL, ONE_TIME])
def test_digits_separators_and_groups_do_not_change_a_value(equal: list[str]) -> None:
    for source, target in combinations(equal, 2):
        assert_no_fault("numbers", f"a {source} b", f"c {target} d")


def assert_fault(kind: str, source: str, target: str) -> None:
    """The pair has the fault, whichever text is the source."""
    assert pairs.TESTS[kind](source, target)
    assert pairs.TESTS[kind](target, source)


def assert_no_fault(kind: str, source: str, target: str) -> None:
    assert not pairs.TESTS[kind](source, target)
    assert not pairs.TESTS[kind](target, source)


REPEATED = {
    "no no no": "nein",
    "of the of the of the": "von",
    "hahahaha": "haha",
    "what?!!!!!": "was?",
    "哈哈哈哈哈": "ha",
}
NOT_REPEATED = {
    "no, no": "nein",
    "1,000,000,000": "eine Milliarde",
    "哈哈哈": "Ha ha ha!",
    "great-great-great-aunt": "Urgroßtante",
    "that that is, is": "...",
}


@pytest.mark.parametrize("source", REPEATED)
def test_repetition_on_one_side_is_a_fault(source: str) -> None:
    assert_fault("repetition", source, REPEATED[source])


@pytest.mark.parametrize("source", NOT_REPEATED)
def test_usual_repetition_is_no_fault(source: str) -> None:
    assert_no_fault("repetition", source, NOT_REPEATED[source])


def test_a_copy_is_a_fault() -> None:
    assert_fault("copy", "Das ist ein Haus", "das ist ein haus")


def test_a_translation_is_no_copy() -> None:
    assert_no_fault("copy", "Ja", "Yes")
    assert_no_fault("copy", "achuar-shiwiar", "Achuar-Shiwiar")


# Names, placeholders and songs stay as they are.
SAME_IN_BOTH = ["Tom!", "Katharina Zimmermann", "%(first_name)s %(last_name)s", "Tra la la la la la"]


@pytest.mark.parametrize("text", SAME_IN_BOTH)
def test_a_text_that_is_the_same_in_both_languages_is_no_copy(text: str) -> None:
    assert_no_fault("copy", text, text)


def test_different_placeholders_are_a_fault() -> None:
    assert_fault("placeholders", "siehe www.a.de.", "see www.b.de.")
    assert_fault("placeholders", "{0} Dateien", "0 files")


def test_equal_placeholders_are_no_fault() -> None:
    assert_no_fault("placeholders", "siehe http://a.de/x.", "see http://a.de/x")
    assert_no_fault("placeholders", "an a@b.de: 3 €", "to a@b.de: €4")
    assert_no_fault("placeholders", "100% sicher, %s", "%s, 100% certain")
    # A letter that follows is no part of it.
    assert_no_fault("placeholders", "Forigi %(name)sn", "Delete %(name)s")


def test_a_text_without_words_is_a_fault() -> None:
    text = "--- 12/3 ==="
    assert pairs.TESTS["no-words"](text, text)


def test_a_date_a_price_or_a_short_word_is_not_without_words() -> None:
    assert_no_fault("no-words", "Am 3.4.", "On 3/4.")
    assert_no_fault("no-words", "Öle 14.219,54 €", "oil €14,219.54")
    assert_no_fault("no-words", "¥1,234.50 一天", "¥1,234.50 a day")
    assert_no_fault("no-words", "မှာကြား", "order")


# Scripts have their own signs.
STOPS = ["Ja.", "好。", "(Ja.)", "है।", "ཡོད།", "តើ។", "တယ်။", "ነው።", "է։", "ہے۔", "ᠪᠠᠢᠨᠠ᠃"]
QUESTIONS = ["Was?", "„Was?“", "هل؟", "ነው፧"]


@pytest.mark.parametrize("text", STOPS)
def test_a_stop_at_the_end(text: str) -> None:
    assert pairs.final(text) == "."


@pytest.mark.parametrize("text", QUESTIONS)
def test_a_question_mark_at_the_end(text: str) -> None:
    assert pairs.final(text) == "?"


@pytest.mark.parametrize("text", ["Ja,", "لكن،"])
def test_a_comma_at_the_end(text: str) -> None:
    assert pairs.final(text) == ","


@pytest.mark.parametrize("text", ["Ja", ""])
def test_no_sign_at_the_end(text: str) -> None:
    assert pairs.final(text) == ""


RARELY, OFTEN = (0.01, 0.01), (0.5, 0.5)  # shares of lines without a stop


def test_a_text_is_cut_off_if_it_is_short_and_has_no_stop() -> None:
    assert pairs.cut_off("Ein langer Satz mit Ende.", "A long", -2.0, RARELY)
    assert pairs.cut_off("Ein", "A long sentence with an end.", 2.0, RARELY)


def test_a_text_with_a_stop_or_of_the_usual_length_is_not_cut_off() -> None:
    assert not pairs.cut_off("Ein langer Satz mit Ende.", "A long.", -2.0, RARELY)
    assert not pairs.cut_off("Ein langer Satz.", "A long sentence", -0.5, RARELY)
    assert not pairs.cut_off("", "A long sentence with an end.", math.nan, RARELY)


def test_no_text_is_cut_off_where_stops_are_often_left_out() -> None:
    assert not pairs.cut_off("Ein langer Satz mit Ende.", "A long", -2.0, OFTEN)
