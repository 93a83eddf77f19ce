"""Faults of a pair: what they are, and what is none."""

import math

import pytest

from nmt.corpus import pairs

FAULTS = [
    ("numbers", "im Jahr 1987", "in 1978"),
    ("numbers", "सन् १९८७ में", "in 1978"),
    ("numbers", "৪,৫০০ টাকা", "5,400 taka"),
    ("repetition", "no no no", "nein"),
    ("repetition", "of the of the of the", "von"),
    ("repetition", "hahahaha", "haha"),
    ("repetition", "what?!!!!!", "was?"),
    ("repetition", "哈哈哈哈哈", "ha"),
    ("copy", "Das ist ein Haus", "das ist ein haus"),
    ("placeholders", "siehe www.a.de.", "see www.b.de."),
    ("placeholders", "{0} Dateien", "0 files"),
    ("no-words", "--- 12/3 ===", "--- 12/3 ==="),
]
NO_FAULTS = [
    ("numbers", "1.234,50 Euro", "1,234.5 euros"),
    ("numbers", "es kostet 2 Euro", "it costs 2.00 euros"),
    ("numbers", "Ruf 555-1234 an", "Call 555 1234"),
    ("numbers", "zwei Hunde", "2 dogs"),
    ("numbers", "3 Millionen", "3,000,000"),
    ("numbers", "3万", "30,000"),
    ("numbers", "लगभग १,२३,४५६ लोग", "some 123,456 people"),
    ("numbers", "السعر ١٢٬٣٤٥٫٥٠ ريالا", "the price is 12,345.5 riyals"),
    ("numbers", "سال ۱۴۰۲، صفحه ۳۱۸۶", "page 3186, year 1402"),
    ("numbers", "၂၀၁၉ ခုနှစ်", "the year 2019"),
    ("numbers", "སྤྱི་ལོ་༢༠༠༨", "the year 2008"),
    ("numbers", "តម្លៃ ២៥.០០០ រៀល", "the price is 25,000 riel"),
    ("numbers", "ราคา ๔,๙๙๐ บาท", "4,990 baht"),
    ("numbers", "߁߉߅߈", "1958"),
    ("numbers", "Artikel 4711 1200 Mal", "1200 times article 4711"),
    ("numbers", "um halb drei", "at 2:30"),
    ("numbers", "Il y avait cent personnes", "There were 100 people"),
    ("repetition", "no, no", "nein"),
    ("repetition", "1,000,000,000", "eine Milliarde"),
    ("repetition", "哈哈哈", "Ha ha ha!"),
    ("repetition", "great-great-great-aunt", "Urgroßtante"),
    ("repetition", "that that is, is", "..."),
    ("copy", "Tom!", "Tom!"),
    ("copy", "Ja", "Yes"),
    ("copy", "Katharina Zimmermann", "Katharina Zimmermann"),
    ("copy", "%(first_name)s %(last_name)s", "%(first_name)s %(last_name)s"),
    ("copy", "Tra la la la la la", "Tra la la la la la"),
    ("placeholders", "siehe http://a.de/x.", "see http://a.de/x"),
    ("placeholders", "an a@b.de: 3 €", "to a@b.de: €4"),
    ("placeholders", "100% sicher, %s", "%s, 100% certain"),
    ("no-words", "Am 3.4.", "On 3/4."),
    ("no-words", "မှာကြား", "order"),
    ("no-words", "Öle 14.219,54 €", "oil €14,219.54"),
    ("no-words", "¥1,234.50 一天", "¥1,234.50 a day"),
    ("placeholders", "Forigi %(name)sn", "Delete %(name)s"),
    ("copy", "achuar-shiwiar", "Achuar-Shiwiar"),
]


@pytest.mark.parametrize(("kind", "source", "target"), FAULTS)
def test_faults_are_found_on_either_side(kind: str, source: str, target: str) -> None:
    assert pairs.TESTS[kind](source, target)
    assert pairs.TESTS[kind](target, source)


@pytest.mark.parametrize(("kind", "source", "target"), NO_FAULTS)
def test_what_is_no_fault_is_not_accused(kind: str, source: str, target: str) -> None:
    assert not pairs.TESTS[kind](source, target)
    assert not pairs.TESTS[kind](target, source)


FINAL = {
    "Ja.": ".",
    "好。": ".",
    "Was?": "?",
    "„Was?“": "?",
    "(Ja.)": ".",
    "Ja,": ",",
    "Ja": "",
    "": "",
    # Scripts have their own signs.
    "है।": ".",
    "ཡོད།": ".",
    "តើ។": ".",
    "တယ်။": ".",
    "ነው።": ".",
    "է։": ".",
    "ہے۔": ".",
    "ᠪᠠᠢᠨᠠ᠃": ".",
    "هل؟": "?",
    "ነው፧": "?",
    "لكن،": ",",
}


@pytest.mark.parametrize("text", FINAL)
def test_final_signs(text: str) -> None:
    assert pairs.final(text) == FINAL[text]


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
