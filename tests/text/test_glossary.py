"""Files of terms, and where a text has them."""

import re
from collections import Counter
from pathlib import Path

import pytest
from models import tokenizers_of

from nmt.config import TokenizerSettings
from nmt.errors import InputError
from nmt.text import UNK
from nmt.text.glossary import ANNOTATED, EXCHANGED, MAX_TERMS, annotated, find_terms, read_glossary, required_tokens
from nmt.text.glossary import with_terms as annotate_pair
from nmt.text.lines import iter_lines
from nmt.text.tokenizer import Tokenizer


def test_a_file_has_pairs_comments_and_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("# animals\n\nHund \t hound\r\nder Hund\tthe dog\nHund\thound\n", encoding="utf-8")
    result = read_glossary(file, iter_lines([file]))
    assert result == {"Hund": "hound", "der Hund": "the dog"}


BAD_FILES = {
    "a\tb\nHund hound\n": r"terms\.tsv, line 2, is no pair of terms: 'Hund hound'$",
    "a\tb\tc\n": r"terms\.tsv, line 1, is no pair of terms",
    "\n\ta\n": r"terms\.tsv, line 2, is no pair of terms",  # no source
    "a\tb\n\na\tc\n": r"terms\.tsv, line 3, translates 'a' again$",
    "a " * 21 + "\tb\n": r"terms\.tsv, line 1, is no pair of terms",  # too many words
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_bad_line_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=BAD_FILES[text]):
        read_glossary(file, iter_lines([file]))


TERMS = ["Hund", "kleine Hund", "kleine", "C", "C++", "rot", "书", "买", "天気", "ネコ"]
TERMS += ["फल", "দেশ", "பழம்", "שלום", "ቤት", "տուն", "한국", "ปลา", "ปาก", "ທະເລ", "ត្រី", "ငါး", "ལྷ་ས", "ནང་"]
WITH_TERMS = {
    "whole words": "Hunde, ⟨Hund⟩-⟨Hund⟩; Schäferhund",
    "the longest": "der ⟨kleine Hund⟩",
    "punctuation marks": "⟨C++⟩ und ⟨C⟩",
    "a capital at the beginning of a sentence": "⟨Rot⟩ ist ⟨rot⟩. „⟨Rot⟩“ ist Rot",
    "characters of an unspaced script": "我⟨买⟩⟨书⟩",
    "other case": "HUND hund",
    "whole words of scripts with vowel signs": "फलों ⟨फल⟩ দেশের ⟨দেশ⟩, பழம்தான் ⟨பழம்⟩",
    "whole words of other scripts": "⟨שלום⟩, שלומי; ⟨ቤት⟩ ቤቶች ⟨տուն⟩ տունը ⟨한국⟩ 한국어",
    "syllables of Thai": "เขากิน⟨ปลา⟩ทูที่⟨ปาก⟩น้ำ",
    "no part of a syllable": "ឆ្មាស៊ី⟨ត្រី⟩ ត្រ ငါ⟨ငါး⟩စားငါးန်",
    "syllables of Lao": "ຢູ່ແຄມ⟨ທະເລ⟩ງາມ",
    "syllables of Tibetan": "ང་⟨ལྷ་ས་⟩ལ་འགྲོ། ⟨ལྷ་ས⟩། ཁང་⟨ནང་⟩དུ་ ⟨ནང⟩།",
    "Japanese": "今日の⟨天気⟩は⟨ネコ⟩に",
}


@pytest.mark.parametrize("name", WITH_TERMS)
def test_terms_of_a_text(name: str) -> None:
    text = re.sub("[⟨⟩]", "", WITH_TERMS[name])
    glossary = {term: f"translated {term}" for term in TERMS}
    terms = find_terms(text, glossary)
    for (start, end), translation in reversed(terms):
        term = text[start:end]
        assert translation.lower().rstrip("་") == f"translated {term}".lower().rstrip("་")
        text = f"{text[:start]}⟨{term}⟩{text[end:]}"
    assert text == WITH_TERMS[name]


def small_tokenizer() -> Tokenizer:
    return tokenizers_of(TokenizerSettings(vocab_size=60, byte_fallback=False)).target


