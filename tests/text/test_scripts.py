"""The script of a text tells whether it has spaces between words."""

import pytest

from nmt.text.scripts import Script, count_scripts, main_script


@pytest.mark.parametrize("letter", "aßЖשـحहத")
def test_letters_of_most_scripts_are_spaced(letter: str) -> None:
    assert count_scripts([letter]) == {"spaced": 1}


LETTERS: dict[Script, str] = {"unspaced": "กກកကཀ", "Han": "中々𠮷", "kana": "あアーｱ", "Hangul": "한ㄱ"}


@pytest.mark.parametrize("script", LETTERS)
def test_letters_have_a_script(script: Script) -> None:
    letters = LETTERS[script]
    assert count_scripts([letters]) == {script: len(letters)}


def test_marks_digits_and_punctuation_are_no_letters() -> None:
    assert count_scripts(["1 ๒ 、。！ ็"]).total() == 0


def test_a_language_in_an_unspaced_script_needs_only_some_of_its_letters() -> None:
    text = ["iPhone รุ่นใหม่ Samsung Galaxy"]
    assert main_script("th", text) == "unspaced"
    assert main_script("", text) == "spaced", "most letters are Latin"
