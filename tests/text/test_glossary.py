"""Files of terms, and where a text has them."""

import re
from pathlib import Path

import pytest
from models import tokenizers_of

from nmt.config import TokenizerSettings
from nmt.errors import InputError
from nmt.text import UNK, glossary
from nmt.text.glossary import annotated, find_terms, read_glossary, required_tokens, with_terms


def test_a_file_has_pairs_comments_and_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("# animals\n\nHund \t hound\r\nder Hund\tthe dog\nHund\thound\n", encoding="utf-8")
    assert read_glossary(file) == {"Hund": "hound", "der Hund": "the dog"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nHund hound\n", r"terms\.tsv, line 2, is no pair of terms: 'Hund hound'$"),
        ("a\tb\tc\n", r"terms\.tsv, line 1, is no pair of terms"),
        ("\n\ta\n", r"terms\.tsv, line 2, is no pair of terms"),
        ("a\tb\n\na\tc\n", r"terms\.tsv, line 3, translates 'a' again$"),
        ("a " * 21 + "\tb\n", r"terms\.tsv, line 1, is no pair of terms"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "terms.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_glossary(tmp_path / "terms.tsv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hunde, Hund-Hund; Schäferhund", ["Hund", "Hund"]),
        ("der kleine Hund", ["kleine Hund"]),
        ("C++ und C", ["C++", "C"]),
        ("Rot ist rot. „Rot“ ist Rot", ["rot", "rot", "rot"]),
        ("我买书", ["买", "书"]),
        ("HUND hund", []),
    ],
)
def test_terms_are_whole_words_the_longest_first(text: str, expected: list[str]) -> None:
    terms = ["Hund", "kleine Hund", "kleine", "C", "C++", "rot", "书", "买"]
    found = find_terms(text, {term: term for term in terms})
    assert [target for _, target in found] == expected
    assert [text[start:end].lower() for (start, end), _ in found] == [target.lower() for target in expected]


def test_terms_are_encoded_as_in_the_middle_of_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = tokenizers_of(TokenizerSettings(vocab_size=60, byte_fallback=False)).target

    def found(term: str, room: int = 9) -> list[str]:
        return ["".join(tokenizer.pieces(tokens)) for tokens in required_tokens("x", {"x": term}, tokenizer, room, 3)]

    assert found("red dog") == ["▁red▁dog"]
    assert found("red dog", 2) == found("书") == []
    assert caplog.messages == [f"line 3: the model cannot write the term '{term}'" for term in ("red dog", "书")]


def test_in_scripts_without_spaces_no_space_is_before_a_term() -> None:
    tokenizer = tokenizers_of(TokenizerSettings(vocab_size=300)).target
    (tokens,) = required_tokens("x", {"x": "书"}, tokenizer, 9, 1)
    assert tokenizer.decode([*tokenizer.encode("a"), *tokens]) == "a书"
    assert UNK not in tokens


def test_annotated_terms_are_in_the_target() -> None:
    """A share of the pairs has terms; which ones is a function of the pair."""
    assert annotated("我 Hund.", [((0, 1), "I"), ((2, 6), "狗")]) == "我⟦=⟧ I⟦/⟧ Hund⟦=⟧狗⟦/⟧."
    links = [((3 * i, 3 * i + 2), (4 * i, 4 * i + 3)) for i in (0, 1, 3)]
    texts = [("d0 e1 f2 g3 " + str(n), "t0u t1v t2w t3x " + str(n)) for n in range(400)]
    found = [with_terms(source, target, links, ["other"]) for source, target in texts]
    assert found == [with_terms(source, target, links, ["other"]) for source, target in texts]
    terms = [re.findall("(\\w+)⟦=⟧ (.*?)⟦/⟧", source) for source, _ in found]
    listed = {("d0", "t0u"), ("e1", "t1v"), ("e1", "t0u t1v"), ("g3", "t3x")}
    assert {pair for of_pair in terms for pair in of_pair} == listed | {(word, "other") for word, _ in listed}
    is_listed = [one in listed for of_pair in terms for one in of_pair]
    assert sum(is_listed) / len(is_listed) == pytest.approx(1 - glossary.EXCHANGED, abs=0.1)
    assert {*map(len, terms)} == {*range(glossary.MAX_TERMS + 1)}
    assert sum(map(bool, terms)) / len(terms) == pytest.approx(glossary.ANNOTATED, abs=0.1)
    for (source, target), (old, other), of_pair in zip(found, texts, terms, strict=True):
        assert re.sub("⟦=⟧.*?⟦/⟧", "", source) == old
        assert all(term in target for _, term in of_pair)
        n_exchanged = sum(term == "other" for _, term in of_pair)
        assert target.count("other") == n_exchanged
        assert (target == other) == (not n_exchanged)
    assert with_terms("a", "b", [], []) == ("a", "b")
