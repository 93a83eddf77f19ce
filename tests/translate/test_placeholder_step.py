"""Every placeholder of a line is written once, whatever the model writes; where one goes that the model left out."""

import logging
import re
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import small_translator, translator_without_bytes

from nmt.decode.options import Hypothesis
from nmt.text import EOS
from nmt.text.placeholders import SYMBOLS, Masked, patterns_of
from nmt.translate import placeholders
from nmt.translate.placeholders import Placeholders
from nmt.translate.units import TextHypothesis, Translation, Unit

TRAINED = small_translator(placeholders=True)
PATTERNS = patterns_of([])


@pytest.mark.parametrize(
    ("symbols", "text", "written", "links", "expected"),
    [
        (SYMBOLS, "Hund {a} rennt", "dog runs.", [(0, 0), (2, 1)], "dog {a} runs."),
        (SYMBOLS, "{a} Hund rennt", "dog runs.", [(1, 0), (2, 1)], "{a} dog runs."),
        (SYMBOLS, "Hund {a} {b} rennt", "runs dog.", [(0, 1), (3, 0)], "runs dog {a} {b}."),
        ([], "3 Hunde rennen", "three dogs run.", [(0, 0), (1, 1), (2, 2)], "3 dogs run."),
        ([], "Hund 3,5 {a} rennt", "dog 3.5 runs.", [(0, 0), (1, 1), (2, 2), (3, 3)], "dog 3,5 {a} runs."),
        ([], "Hund {a} rennt", "Hund rennt 我。", [], "Hund rennt 我{a}。"),
        ([], "Hund [rennt] schnell", "fast runs dog.", [(0, 2), (1, 1), (2, 0)], "fast [runs] dog."),
        ([], "* Hund rennt. *", "a dog runs.", [(0, 1), (1, 2)], "* a dog runs. *"),
        ([], "Hund* rennt", "runs dog.", [(0, 1), (1, 0)], "runs dog*."),
    ],
)
def test_where_a_span_goes_that_the_model_left_out(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    symbols: Sequence[str],
    text: str,
    written: str,
    links: list[tuple[int, int]],
    expected: str,
) -> None:
    monkeypatch.setattr(placeholders, "align", lambda *_: [links])
    monkeypatch.setattr(TRAINED.tokenizers.source, "has_word", lambda _: True)
    unknown = {"[", "*", "]"}
    step = Placeholders(
        TRAINED.engine, TRAINED.tokenizers, PATTERNS, symbols, unknown=lambda text: unknown.intersection(text)
    )
    (unit,) = step.prepare([Unit(7, text)])
    translation = Translation(unit.text, [TextHypothesis([], [], 0.0, [], written)], 7)
    with caplog.at_level(logging.WARNING, "nmt"):
        step.restore([translation])
    assert translation.text == expected
    assert [record.getMessage() for record in caplog.records] == (
        [] if links else ["line 7: the model left out {a}, which is put at the end"]
    )


TEXTS = st.lists(st.sampled_from(["{a}", "%s", "a@b.de", "12", "😀", "a", "learn", "."]), max_size=14).map(" ".join)


@settings(max_examples=50)
@given(TEXTS, st.booleans(), st.data())
def test_each_span_is_written_once_whatever_the_model_writes(text: str, is_trained: bool, data: st.DataObject) -> None:
    translator = small_translator(placeholders=is_trained)
    pieces = st.sampled_from([*SYMBOLS, "the", " a", " 12", "."])

    def start(requests: Sequence[object], *_: object, **__: object) -> object:
        encode = translator.tokenizers.target.encode
        written = ["".join(data.draw(st.lists(pieces, max_size=8))) for _ in requests]
        n_bests = [[Hypothesis([*encode(text), EOS], [], 0.0)] for text in written]
        return SimpleNamespace(result=lambda: n_bests)

    translator.engine.start = start  # type: ignore[method-assign, assignment]
    (found,) = translator.translate([text], protect_placeholders=True)
    for span in ("{a}", "%s", "a@b.de", "😀", "⟦"):
        assert found.count(span) == text.count(span)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["😀", "✓✓", "*"])), min_size=1, max_size=4))
def test_the_rest_of_a_line_is_translated_as_without_its_unknown_signs(signs: list[tuple[int, str]]) -> None:
    translator, words = translator_without_bytes(), ["the", "red", "dog", "runs."]
    for at, sign in signs:
        words.insert(at, sign)
    (plain,), (found,) = (translator.translate([text]) for text in ("the red dog runs.", " ".join(words)))
    assert sorted(re.findall("😀|✓✓|\\*", found)) == sorted(sign for _, sign in signs)
    assert re.sub(" ?[😀✓*]+", "", found).strip() == plain.strip()


def test_lines_without_unknown_characters_are_not_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = translator_without_bytes()
    monkeypatch.setattr("nmt.translate.placeholders.Placeholders", None)
    assert len(translator.translate(["the red dog runs.", "THE RED\tDOG RUNS.", "the r\u00e9d dog runs.", ""])) == 4


def test_unknown_words_are_copied_and_known_letters_are_composed() -> None:
    translator = translator_without_bytes()
    assert translator.translate(["Жук", "😀"]) == ["Жук", "😀"]
    assert "Жук" in translator.translate(["the Жук runs."])[0]
    assert translator.translate(["the re\u0301d dog"]) == translator.translate(["the red dog"])
    mask = Masked.of("Donau\u00addampf und*oder", [], SYMBOLS, "\u00ad*")
    assert (mask.text, mask.marks) == ("Donaudampf und oder", ["", ""])
    mask = Masked.of("x" * 100_000 + " Ж*", [], [], "Ж*")
    assert [kept.original for kept in mask.kept] == ["Ж", "*"], "in linear time"


def test_a_character_that_training_taught_in_bytes_is_not_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = small_translator()
    assert translator.unknown("5 €") == {"5", "€"}
    translator.tokenizers = translator.tokenizers.with_learned("5€")
    monkeypatch.setattr("nmt.translate.placeholders.Placeholders", None)
    assert translator.unknown("5 €") == set()
    assert len(translator.translate(["5 €"])) == 1


def test_a_ligature_is_read_as_its_letters() -> None:
    translator = translator_without_bytes()
    (expected,) = translator.translate(["the small stone"])
    assert translator.translate(["the small \ufb06one"]) == [expected]


def test_a_model_reads_the_characters_that_it_has_learned_in_bytes() -> None:
    translator = small_translator()
    translator.tokenizers = translator.tokenizers.with_learned("ə")
    assert translator.unknown("€ə") == {"€"}
