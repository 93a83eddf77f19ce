"""Exact matches of a memory are translations, similar ones are offered; the index finds what a full search finds."""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import environment
from models import small_translator
from rapidfuzz.distance import Levenshtein

from nmt.documents.html import HTML
from nmt.errors import ConfigError, OutputError
from nmt.translate.documents import DocumentTranslation
from nmt.translate.markup import MarkupTranslator
from nmt.translate.matches import best_match, index_of, is_whole, key_of
from nmt.translate.units import Match, Translation, Unit

TRANSLATOR = small_translator()
HELLO, BONJOUR = "The red dog runs in the garden of an old house.", "Le chien rouge court dans le jardin."
SIMILAR = HELLO.replace("red", "big")
SIMILARITY = 10 / 11  # 10 of 11 words are equal
Pairs = Sequence[tuple[str, str]]


def indexed(folder: Path, *pairs: tuple[str, str]) -> str:
    """Return the index of a memory with these pairs."""
    folder.mkdir(exist_ok=True)
    source, target = folder / "source.en", folder / "target.fr"
    with source.open("w") as sources, target.open("w") as targets:
        for old, new in pairs:
            print(old, file=sources)
            print(new, file=targets)
    return str(index_of(source, target))


@pytest.fixture
def memory(tmp_path: Path) -> str:
    return indexed(tmp_path, ("A cat", "Un chat"), (HELLO, BONJOUR))


def translation_of(text: str, memory: str, **options: Any) -> Translation:
    changed = TRANSLATOR.with_options(memory=[memory], **options)
    (translation,) = TRANSLATOR.translate_lines([text], changed)
    return translation


# --- the step ---------------------------------------------------------------------------------------------


def test_an_exact_match_is_the_translation(memory: str) -> None:
    translation = translation_of(f"  {HELLO} ", memory)
    assert translation.source == f"  {HELLO} "
    assert translation.text == BONJOUR
    assert translation.matches == [Match(HELLO, BONJOUR, 1.0, is_taken=True)]
    assert translation.doubts is None


def test_a_similar_unit_is_offered_beside_the_translation_of_the_model(memory: str) -> None:
    translation = translation_of(SIMILAR, memory)
    assert translation.text == TRANSLATOR.translate([SIMILAR])[0]
    (match,) = translation.matches
    assert match == Match(HELLO, BONJOUR, match.similarity)
    assert match.similarity == pytest.approx(SIMILARITY)


def test_another_text_has_no_match(memory: str) -> None:
    assert translation_of("Nothing like it.", memory).matches == []


def test_above_the_threshold_a_similar_unit_is_taken_and_doubtful(memory: str) -> None:
    translation = translation_of(SIMILAR, memory, min_match=0.9)
    assert translation.text == BONJOUR
    assert translation.doubts == ["match of 91%"]
    assert [part.text for part in translation.parts] == [BONJOUR]
    assert translation_of(SIMILAR, memory, min_match=0.95).text != BONJOUR


def test_a_threshold_below_that_of_matches_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_match"):
        TRANSLATOR.with_options(min_match=0.5)


def test_a_text_with_other_spaces_is_no_exact_match(memory: str) -> None:
    translation = translation_of(HELLO.replace(" ", "  "), memory)
    assert [match.similarity for match in translation.matches] == [0.99]


def test_a_match_with_other_placeholders_is_not_taken(tmp_path: Path) -> None:
    index = indexed(tmp_path, ("Open {file}", "Ouvrir"), ("Close {file}", "Fermer {file}"))
    assert not translation_of("Open {file}", index).matches[0].is_taken
    assert translation_of("Close {file}", index, protect_placeholders=True).text == "Fermer {file}"


def test_a_match_does_not_replace_a_translation_with_a_prefix(memory: str) -> None:
    unit = Unit(1, HELLO, prefix=TRANSLATOR.encode_prefix("a"))
    (translation,) = TRANSLATOR.translate_lines([unit], TRANSLATOR.with_options(memory=[memory]))
    assert translation.text.startswith("a")


def test_exact_matches_of_sentences_are_taken(memory: str) -> None:
    first, second = translation_of(f"{HELLO} No dog!", memory).parts
    assert (first.source, first.text) == (HELLO, BONJOUR)
    assert second.text == TRANSLATOR.translate(["No dog!"])[0]


def test_the_best_match_of_several_memories_is_taken(tmp_path: Path, memory: str) -> None:
    other = indexed(tmp_path / "other", (SIMILAR, "Le grand chien"))
    options = TRANSLATOR.with_options(memory=[memory, other], min_match=0.7)
    first, second = TRANSLATOR.translate_lines([SIMILAR, HELLO], options)
    assert first.text == "Le grand chien"
    assert second.text == BONJOUR


def test_tags_are_put_into_an_exact_match(memory: str) -> None:
    translator = MarkupTranslator(TRANSLATOR, HTML)
    line = HELLO.replace("red", "<b>red</b>")
    (translation,) = translator.translate_lines([line], TRANSLATOR.with_options(memory=[memory]))
    result = translation.text.replace("<b>", "").replace("</b>", "")
    assert result == BONJOUR
    assert "<b>" in translation.text


def test_explanations_know_no_memory(memory: str) -> None:
    assert TRANSLATOR.requests_of(HELLO, TRANSLATOR.with_options(memory=[memory]))


# --- documents --------------------------------------------------------------------------------------------


def translated(suffix: str, text: str, memory: str, **options: Any) -> str:
    """Return the translation of a document."""
    changed = TRANSLATOR.with_options(memory=[memory], scores=False, **options)
    document = DocumentTranslation(TRANSLATOR, f"a{suffix}", suffix, text.encode(), 10_000, options=changed)
    assert list(document.translations())
    return document.content().decode()


