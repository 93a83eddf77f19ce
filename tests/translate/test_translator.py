"""The translator: one output line per input line, the same translation in any batch, the scores of teacher forcing."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import model_of
from hypothesis import given, settings
from hypothesis import strategies as st
from models import LINES, small_translator

from nmt.decode.options import Hypothesis, SearchRequest
from nmt.errors import ConfigError, InputError, ModelError
from nmt.text import EOS
from nmt.text.lines import Pause, is_blank
from nmt.translate import windows
from nmt.translate.loading import load
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import RunningTranslation
from nmt.translate.units import TextHypothesis, Translation, Unit, joined
from nmt.translate.windows import TARGET_S, read_window

TRANSLATOR = small_translator()


@given(st.lists(st.one_of(st.text(max_size=30), st.sampled_from(["", "  ", "\t", *LINES])), max_size=12))
@settings(max_examples=25)
def test_every_line_has_one_line_of_translation(lines: list[str]) -> None:
    out = list(
        TRANSLATOR.translate_lines(lines, TranslationOptions(beam=2, max_length_a=0.2, max_length_b=3), window=5)
    )
    assert [found.source for found in out] == lines
    for line, found in zip(lines, out, strict=True):
        assert "\n" not in found.text
        assert "\r" not in found.text
        if is_blank(line):
            assert found.text == ""


@pytest.mark.parametrize("sample", [False, True])
def test_batch_size_order_and_window_do_not_change_translations(sample: bool) -> None:
    lines = [*LINES, "", "dog", LINES[0] + " " + LINES[2]]
    options = TRANSLATOR.with_options(beam=3, n_best=2, sample=sample)
    expected = list(TRANSLATOR.translate_lines(lines, options, batch_size=1))
    for batch_size, window in ((2, 1), (64, 3), (3, 100)):
        found = list(TRANSLATOR.translate_lines(lines, options, batch_size=batch_size, window=window))
        for one, other in zip(found, expected, strict=True):
            assert [h.text for h in one.hypotheses] == [h.text for h in other.hypotheses]
            assert [h.score for h in one.hypotheses] == pytest.approx([h.score for h in other.hypotheses])
    if not sample:  # samples depend on the line number
        turned = list(TRANSLATOR.translate_lines(lines[::-1], options))
        assert [found.text for found in turned[::-1]] == [found.text for found in expected]


def test_random_draws_depend_on_the_line_number() -> None:
    options = TRANSLATOR.with_options(sample=True, beam=1, seed=3)
    whole = [found.text for found in TRANSLATOR.translate_lines([LINES[0]] * 6, options)]
    rest = [found.text for found in TRANSLATOR.translate_lines([LINES[0]] * 4, options, first=3)]
    assert rest == whole[2:] != whole[:4]


def test_prefix_begins_only_the_first_segment_of_a_line() -> None:
    found = list(TRANSLATOR.translate_lines([LINES[0], "dogs play. " * 8], prefix="the cat"))
    assert all(one.text.startswith("the cat") for one in found)
    assert found[1].text.count("the cat") < 8


def test_translations_contain_the_terms_of_a_glossary(caplog: pytest.LogCaptureFixture) -> None:
    glossary = {"dog": "purple tea", "cat": "x" * 2000}
    lines = ["the dog", "a dog? no dog. " * 5, "dogs", "the cat"]
    found = TRANSLATOR.translate(lines, glossary=glossary, beam=2)
    assert [text.count("purple tea") for text in found] == [1, 10, 0, 0]
    assert found[2:] == TRANSLATOR.translate(lines[2:], beam=2)
    assert f"line 4: the model cannot write the term '{'x' * 99}'" in caplog.messages
    with pytest.raises(ConfigError, match="a glossary needs beam search"):
        TRANSLATOR.translate(lines, glossary=glossary, sample=True)


def test_a_model_that_was_trained_with_terms_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    translator, start = small_translator(glossary=True, max_length=40), TRANSLATOR.engine.start
    read: list[tuple[str, int]] = []

    def seen(requests: Sequence[SearchRequest], *args: Any, **kwargs: Any) -> Any:
        for request in requests:
            n_terms = len(request.terms.token_ids) if request.terms else 0
            read.append((translator.tokenizers.source.decode(request.tokens), n_terms))
        return start(requests, *args, **kwargs)

    monkeypatch.setattr(translator.engine, "start", seen)
    for sample in (False, True):  # a sample may lack terms
        options = translator.with_options(glossary={"dog": "dog"}, sample=sample, beam=1)
        (found,) = translator.translate_lines(["the dog."], options)
        assert found.source == "the dog."
    assert read == [("the dog⟦=⟧ dog⟦/⟧.", 1), ("the dog⟦=⟧ dog⟦/⟧.", 0)]


@pytest.mark.parametrize("wrong", [None, b"", 3])
def test_text_that_is_not_a_string_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match=f"text 2 is {wrong!r}, not a string"):
        TRANSLATOR.translate(["a", wrong])


def test_unknown_precision_or_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown precision 'fp16'"):
        load(tmp_path, precision="fp16")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown engine 'foo'"):
        load(tmp_path, engine="foo")  # type: ignore[arg-type]


def test_windows_are_shorter_on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances by one second per translated line."""
    translator, now, sizes = small_translator(), [0.0], []
    start = translator.start

    def slow(units: list[Unit], *args: Any) -> RunningTranslation:
        now[0] += len(units)
        sizes.append(len(units))
        return start(units, *args)

    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(translator, "start", slow)
    monkeypatch.setattr(windows, "FIRST_LINES", 30)
    monkeypatch.setattr(windows, "time", clock)
    lines = [str(n) for n in range(45)]
    texts = [found.source for found in translator.translate_lines(lines, batch_size=2)]
    assert texts == lines
    assert sizes == [30, TARGET_S, TARGET_S, TARGET_S]


