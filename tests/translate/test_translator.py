"""The translator: one output line per input line, the same translation in any batch, messages that name lines."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from conftest import model_of
from hypothesis import given, settings
from hypothesis import strategies as st
from models import LINES, small_translator

from nmt.decode.options import Hypothesis, SearchRequest
from nmt.documents.html import HTML
from nmt.errors import ConfigError, InputError, ModelError
from nmt.text import EOS
from nmt.text.lines import Pause, is_blank
from nmt.translate.loading import load
from nmt.translate.markup import MarkupTranslator
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import Translator
from nmt.translate.units import TextHypothesis, Translation, Unit, joined
from nmt.translate.windows import read_window

TRANSLATOR = small_translator()
ODD_LINES = ["", "\t", "! ?", "... A. B.", "。。 。", *LINES]
BLANK_OR_TEXT = st.text(max_size=30) | st.sampled_from(ODD_LINES)


@given(st.lists(BLANK_OR_TEXT, max_size=12))
@settings(max_examples=25)
def test_every_line_has_one_line_of_translation(lines: list[str]) -> None:
    options = TranslationOptions(beam=2, max_length_a=0.2, max_length_b=3)
    translations = list(TRANSLATOR.translate_lines(lines, options, window=5))
    assert [translation.source for translation in translations] == lines
    for translation in translations:
        assert "\n" not in translation.text
        assert "\r" not in translation.text
        if is_blank(translation.source):
            assert translation.text == ""


BATCHES = [(2, 1), (64, 3), (3, 100)]


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize(("batch_size", "window"), BATCHES)
def test_batch_size_and_window_do_not_change_translations(sample: bool, batch_size: int, window: int) -> None:
    lines = [*LINES, "", "dog", "a dog runs. A cat sleeps!"]
    options = TRANSLATOR.with_options(beam=3, n_best=2, sample=sample)
    # Hypotheses as if each line had been translated alone.
    expected = TRANSLATOR.translate_lines(lines, options, batch_size=1)
    translations = TRANSLATOR.translate_lines(lines, options, batch_size=batch_size, window=window)
    for translation, alone in zip(translations, expected, strict=True):
        for hypothesis, same in zip(translation.hypotheses, alone.hypotheses, strict=True):
            assert hypothesis.text == same.text
            assert hypothesis.score == pytest.approx(same.score)


def test_the_order_of_lines_does_not_change_translations() -> None:
    backwards = TRANSLATOR.translate(LINES[::-1])
    assert backwards[::-1] == TRANSLATOR.translate(LINES)


def test_random_draws_depend_on_the_line_number() -> None:
    options = TRANSLATOR.with_options(sample=True, beam=1, seed=3)
    lines = [LINES[0]] * 6
    translations = TRANSLATOR.translate_lines(lines, options)
    first, second, *others = [translation.text for translation in translations]
    rest = TRANSLATOR.translate_lines(lines[2:], options, first=3)
    assert [translation.text for translation in rest] == others
    assert others[:2] != [first, second]


def test_prefix_begins_only_the_first_segment_of_a_line() -> None:
    lines = ["dog", "dogs play. " * 8]
    short, long = TRANSLATOR.translate_lines(lines, prefix="the cat")
    assert short.text.startswith("the cat")
    assert long.text.startswith("the cat")
    assert long.text.count("the cat") < 8


# --- glossaries -------------------------------------------------------------------------------------------

TERMS = {"dog": "purple tea"}


def test_translations_contain_the_terms_of_a_glossary() -> None:
    one, ten = TRANSLATOR.translate(["the dog", "a dog? no dog. " * 5], glossary=TERMS, beam=2)
    assert one.count("purple tea") == 1
    assert ten.count("purple tea") == 10


def test_a_term_that_the_model_cannot_write_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    (cat,) = TRANSLATOR.translate(["the cat"], glossary={"cat": "x" * 2000})
    assert cat == TRANSLATOR.translate(["the cat"])[0]
    assert f"line 1: the model cannot write the term '{'x' * 99}'" in caplog.messages


def test_samples_have_no_terms() -> None:
    with pytest.raises(ConfigError, match="a glossary needs beam search"):
        TRANSLATOR.translate(["dog"], glossary=TERMS, sample=True)


@pytest.mark.parametrize(("sample", "n_terms"), [(False, 1), (True, 0)])  # a sample may lack terms
def test_a_model_that_was_trained_with_terms_reads_them(
    sample: bool, n_terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = small_translator(glossary=True, max_length=40)
    start = mock.Mock(wraps=translator.engine.start)
    monkeypatch.setattr(translator.engine, "start", start)
    options = translator.with_options(glossary={"dog": "dog"}, sample=sample, beam=1)
    (translation,) = translator.translate_lines(["the dog."], options)
    (request,) = start.call_args.args[0]
    assert translation.source == "the dog."
    assert translator.tokenizers.source.decode(request.tokens) == "the dog⟦=⟧ dog⟦/⟧."
    assert request.constraint.terms.total() == n_terms


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, b"", 3])
def test_text_that_is_not_a_string_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match=f"text 2 is {wrong!r}, not a string"):
        TRANSLATOR.translate(["a", wrong])


def test_unknown_precision_or_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown precision 'fp16'"):
        load(tmp_path, precision="fp16")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown engine 'foo'"):
        load(tmp_path, engine="foo")  # type: ignore[arg-type]


def test_model_whose_output_is_nan_is_refused() -> None:
    broken = small_translator()
    weight = model_of(broken).projection.weight
    torch.nn.init.constant_(weight, float("nan"))
    with pytest.raises(ModelError, match="not a number"):
        broken.translate(LINES)


# --- windows ----------------------------------------------------------------------------------------------


def test_a_line_keeps_its_number() -> None:
    units = [Unit(7, "a"), Unit(9, "c")]
    result = read_window(iter(units), 1, 1000)
    assert result == units


def test_pause_ends_a_window_and_is_not_a_line() -> None:
    stream: Iterator[str | Pause] = iter([Pause(), "a", "b", Pause(), "c"])
    assert read_window(stream, 4, 1000) == []
    result = read_window(stream, 4, 1000)
    assert result == [Unit(4, "a"), Unit(5, "b")]
    result = read_window(stream, 6, 1000)
    assert result == [Unit(6, "c")]
    assert read_window(stream, 7, 1000) is None


EVENTS = [
    (2, ["start a", "start c", "finish a", "finish c"]),
    (1, ["start a", "finish a", "start b", "finish b", "start c", "finish c"]),
]


@pytest.mark.parametrize(("window", "events"), EVENTS)
def test_in_the_background_a_window_is_finished_after_the_next_was_started(window: int, events: list[str]) -> None:
    """But line by line, each is finished at once."""
    translator = small_translator()
    translator.engine.in_background = True
    happened: list[str] = []

    class Running:
        def __init__(self, units: list[Unit], *_: object) -> None:
            self.units = units
            happened.append(f"start {units[0].text}")

        def result(self) -> list[Translation]:
            happened.append(f"finish {self.units[0].text}")
            return [Translation(unit.text, [TextHypothesis([], [], 0.0, [], "")]) for unit in self.units]

    translator.start = Running  # type: ignore[method-assign, assignment]
    list(translator.translate_lines("abc", window=window))
    assert happened == events


# --- what a search has so far -----------------------------------------------------------------------------


def watched(units: list[Unit], **options: Any) -> tuple[list[list[str]], list[str]]:
    """The texts of the units after each step of a greedy search, and their translations."""
    shown: list[list[str]] = []

    def watch(texts_so_far: Callable[[], list[str]]) -> None:
        shown.append(texts_so_far())

    changed = TRANSLATOR.with_options(beam=1, **options)
    translations = TRANSLATOR.start(units, changed, 8, watch).result()
    return shown, [translation.text for translation in translations]


def test_a_greedy_search_ends_with_what_it_has_shown() -> None:
    lines = ["the dog", "", "a cat sleeps here. " * 4, "THE RED DOG"]
    shown, texts = watched([Unit(i, line) for i, line in enumerate(lines)])
    assert shown[-1] == texts


def test_a_search_with_a_prefix_begins_with_it() -> None:
    prefix = TRANSLATOR.encode_prefix("dog")
    shown, _ = watched([Unit(1, "the dog", prefix)])
    assert ["dog"] in shown


def test_a_watched_search_finds_the_same() -> None:
    _, texts = watched([Unit(i, line) for i, line in enumerate(LINES)])
    assert texts == TRANSLATOR.translate(LINES, beam=1)


# --- lines that are cut off -------------------------------------------------------------------------------

CUT = "translation cut off at the length limit, before its end: {}; nmt translate --max-length raises it"


@pytest.fixture
def every_third_is_cut() -> Translator:
    """A translator that cuts off every third line."""
    translator = small_translator()

    def start(requests: Sequence[SearchRequest], *_: object, **__: object) -> object:
        n_bests = []
        for request in requests:
            line = request.place[0]
            is_cut = line % 3 == 0
            hypothesis = Hypothesis([EOS], [], 0.0, is_cut=is_cut)
            n_bests.append([hypothesis])
        return lambda: n_bests

    translator.engine.start = start  # type: ignore[method-assign, assignment]
    return translator


NAMED = [
    (5, "line 3"),
    (20, "6 lines (3, 6, 9, 12, 15, 18)"),
    (999, "333 lines (3, 6, 9, 12, 15, 18, 21, 24, 27, 30 and 323 more)"),
]


@pytest.mark.parametrize(("n_lines", "named"), NAMED)
def test_one_warning_names_the_lines_that_were_cut_off(
    every_third_is_cut: Translator, caplog: pytest.LogCaptureFixture, n_lines: int, named: str
) -> None:
    list(every_third_is_cut.translate_lines(["dog"] * n_lines))
    assert caplog.messages == [CUT.format(named)]


def test_without_cut_lines_there_is_no_warning(
    every_third_is_cut: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    list(every_third_is_cut.translate_lines(["dog", "dog"]))
    assert caplog.messages == []


def test_line_by_line_each_cut_line_is_told_at_once(
    every_third_is_cut: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    list(every_third_is_cut.translate_lines(["dog"] * 6, window=1))
    assert caplog.messages == [CUT.format("line 3"), CUT.format("line 6")]


def test_a_caller_that_takes_no_more_than_it_gave_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    options = TranslationOptions(beam=1, max_length_a=0, max_length_b=1)
    translations = TRANSLATOR.translate_lines(["dog"], options)
    assert next(translations).is_cut
    del translations
    assert caplog.messages == [CUT.format("line 1")]


@pytest.mark.parametrize("cut", [(False, False), (True, False), (False, True)])
def test_a_line_of_several_parts_is_cut_if_one_of_them_is(cut: tuple[bool, bool]) -> None:
    n_bests = [[TextHypothesis([EOS], [], 0.0, [], "a", is_cut=is_cut)] for is_cut in cut]
    (hypothesis,) = joined(n_bests, TranslationOptions())
    assert hypothesis.is_cut is any(cut)


# --- what documents keep ----------------------------------------------------------------------------------


def translated_html(line: str) -> str:
    (translation,) = MarkupTranslator(TRANSLATOR, HTML).translate_lines([line])
    return translation.text


@pytest.mark.parametrize("kept", ["https://a.de/b?c=d", "a.b@c.de", "{{ a | b }}"])
def test_lines_with_markup_keep_addresses_and_templates(kept: str) -> None:
    result = translated_html(f"Der <b>rote</b> Hund {kept} bellt.").count(kept)
    assert result == 1
    assert translated_html("Der Hund {a} bellt.").count("{a}") == 0


def test_an_address_in_markup_keeps_its_entities() -> None:
    assert translated_html("Der Hund https://a.de/?b&amp;c bellt.").count("https://a.de/?b&amp;c") == 1


def test_lines_without_markup_keep_addresses_by_an_option_only() -> None:
    lines = ["Der Hund https://a.de/b bellt."]
    assert "https://a.de/b" not in TRANSLATOR.translate(lines)[0]
    assert "https://a.de/b" in TRANSLATOR.translate(lines, protect_placeholders=True)[0]