def po(source: str) -> str:
    return f'#: a.c:1\nmsgid "{source}"\nmsgstr ""\n'


def test_in_a_po_file_accelerators_and_directives_stay(tmp_path: Path) -> None:
    index = indexed(tmp_path, ("_Save", "_Enregistrer"), ("Copy %s to %s", "Copier %s vers %s"))
    assert 'msgstr "_Enregistrer"\n' in translated(".po", po("_Save"), index)
    assert 'msgstr "_Enregistrer"\n' in translated(".po", po("Sa_ve"), index)
    assert 'msgstr "Copier %s vers %s"\n' in translated(".po", po("Copy %s to %s"), index)


def test_a_po_file_has_a_note_about_a_match(memory: str) -> None:
    text = translated(".po", po(SIMILAR), memory)
    assert f"#: a.c:1\n# 91% match: {HELLO} -> {BONJOUR}\nmsgid" in text


def test_in_a_po_file_a_similar_match_that_is_taken_is_fuzzy(memory: str) -> None:
    text = translated(".po", po(SIMILAR), memory, min_match=0.9)
    assert f"#, fuzzy\n# 91% match: {HELLO} -> {BONJOUR}\nmsgid" in text
    assert f'msgstr "{BONJOUR}"' in text


def test_in_a_po_file_an_exact_match_is_not_fuzzy(memory: str) -> None:
    text = translated(".po", po("A cat"), memory, min_match=0.9)
    assert '# 100% match: A cat -> Un chat\nmsgid "A cat"\nmsgstr "Un chat"' in text
    assert "fuzzy" not in text


def test_in_xliff_a_similar_match_that_is_taken_is_to_be_reviewed(memory: str) -> None:
    unit = f"<trans-unit id='1'><source>{SIMILAR}</source></trans-unit>"
    text = translated(".xlf", f"<xliff version='1.2'><file><body>{unit}</body></file></xliff>", memory, min_match=0.9)
    assert f'<target state="needs-review-translation">{BONJOUR}</target>' in text


@pytest.mark.parametrize("suffix", [".html", ".md", ".txt"])
def test_documents_have_exact_matches(suffix: str, memory: str) -> None:
    assert BONJOUR in translated(suffix, HELLO, memory)


def test_in_a_format_without_states_a_similar_match_that_is_taken_is_named(
    memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert BONJOUR in translated(".txt", SIMILAR, memory, min_match=0.9)
    assert f"text 1 is doubtful: match of 91%: {SIMILAR} -> {BONJOUR}" in caplog.text


# --- the index --------------------------------------------------------------------------------------------


def test_the_last_one_of_equal_units_is_found(tmp_path: Path) -> None:
    index = indexed(tmp_path, ("a dog", "un"), ("a dog", "deux"), ("a  dog", "trois"))
    match = best_match("a dog", index)
    assert match == Match("a dog", "deux", 1.0)


def similarity(text: str, unit: str) -> float:
    return Levenshtein.normalized_similarity(text.split(), unit.split())


def test_matches_are_those_of_a_full_search(tmp_path: Path) -> None:
    generator = random.Random(1)
    texts = []
    for _ in range(800):
        n_words = generator.randint(2, 12)
        texts.append(" ".join(generator.choices("abcde", k=n_words)))
    units = texts[:700]
    index = indexed(tmp_path, *zip(units, units, strict=True))
    n_matches = 0
    for text in texts[700:]:
        best = max(similarity(text, unit) for unit in units)
        match = best_match(text, index)
        if best < 0.7:
            assert match is None
        else:
            assert match is not None
            assert match.similarity == pytest.approx(best)
            n_matches += 1
    assert n_matches > 30


@pytest.mark.parametrize(("text", "n_words"), [("I don't!", 2), ("Copied “%s” to “%s”", 4), ("猫在家。", 4)])
def test_each_word_has_a_character(text: str, n_words: int) -> None:
    assert len(key_of(text)) == n_words


def test_long_and_blank_texts_have_no_matches(tmp_path: Path) -> None:
    long = "word " * 2_000_000
    index = indexed(tmp_path, (long, "mot"), ("", ""), ("da", "there"))
    assert best_match(long, index) is None
    assert best_match("", index) is None
    assert best_match("da", index)


def test_an_index_is_made_once_and_anew_if_it_is_damaged(tmp_path: Path) -> None:
    index = Path(indexed(tmp_path, ("a", "b")))
    made = index.stat().st_mtime_ns
    result = indexed(tmp_path, ("a", "b"))
    assert result == str(index)
    assert index.stat().st_mtime_ns == made
    for content in (b"", b"another program's file", index.read_bytes()[:5000]):
        index.write_bytes(content)
        indexed(tmp_path, ("a", "b"))
        assert is_whole(index.parent)
    assert best_match("a", str(index))


def test_an_index_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"another program's file")
    with pytest.raises(OutputError, match="index cannot be used: file is not a database"):
        best_match("a", str(tmp_path / "index"))


MAKE = """
from pathlib import Path
from nmt.translate.matches import best_match, index_of
index = str(index_of(Path("source.en"), Path("target.fr")))
print(index, best_match("The dog", index))
"""


def test_two_processes_make_one_index(tmp_path: Path) -> None:
    (tmp_path / "source.en").write_text("A dog\nThe dog\n" * 5000)
    (tmp_path / "target.fr").write_text("Un chien\nLe chien\n" * 5000)
    processes = []
    for _ in range(2):
        command = [sys.executable, "-c", MAKE]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
        processes.append(process)
    first, second = [process.communicate()[0] for process in processes]
    assert first == second
    assert "Le chien" in first
