"""Faults in the characters of a text, and the functions that mend them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.corpus.characters import MENDED, TESTS

MENDABLE = [  # kind, text, mended text
    ("mojibake", "ItÃ¢â‚¬â„¢s a cafÃ©", "It’s a café"),
    ("mojibake", "你好".encode().decode("latin1"), "你好"),
    ("markup", "<b>a</b> &amp; b", "a & b"),
    ("markup", "a &lt; b", "a < b"),
    ("markup", "Hello<br>world", "Hello world"),
    ("control", "a\u200bb\x07", "ab"),
    ("control", "a\u2028b\rc\x85d", "a b c d"),
    ("control", "a\u200fb\u061c", "ab"),
    ("control", "ភាសា\u200bខ្មែរ\x07", "ភាសា\u200bខ្មែរ"),
    ("control", "PDF\u200cها\x07 a\u200cb", "PDF\u200cها ab"),
    ("control", "שלום\x07 לך\u200f", "שלום לך\u200f"),
    ("unicode", "cafe\u0301", "café"),
    ("full-width", "Ｔｏｍ１", "Tom1"),
    ("spacing", " a\t b\u00a0! ", "a b\u00a0!"),
]
NOT_MENDABLE = [  # kind, text
    ("replaced", "caf\ufffd"),
    ("tokenized", "he does n't ."),
    ("tokenized", "我 昨天 买 了 一 本 书"),
]
# Khmer, Thai and other scripts separate words by U+200B; Arabic and Hebrew need marks of direction.
CLEAN = [
    "„Spaß“, sagte Ärger-Ö»",
    "GROẞE FÜßE – Ä“, Ö”",
    "Que ça soit à l'âge de l'île",
    "NÃO, MANHÃ, SÃO",
    "AT&T and Q&A; a < b > c",
    "a {b} <x/> c",
    "می‌خواهم",
    "ខ្ញុំ\u200bប្រើ\u200b Facebook \u200bរាល់\u200bថ្ងៃ",
    "ภาษา\u200bไทย",
    "မြန်မာ\u200bစာ",
    "བོད་\u200bཡིག",
    "ꦧꦱ\u200bꦗꦮ",
    "ၽႃႇသႃႇ\u200bတႆး",
    "今日は\u200b良い\u200b天気",
    "הוא אמר (כן)\u200f.",
    "رقم الهاتف \u200e030-1234\u200e",
    "\u202bزبان کوردی\u202c",
    "SMSке URLдүү",
    "👩‍👩‍👧 family",
    "5 μm",
    "…und „das“.",
    "Vraiment\u202f!",
    "书，笔。",
]


@pytest.mark.parametrize(("kind", "text", "mended"), MENDABLE)
def test_faults_are_found_and_mended(kind: str, text: str, mended: str) -> None:
    assert TESTS[kind](text)
    result = MENDED[kind](text)
    assert result == mended
    assert not TESTS[kind](mended)


@pytest.mark.parametrize(("kind", "text"), NOT_MENDABLE)
def test_faults_that_only_a_person_can_mend_are_found(kind: str, text: str) -> None:
    assert TESTS[kind](text)


@pytest.mark.parametrize("text", CLEAN)
def test_clean_text_is_not_accused(text: str) -> None:
    for kind, has_fault in TESTS.items():
        assert not has_fault(text), kind


@pytest.mark.parametrize("kind", ["control", "unicode", "full-width", "spacing"])
@given(text=st.text())
def test_mending_ends_the_fault(kind: str, text: str) -> None:
    assert not TESTS[kind](MENDED[kind](text))


@pytest.mark.parametrize("kind", ["control", "unicode", "full-width"])
@given(text=st.text())
def test_mending_changes_nothing_else(kind: str, text: str) -> None:
    if not TESTS[kind](text):
        assert MENDED[kind](text) == text