def test_terms_are_encoded_as_in_the_middle_of_a_sentence() -> None:
    tokenizer = small_tokenizer()
    (tokens,) = required_tokens("x", {"x": "red dog"}, tokenizer, room=9, line=3)
    assert "".join(tokenizer.pieces(tokens)) == "▁red▁dog"


@pytest.mark.parametrize("term", ["red dog", "书"])
def test_a_term_that_the_model_cannot_write_is_left_out(caplog: pytest.LogCaptureFixture, term: str) -> None:
    # There is room for two tokens.
    tokens = required_tokens("x", {"x": term}, small_tokenizer(), room=2, line=3)
    assert tokens == []
    assert caplog.messages == [f"line 3: the model cannot write the term '{term}'"]
    assert caplog.records[0].name == "nmt.texts", "`nmt serve` does not log it"


def test_in_scripts_without_spaces_no_space_is_before_a_term() -> None:
    tokenizer = tokenizers_of(TokenizerSettings(vocab_size=300)).target
    (tokens,) = required_tokens("x", {"x": "书"}, tokenizer, room=9, line=1)
    before = tokenizer.encode("a")
    assert tokenizer.decode(before + tokens) == "a书"
    assert UNK not in tokens


def test_the_translations_of_terms_are_written_behind_them() -> None:
    translations = [((0, 1), "I"), ((2, 6), "狗")]
    assert annotated("我 Hund.", translations) == "我⟦=⟧ I⟦/⟧ Hund⟦=⟧狗⟦/⟧."


# --- training pairs ---------------------------------------------------------------------------------------

# d0, e1 and g3 are linked to t0u, t1v and t3x.
LINKS = [((0, 2), (0, 3)), ((3, 5), (4, 7)), ((9, 11), (12, 15))]
PAIRS = [(f"d0 e1 f2 g3 {n}", f"t0u t1v t2w t3x {n}") for n in range(400)]
TRANSLATIONS = {("d0", "t0u"), ("e1", "t1v"), ("e1", "t0u t1v"), ("g3", "t3x")}  # d0 e1 may be one term
ANNOTATION = re.compile("(\\w+)⟦=⟧ (.*?)⟦/⟧")


def with_terms(pair: tuple[str, str]) -> tuple[str, str]:
    return annotate_pair(*pair, LINKS, ["other"])


def terms_of(source: str) -> list[tuple[str, str]]:
    """The last word and the translation of each annotated term."""
    return ANNOTATION.findall(source)


@pytest.mark.parametrize("pair", PAIRS[:20])
def test_annotated_terms_are_in_the_target(pair: tuple[str, str]) -> None:
    source, target = with_terms(pair)
    translations = [translation for _, translation in terms_of(source)]
    plain = re.sub("⟦=⟧.*?⟦/⟧", "", source)
    assert plain == pair[0]
    assert all(translation in target for translation in translations)
    result = target.count("other")
    assert result == translations.count("other")
    assert (target == pair[1]) == ("other" not in translations)


@pytest.mark.parametrize("pair", PAIRS[:20])
def test_terms_are_a_function_of_the_pair(pair: tuple[str, str]) -> None:
    assert with_terms(pair) == with_terms(pair)


def test_a_share_of_the_pairs_has_terms_some_of_them_exchanged() -> None:
    n_terms = Counter[int]()
    terms = []
    for pair in PAIRS:
        source, _ = with_terms(pair)
        terms_of_pair = terms_of(source)
        n_terms[len(terms_of_pair)] += 1
        terms += terms_of_pair
    result = set(n_terms)
    assert result == set(range(MAX_TERMS + 1))
    share_without = n_terms[0] / len(PAIRS)
    assert share_without == pytest.approx(1 - ANNOTATED, abs=0.1)
    exchanged = [term for term in terms if term[1] == "other"]
    assert set(terms) - set(exchanged) == TRANSLATIONS
    assert {word for word, _ in exchanged} == {"d0", "e1", "g3"}
    share = len(exchanged) / len(terms)
    assert share == pytest.approx(EXCHANGED, abs=0.1)


def test_a_pair_without_links_has_no_terms() -> None:
    assert annotate_pair("a", "b", [], []) == ("a", "b")