def test_fixed_windows_have_as_many_lines_however_long_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    translator, sizes = small_translator(), []
    start = translator.start

    def counted(units: list[Unit], *args: Any) -> RunningTranslation:
        sizes.append(len(units))
        return start(units, *args)

    monkeypatch.setattr(translator, "start", counted)
    monkeypatch.setattr(windows, "TARGET_S", 0.0)
    assert len(list(translator.translate_lines(["a"] * 11, window=4, fixed_windows=True))) == 11
    assert sizes == [4, 4, 3]


def test_a_line_keeps_its_number() -> None:
    stream: Iterator[str | Unit] = iter([Unit(7, "a"), Unit(7, "b", index=1), Unit(9, "c")])
    assert [line.number for line in read_window(stream, 1, 1000) or []] == [7, 7, 9]


def test_the_end_of_each_window_is_told_after_its_last_line() -> None:
    order: list[str] = []
    options = TRANSLATOR.with_options(beam=1)
    texts = ["dog", "", "cat"]
    for found in TRANSLATOR.translate_lines(texts, options, window=2, after_window=lambda: order.append("end")):
        order.append(found.source)
    assert order == ["dog", "", "end", "cat", "end"]


def test_pause_ends_a_window_and_is_not_a_line() -> None:
    stream: Iterator[str | Pause] = iter([Pause(), "a", "b", Pause(), Pause(), "c"])
    assert read_window(stream, 4, 1000) == []
    assert read_window(stream, 4, 1000) == [Unit(4, "a"), Unit(5, "b")]
    assert read_window(stream, 6, 1000) == []
    assert read_window(stream, 6, 1000) == [Unit(6, "c")]
    assert read_window(stream, 7, 1000) is None


def test_model_whose_output_is_nan_is_refused() -> None:
    broken = small_translator()
    with torch.no_grad():
        model_of(broken).projection.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="not a number"):
        broken.translate(LINES)


