"""Faults of a pair: what they are, and what is none."""

import math

import pytest

from nmt.corpus import pairs

FAULTS = [
    ("numbers", "im Jahr 1987", "in 1978"),
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
    ("numbers", "um halb drei", "at 2:30"),
    ("numbers", "Il y avait cent personnes", "There were 100 people"),
    ("repetition", "no, no", "nein"),
    ("repetition", "1,000,000,000", "eine Milliarde"),
    ("repetition", "great-great-great-aunt", "Urgroßtante"),
    ("repetition", "that that is, is", "..."),
    ("copy", "Tom!", "Tom!"),
    ("copy", "Ja", "Yes"),
    ("placeholders", "siehe http://a.de/x.", "see http://a.de/x"),
    ("placeholders", "an a@b.de: 3 €", "to a@b.de: €4"),
    ("placeholders", "100% sicher, %s", "%s, 100% certain"),
    ("no-words", "Am 3.4.", "On 3/4."),
]


@pytest.mark.parametrize(("kind", "source", "target"), FAULTS)
def test_faults_are_found_on_either_side(kind: str, source: str, target: str) -> None:
    assert pairs.TESTS[kind](source, target)
    assert pairs.TESTS[kind](target, source)


@pytest.mark.parametrize(("kind", "source", "target"), NO_FAULTS)
def test_what_is_no_fault_is_not_accused(kind: str, source: str, target: str) -> None:
    assert not pairs.TESTS[kind](source, target)
    assert not pairs.TESTS[kind](target, source)


def test_final_signs() -> None:
    texts = {"Ja.": ".", "好。": ".", "Was?": "?", "„Was?“": "?", "(Ja.)": ".", "Ja,": ",", "Ja": "", "": ""}
    assert {text: pairs.final(text) for text in texts} == texts


def test_a_cut_text_is_short_and_has_no_stop() -> None:
    rarely, often = (0.01, 0.01), (0.5, 0.5)
    assert pairs.cut_off("Ein langer Satz mit Ende.", "A long", -2.0, rarely)
    assert pairs.cut_off("Ein", "A long sentence with an end.", 2.0, rarely)
    assert not pairs.cut_off("Ein langer Satz mit Ende.", "A long.", -2.0, rarely)
    assert not pairs.cut_off("Ein langer Satz.", "A long sentence", -0.5, rarely)
    assert not pairs.cut_off("Ein langer Satz mit Ende.", "A long", -2.0, often)
    assert not pairs.cut_off("", "A long sentence with an end.", math.nan, rarely)
