"""Every placeholder of a line is written once, whatever the model writes; where one goes that the model left out."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import small_translator, translator_without_bytes

from nmt.decode.options import Hypothesis
from nmt.text import EOS
from nmt.text.placeholders import SYMBOLS, Masked, patterns_of
from nmt.translate import placeholders
from nmt.translate.align import Links
from nmt.translate.placeholders import Placeholders
from nmt.translate.units import TextHypothesis, Translation, Unit

TRAINED = small_translator(placeholders=True)
WITHOUT_BYTES = translator_without_bytes()


def translation_of(text: str) -> str:
    (translation,) = WITHOUT_BYTES.translate([text])
    return translation


# --- spans that the model left out ------------------------------------------------------------------------


def restored(text: str, written: str, symbols: Sequence[str]) -> str:
    """Return the translation of a text, for which the model has written another without placeholders."""
    unknown = {"[", "*", "]"}
    patterns = patterns_of([])
    step = Placeholders(TRAINED.engine, TRAINED.tokenizers, patterns, symbols, unknown.intersection)
    step.prepare([Unit(7, text)])
    hypothesis = TextHypothesis([], [], 0.0, [], written)
    translation = Translation("", [hypothesis])
    step.restore([translation])
    return translation.text


# Links are between the words of a text, spans included, and those that the model wrote.
LEFT_OUT: list[tuple[Sequence[str], str, str, Links, str]] = [
    (SYMBOLS, "Hund {a} rennt", "dog runs.", [(0, 0), (2, 1)], "dog {a} runs."),
    (SYMBOLS, "Hund {a} {b} rennt", "runs dog.", [(0, 1), (3, 0)], "runs dog {a} {b}."),
    ([], "3 Hunde rennen", "three dogs run.", [(0, 0), (1, 1), (2, 2)], "3 dogs run."),
    ([], "Hund 3,5 {a} rennt", "dog 3.5 runs.", [(0, 0), (1, 1), (2, 2), (3, 3)], "dog 3,5 {a} runs."),
    ([], "Hund [rennt] schnell", "fast runs dog.", [(0, 2), (1, 1), (2, 0)], "fast [runs] dog."),
    ([], "* Hund rennt. *", "a dog runs.", [(0, 1), (1, 2)], "* a dog runs. *"),
    ([], "Hund* rennt", "runs dog.", [(0, 1), (1, 0)], "runs dog*."),
    ([], "Hund: {a} rennt", "runs dog:", [(0, 1), (1, 0)], "runs dog: {a}"),
    ([], "Hund/{a} rennt", "runs dog/", [(0, 1), (1, 0)], "runs dog/{a}"),
    ([], "Hund: {a} rennt", "runs, dog", [(0, 1), (1, 0)], "runs, dog {a}"),
]


@pytest.mark.parametrize(("symbols", "text", "written", "links", "expected"), LEFT_OUT)
def test_a_span_that_the_model_left_out_goes_where_the_links_say(
    symbols: Sequence[str], text: str, written: str, links: Links, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placeholders, "align", lambda *_: [links])
    monkeypatch.setattr(TRAINED.tokenizers.source, "has_word", lambda _: True)
    assert restored(text, written, symbols) == expected


def test_without_links_it_goes_to_the_end_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(placeholders, "align", lambda *_: [[]])
    assert restored("Hund {a} rennt", "Hund rennt 我。", []) == "Hund rennt 我{a}。"
    assert caplog.messages == ["line 7: the model left out {a}, which is put at the end"]
    assert caplog.records[0].name == "nmt.texts", "`nmt serve` does not log it"


# Symbols, a text, what the model writes, and the translation.
TOUCHING: list[tuple[Sequence[str], str, str, str]] = [
    ([], "{a}昨天", "Dog runs.", "{a} Dog runs."),
    ([], "昨天{a}", "Dog runs", "Dog runs {a}"),
    ([], "{a}: Hund", "Dog", "{a} Dog"),
    ([], "Hund.{a}", "Dog.", "Dog.{a}"),
    ([], "[Hund", "Dog", "[Dog"),
    (SYMBOLS, "昨{a}天", "Dog⟦1⟧runs", "Dog {a} runs"),
    (SYMBOLS, "Hund{a}er", "Dog⟦1⟧s", "Dog{a}s"),
]


@pytest.mark.parametrize(("symbols", "text", "written", "expected"), TOUCHING)
def test_a_span_touches_words_as_in_the_source_if_its_script_has_spaces(
    symbols: Sequence[str], text: str, written: str, expected: str
) -> None:
    assert restored(text, written, symbols) == expected


def test_quotation_marks_go_with_the_span_that_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placeholders, "align", lambda *_: [[(0, 1), (1, 0)]])
    assert restored("Hund „{a}“ rennt", "runs dog.", []) == "runs dog „{a}“."


def test_directives_that_changed_places_are_put_back_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert restored("%s mag %d", "⟦2⟧ mag ⟦1⟧", SYMBOLS) == "%s mag %d"
    assert caplog.messages == ["line 7: the directives changed places, which is undone; check the translation"]


def test_directives_and_tags_that_the_model_invents_are_removed() -> None:
    assert restored("Hund {a}", "%s dog <b>⟦1⟧ {x}.", SYMBOLS) == "dog {a}."


def test_brackets_like_those_of_a_tag_are_text_of_a_model_without_tags() -> None:
    step = Placeholders(TRAINED.engine, TRAINED.tokenizers, patterns_of([]), [], lambda _: set())
    mask = step.masked(">>{a} Hund<< 3 {b}")
    assert mask is not None
    result = [kept.original for kept in mask.kept]
    assert result == ["{a}", "3", "{b}"]


# --- whatever the model writes ----------------------------------------------------------------------------

SPANS = ["{a}", "%s", "a@b.de", "😀"]
WORDS = st.sampled_from([*SPANS, "12", "a", "learn", "."])
PIECES = st.sampled_from([*SYMBOLS, "the", " a", " 12", "."])
TEXTS = st.lists(WORDS, max_size=14).map(" ".join)
WRITTEN = st.lists(PIECES, max_size=8).map("".join)


@settings(max_examples=50)
@given(TEXTS, st.booleans(), st.data())
def test_each_span_is_written_once_whatever_the_model_writes(text: str, is_trained: bool, data: st.DataObject) -> None:
    translator = small_translator(placeholders=is_trained)

    def start(requests: Sequence[object], *_: object, **__: object) -> object:
        n_bests = []
        for _request in requests:
            tokens = translator.tokenizers.target.encode(data.draw(WRITTEN))
            n_bests.append([Hypothesis([*tokens, EOS], [], 0.0)])
        return lambda: n_bests

    translator.engine.start = start  # type: ignore[method-assign, assignment]
    (translation,) = translator.translate([text], protect_placeholders=True)
    for span in [*SPANS, "⟦"]:
        assert translation.count(span) == text.count(span)


SIGNS = ["😀", "✓✓", "*"]


INSERTED = st.tuples(st.integers(0, 4), st.sampled_from(SIGNS))


@settings(max_examples=30)
@given(st.lists(INSERTED, min_size=1, max_size=4))
def test_the_rest_of_a_line_is_translated_as_without_its_unknown_signs(signs: list[tuple[int, str]]) -> None:
    words = ["the", "red", "dog", "runs."]
    for index, sign in signs:
        words.insert(index, sign)
    translation = translation_of(" ".join(words))
    without = translation
    for sign in SIGNS:
        assert translation.count(sign) == words.count(sign)
        without = without.replace(f" {sign}", "").replace(sign, "")
    result = without.strip()
    assert result == translation_of("the red dog runs.").strip()


# --- characters that the model cannot read ----------------------------------------------------------------


@pytest.mark.parametrize("line", ["the red dog runs.", "THE RED\tDOG RUNS.", "the r\u00e9d dog runs.", ""])
def test_lines_without_unknown_characters_skip_the_step(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placeholders, "Placeholders", None)
    assert len(WITHOUT_BYTES.translate([line])) == 1


def test_unknown_words_are_copied() -> None:
    assert translation_of("Жук") == "Жук"
    assert translation_of("😀") == "😀"
    assert "Жук" in translation_of("the Жук runs.")


def test_letters_are_composed() -> None:
    assert translation_of("the re\u0301d dog") == translation_of("the red dog")


def test_a_ligature_is_read_as_its_letters() -> None:
    assert translation_of("the small \ufb06one") == translation_of("the small stone")


def test_an_unknown_sign_in_a_word_is_taken_out() -> None:
    mask = Masked.of("Donau\u00addampf und*oder", [], SYMBOLS, "\u00ad*")
    assert mask.text == "Donaudampf und oder"
    assert mask.marks == ["", ""]


# A text, and the spans that are kept of it if the model cannot read %, $, < and >.
UNKNOWN_SIGNS = {
    "%{name} Hund": ["%{name}"],
    "Hund <{a}> da": ["<{a}>"],
    "Hund 5% da": ["5%"],
    "Hund > {a}": [">", "{a}"],
}


@pytest.mark.parametrize("text", UNKNOWN_SIGNS)
def test_unknown_signs_that_touch_a_placeholder_stay_with_it(text: str) -> None:
    mask = Masked.of(text + " da", patterns_of([]), SYMBOLS, "%$<>Ж")
    result = [kept.original for kept in mask.kept]
    assert result == UNKNOWN_SIGNS[text]


def test_a_long_text_is_masked_in_linear_time() -> None:
    mask = Masked.of("x" * 100_000 + " Ж*", [], [], "Ж*")
    assert [kept.original for kept in mask.kept] == ["Ж", "*"]


def test_a_model_reads_the_characters_that_it_has_learned_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = small_translator()
    assert translator.unknown("5 €") == {"5", "€"}
    translator.tokenizers = translator.tokenizers.with_learned("5€")
    assert translator.unknown("5 €") == set()
    monkeypatch.setattr(placeholders, "Placeholders", None)  # it is not needed
    assert len(translator.translate(["5 €"])) == 1