def test_a_search_is_watched_line_by_line() -> None:
    translator = small_translator()
    prefix = translator.encode_prefix("dog")
    lines = [Unit(1, "the dog"), Unit(2, ""), Unit(3, "a cat sleeps here. " * 4), Unit(4, "the dog", prefix)]
    seen: dict[int, list[str]] = {i: [] for i in range(len(lines))}

    def watch(texts_so_far: Callable[[], list[str]]) -> None:
        for i, text in enumerate(texts_so_far()):
            seen[i].append(text)

    options = translator.with_options(beam=1)
    found = translator.start(lines, options, 8, watch).result()
    for i, texts in seen.items():
        assert texts[-1] == found[i].text, "greedy search ends with what it has shown"
    assert "dog" in seen[3]
    assert [found.text for found in translator.start(lines, options, 8).result()] == [t[-1] for t in seen.values()]


def test_a_window_is_finished_after_the_next_was_started() -> None:
    translator, events = small_translator(), list[str]()
    translator.engine.in_background = True

    def start(units: list[Unit], *_: object) -> object:
        def finish() -> list[Translation]:
            events.append(f"finish {units[0].text}")
            return [Translation(unit.text, []) for unit in units]

        events.append(f"start {units[0].text}")
        return SimpleNamespace(result=finish)

    translator.start = start  # type: ignore[method-assign, assignment]
    assert len(list(translator.translate_lines("abc", window=2))) == 3
    assert events == ["start a", "start c", "finish a", "finish c"]
    events.clear()
    assert len(list(translator.translate_lines("ab", window=1))) == 2
    assert events == ["start a", "finish a", "start b", "finish b"]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def cut_lines(caplog: pytest.LogCaptureFixture, is_cut: Callable[[int], bool], n: int, **options: Any) -> list[str]:
    """Translate n lines, of which some are cut off; return the warnings."""
    translator = small_translator()

    def start(requests: Sequence[SearchRequest], *_: object, **__: object) -> object:
        n_bests = [[Hypothesis([EOS], [], 0.0, is_cut=is_cut(request.place[0]))] for request in requests]
        return SimpleNamespace(result=lambda: n_bests)

    translator.engine.start = start  # type: ignore[method-assign, assignment]
    assert len(list(translator.translate_lines(["dog"] * n, **options))) == n
    return warnings_of(caplog)


@pytest.mark.parametrize(
    ("n", "named"),
    [
        (2, []),
        (5, ["line 3"]),
        (20, ["6 lines (3, 6, 9, 12, 15, 18)"]),
        (999, ["333 lines (3, 6, 9, 12, 15, 18, 21, 24, 27, 30 and 323 more)"]),
    ],
)
def test_one_warning_names_the_lines_that_were_cut_off(
    caplog: pytest.LogCaptureFixture, n: int, named: list[str]
) -> None:
    start = "translation cut off at the length limit, before the model ended it: "
    warnings = cut_lines(caplog, lambda number: number % 3 == 0, n)
    assert warnings == [f"{start}{lines}; nmt translate --max-length raises it" for lines in named]


def test_line_by_line_each_cut_line_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    warnings = cut_lines(caplog, lambda number: number > 1, 3, window=1)
    assert ["line 2" in warnings[0], "line 3" in warnings[1], len(warnings)] == [True, True, 2]


def test_a_caller_that_takes_no_more_than_it_gave_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    translations = TRANSLATOR.translate_lines(["dog"], TranslationOptions(beam=1, max_length_a=0, max_length_b=1))
    assert next(translations).is_cut
    del translations
    assert "line 1;" in warnings_of(caplog)[0]


@pytest.mark.parametrize("parts_cut", [(), (0,), (1,), (0, 1)], ids=str)
def test_a_line_of_several_parts_is_cut_if_one_of_them_is(parts_cut: tuple[int, ...]) -> None:
    n_bests = [[TextHypothesis([EOS], [], 0.0, [], "a", is_cut=part in parts_cut)] for part in (0, 1)]
    (hypothesis,) = joined(n_bests, TranslationOptions(), " ")
    assert hypothesis.is_cut is bool(parts_cut)
