"""Languages."""

import pytest
from parallel_text import grammar_sides

from nmt.corpus import language
from nmt.corpus.language import compare_with_sides, learn_languages, third_language

ZH, EN = grammar_sides(2000)
CLEARLY = 2  # of `compare_with_sides`


@pytest.fixture(scope="module")
def languages() -> language.Languages:
    return learn_languages(ZH, EN)


def test_the_languages_of_the_sides_are_named(languages: language.Languages) -> None:
    result = [side.name for side in languages.identified]
    assert result == ["zh", "en"]


def test_lines_in_the_other_side_s_language_are_found(languages: language.Languages) -> None:
    english_in_source, _ = compare_with_sides(EN, 0, languages)
    chinese_in_target, _ = compare_with_sides(ZH, 1, languages)
    assert (english_in_source == CLEARLY).mean() > 0.99
    assert (chinese_in_target == CLEARLY).mean() > 0.99


def test_lines_in_the_language_of_their_side_are_not_accused(languages: language.Languages) -> None:
    chinese_in_source, _ = compare_with_sides(ZH, 0, languages)
    english_in_target, _ = compare_with_sides(EN, 1, languages)
    assert not chinese_in_source.any()
    assert not english_in_target.any()


def test_the_same_language_on_both_sides_accuses_nobody() -> None:
    # The medians of both sides are then alike, and nothing lies clearly between them.
    same = learn_languages(EN[:1000], EN[1000:])
    accused, _ = compare_with_sides(EN, 0, same)
    assert not accused.any()


THIRD = {
    "de": "Der Hund ist nicht in dem Haus.",
    "fr": "Il fait très beau aujourd'hui.",
    "nl": "Ik weet niet wat je bedoelt.",
    "cs": "Nevím, co chceš říct.",
    "ru": "Иван купил новую лампу в магазине.",
    "dz": "རྫོང་ཁ་ནི་འབྲུག་གི་རྒྱལ་ཡོངས་ཀྱི་སྐད་ཡིག་ཨིན།",
}


@pytest.mark.parametrize("name", THIRD)
def test_a_third_language_is_named(name: str) -> None:
    result = third_language(THIRD[name], ("zh", "en"))
    assert result == name


EITHER_OR_NONE = ["The dog is not in the house.", "Tom, Anna, Boston", "狗不在房子里。", "12:30", ""]
NO_SENTENCES = ["Hindi", "Afrikaans", "1.250,00 €/kg", "AB-4711/C", "{name} %s https://a.de/x"]


@pytest.mark.parametrize("text", EITHER_OR_NONE)
def test_lines_of_either_language_and_without_one_are_not_accused(text: str) -> None:
    result = third_language(text, ("zh", "en"))
    assert result == ""


@pytest.mark.parametrize("text", NO_SENTENCES)
def test_words_by_themselves_and_what_are_no_words_are_not_accused(text: str) -> None:
    result = third_language(text, ("de", "en"))
    assert result == ""


# With prices and codes, lines of an invoice look like other languages.
GOODS = ("Schrauben", "Lampen", "Kabel", "Ventile", "Bretter")


def test_numbers_and_codes_tell_nothing_about_the_language_of_a_side() -> None:
    invoice = []
    for n in range(10, 210):
        goods = GOODS[n % 5]
        invoice.append(f"Pos. {n}: {n} {goods} zu {n},50 EUR, Nr. A-{n}/{n}")
    result = language.identify_side(invoice)
    assert result == ("de", 1.0)


def test_a_few_words_do_not_prove_the_language_of_a_side() -> None:
    result = language.identify_side(["The cat", "A dog"])
    assert result == ("", 0.0)


def test_no_third_language_is_looked_for_if_an_unknown_language_is_declared() -> None:
    # Tok Pisin: its words look like English ones.
    result = learn_languages(ZH, EN, ("zh", "en")).accepted
    assert result == {"zh", "en"}
    assert not learn_languages(ZH, EN, ("zh", "tpi")).accepted


@pytest.mark.parametrize("text", ["a ४५", "a ٠٩"])
def test_digits_of_all_scripts_count_as_the_same(text: str) -> None:
    hashes = language.ngrams([text]).hashes
    expected = language.ngrams(["a 12"]).hashes
    result = hashes.tolist()
    assert result == expected.tolist()


def test_what_is_no_code_declares_no_language() -> None:
    assert list(map(language.label_of, ["german", "deu_Latn"])) == ["", "de"]


def test_a_side_is_identified() -> None:
    assert language.identify_side(ZH).name == "zh"
    assert language.identify_side(["これは本です。", "私は学生です。"] * 100).name == "ja"


def test_a_side_is_left_unnamed() -> None:
    lines = [THIRD["de"]] * 100 + [THIRD["fr"]] * 100 + [THIRD["nl"]] * 100
    result = language.identify_side(lines)
    assert result == ("", 0.0)
