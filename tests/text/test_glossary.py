"""Files of terms, and where a text has them."""

from pathlib import Path

import pytest

from nmt.errors import InputError
from nmt.text.glossary import Glossary, read_glossary


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
        ("a\tb\n\na\tc\n", r"terms\.tsv, line 3: 'a' is 'b' already$"),
        ("# a\tb\n", r"terms\.tsv has no terms$"),
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
    found = Glossary({term: term for term in terms}).find(text)
    assert [target for _, target in found] == expected
    assert [text[start:end].lower() for (start, end), _ in found] == [target.lower() for target in expected]
