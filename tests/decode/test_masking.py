"""Every placeholder of a line is written once, whatever the model writes; where one goes that the model left out."""

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import small_translator

from nmt.decode.masking import restored
from nmt.decode.options import Hypothesis
from nmt.decode.segments import Line
from nmt.text import EOS
from nmt.text.placeholders import SYMBOLS, Masked, patterns_of

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
    monkeypatch.setattr("nmt.decode.masking.align", lambda *_: [links])  # of words
    with caplog.at_level(logging.WARNING, "nmt"):
        mask = Masked.of(text, PATTERNS, symbols)
        TRAINED.protected = PATTERNS
        assert restored(TRAINED, [(Line(7, text), mask, written)]) == [expected]
    assert [record.getMessage() for record in caplog.records] == (
        [] if links else ["line 7: the model left out {a}, which is put at the end"]
    )


TEXTS = st.lists(st.sampled_from(["{a}", "%s", "a@b.de", "12", "😀", "a", "learn", "."]), max_size=14).map(" ".join)


@settings(max_examples=50)
@given(TEXTS, st.booleans(), st.data())
def test_each_span_is_written_once_whatever_the_model_writes(text: str, is_trained: bool, data: st.DataObject) -> None:
    translator = small_translator(placeholders=is_trained)
    translator.protected = PATTERNS
    pieces = st.sampled_from([*SYMBOLS, "the", " a", " 12", "."])

    def start(segments: Sequence[object], *_: object, **__: object) -> object:
        written = ["".join(data.draw(st.lists(pieces, max_size=8))) for _ in segments]
        encode = translator.tokenizers.target.encode
        return lambda: [[Hypothesis([*encode(one), EOS], [], 0.0)] for one in written]

    translator.engine.start = start  # type: ignore[method-assign, assignment]
    (found,) = translator.translate([text])
    for span in ("{a}", "%s", "a@b.de", "😀", "⟦"):
        assert found.count(span) == text.count(span)
