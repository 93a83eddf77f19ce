"""Languages."""

from pathlib import Path

import pytest

from nmt.corpus import language

DATA = Path(__file__).parents[2] / "data" / "zh-en"
ZH, EN = ((DATA / f"train.{lang}").read_text("utf-8").splitlines()[:2000] for lang in ("zh", "en"))


@pytest.fixture(scope="module")
def languages() -> language.Languages:
    return language.learn(ZH, EN)


def test_sides_are_told_apart(languages: language.Languages) -> None:
    assert languages.names == ("zh", "en")
    assert (language.compared(EN, 0, languages)[0] == 2).mean() > 0.99
    assert (language.compared(ZH, 1, languages)[0] == 2).mean() > 0.99
    assert not language.compared(ZH, 0, languages)[0].any()
    assert not language.compared(EN, 1, languages)[0].any()


def test_the_same_language_on_both_sides_accuses_nobody() -> None:
    same = language.learn(EN[:1000], EN[1000:])
    assert not language.compared(EN, 0, same)[0].any()


THIRD = [
    ("de", "Der Hund ist nicht in dem Haus."),
    ("fr", "Il fait très beau aujourd'hui."),
    ("nl", "Ik weet niet wat je bedoelt."),
    ("cs", "Nevím, co chceš říct."),
    ("ru", "Иван купил новую лампу в магазине."),
    ("dz", "བོད་ཡིག"),
]


@pytest.mark.parametrize(("name", "text"), THIRD)
def test_a_third_language_is_named(name: str, text: str) -> None:
    assert language.third_language(text, ("zh", "en")) == name


def test_a_text_in_another_script_is_in_a_third_language_though_it_is_unclear_which() -> None:
    assert language.identify(["Это книга"]) == ""
    assert language.third_language("Это книга", ("zh", "en")) == "ru"


@pytest.mark.parametrize("text", ["The dog is not in the house.", "Tom, Anna, Boston", "狗不在房子里。", "12:30", ""])
def test_lines_of_either_language_and_without_one_are_not_accused(text: str) -> None:
    assert language.third_language(text, ("zh", "en")) == ""


SIDES = [("zh", ZH[:50]), ("ja", ["これは本です。", "私は学生です。"]), ("", ["xyzzy plugh", "foo bar"])]


@pytest.mark.parametrize(("name", "texts"), [*((name, [text]) for name, text in THIRD), *SIDES])
def test_a_side_is_identified_or_left_unnamed(name: str, texts: list[str]) -> None:
    assert language.identify(texts) == name
