"""The translator: as many lines out as in, long lines in parts, and scores that agree by two routes."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import model_of
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import Config
from nmt.decode import translator as module
from nmt.decode.options import SearchOptions
from nmt.decode.torch_engine import TorchEngine
from nmt.decode.translator import Translator, load
from nmt.errors import ConfigError, InputError, ModelError
from nmt.run.checkpoint import Checkpoint, new_model, save_checkpoint, weights_of
from nmt.run.directory import RunDirectory
from nmt.text.lines import Pause, is_blank
from nmt.text.tokenizer import Tokenizers, train_tokenizer

LINES = ["the red dog runs.", "a cat sleeps here!", "where is the small house?", "dogs and cats play, or sleep."]


def make(**data: object) -> Translator:
    """A translator with random weights, far from uniform, in float64."""
    config = Config.model_validate(
        {
            "run": "runs/x",
            "data": {"train": {"source": "a.de", "target": "a.en"}, "max_length": 12, **data},
            "tokenizer": {"vocab_size": 300},
            "model": {"d_model": 16, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.0},
            "decode": {"max_length_a": 0.5, "max_length_b": 4, "batch_size": 3},
        }
    )
    model_bytes = train_tokenizer(LINES, config.tokenizer).model
    tokenizers = Tokenizers.from_models(model_bytes, model_bytes, nfkc_source=False)
    torch.manual_seed(1)
    model = new_model(config, tokenizers)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return Translator(TorchEngine(model.double().eval()), tokenizers, config)


TRANSLATOR = make()


@given(st.lists(st.one_of(st.text(max_size=30), st.sampled_from(["", "  ", "\t", *LINES])), max_size=12))
@settings(max_examples=25, deadline=None)
def test_as_many_lines_come_out_as_go_in_and_each_is_one_line(lines: list[str]) -> None:
    out = list(TRANSLATOR.translate_lines(lines, SearchOptions(beam=2, max_length_a=0.2, max_length_b=3), window=5))
    assert [found.source for found in out] == lines
    for line, found in zip(lines, out, strict=True):
        assert "\n" not in found.text
        assert "\r" not in found.text
        if is_blank(line):
            assert found.text == ""


@pytest.mark.parametrize("sample", [False, True])
def test_batch_size_order_and_window_change_nothing(sample: bool) -> None:
    lines = [*LINES, "", "dog", LINES[0] + " " + LINES[2]]
    options = TRANSLATOR.with_options(beam=3, n_best=2, sample=sample)
    expected = list(TRANSLATOR.translate_lines(lines, options, batch_size=1))
    for batch_size, window in ((2, 1), (64, 3), (3, 100)):
        found = list(TRANSLATOR.translate_lines(lines, options, batch_size=batch_size, window=window))
        for one, other in zip(found, expected, strict=True):
            assert [h.text for h in one.hypotheses] == [h.text for h in other.hypotheses]
            assert [h.score for h in one.hypotheses] == pytest.approx([h.score for h in other.hypotheses])
    if not sample:  # what is drawn for a line depends on where it stands, so that equal lines may differ
        turned = list(TRANSLATOR.translate_lines(lines[::-1], options))
        assert [found.text for found in turned[::-1]] == [found.text for found in expected]


def test_what_is_drawn_for_a_line_goes_by_its_number() -> None:
    options = TRANSLATOR.with_options(sample=True, beam=1, seed=3)
    lines = [LINES[0]] * 6
    whole = [found.text for found in TRANSLATOR.translate_lines(lines, options)]
    rest = [found.text for found in TRANSLATOR.translate_lines(lines[2:], options, first=3)]
    assert rest == whole[2:] != whole[:4]


def test_own_output_scored_again_gives_its_score() -> None:
    """By search and by teacher forcing: where decoding text and encoding it again gives the same pieces."""
    found = list(TRANSLATOR.translate_lines(LINES))
    again = TRANSLATOR.reference_log_probs(LINES, [one.text for one in found])
    n_same = 0
    for one, log_probs in zip(found, again, strict=True):
        best = one.hypotheses[0]
        ids = TRANSLATOR.tokenizers.target.encode(one.text)
        if TRANSLATOR.tokenizers.target.pieces(ids) == best.pieces[:-1]:
            n_same += 1
            assert log_probs == pytest.approx(best.log_probs)
            assert sum(log_probs) == pytest.approx(best.log_prob)
    assert n_same > 0 or all(len(log_probs) > 0 for log_probs in again)


def test_reference_log_probs_do_not_depend_on_neighbours() -> None:
    together = TRANSLATOR.reference_log_probs(LINES, LINES[::-1])
    for line, reference, log_probs in zip(LINES, LINES[::-1], together, strict=True):
        assert TRANSLATOR.reference_log_probs([line], [reference])[0] == pytest.approx(log_probs)
        assert len(log_probs) == len(TRANSLATOR.tokenizers.target.encode(reference)) + 1


def test_a_long_line_is_split_at_sentence_ends_and_joined(caplog: pytest.LogCaptureFixture) -> None:
    translator = make(max_length=20)
    parts = ["dogs play.", "where is it?", "a cat!"]
    assert all(len(translator.tokenizers.source.encode(part)) <= 20 for part in parts)
    with logged(caplog):
        whole = next(translator.translate_lines([" ".join(parts)]))
    assert "line 1 has" in caplog.text
    assert "in 3 parts" in caplog.text
    alone = [found.text for found in translator.translate_lines(parts)]
    assert whole.text == " ".join(alone)
    assert whole.hypotheses[0].pieces.count("</s>") == 3
    assert whole.hypotheses[0].log_prob == pytest.approx(sum(whole.hypotheses[0].log_probs))


def logged(caplog: pytest.LogCaptureFixture):  # type: ignore[no-untyped-def]
    logger = logging.getLogger("nmt")
    logger.propagate = True
    return caplog.at_level(logging.INFO, "nmt")


def test_chinese_sentence_ends_need_no_space_and_a_chinese_target_gets_none() -> None:
    translator = make(max_length=16, target_lang="zh")
    encode = translator.tokenizers.source.encode
    parts = ["狗跑。", "猫！", "“狗？”"]
    ids = encode("".join(parts))
    assert translator._split("".join(parts), ids, 1) == [encode(part) for part in parts]
    found = next(translator.translate_lines(["".join(parts)]))
    assert found.text == "".join(one.text for one in translator.translate_lines(parts))


@given(st.text(alphabet="ab .!\n\t", max_size=200), st.integers(2, 30))
@settings(max_examples=50, deadline=None)
def test_parts_fit_and_no_word_is_lost(line: str, limit: int) -> None:
    shared = make_with_limit(limit)
    ids = shared.tokenizers.source.encode(line)
    parts = shared._split(line, ids, 1)
    assert all(0 < len(part) <= limit for part in parts)
    decoded = " ".join(shared.tokenizers.source.decode(part) for part in parts)
    assert "".join(decoded.split()) == "".join(line.split())


def make_with_limit(limit: int) -> Translator:
    config = TRANSLATOR.config.model_copy(
        update={"data": TRANSLATOR.config.data.model_copy(update={"max_length": limit})}
    )
    return Translator(TRANSLATOR.engine, TRANSLATOR.tokenizers, config)


def test_a_prefix_begins_the_first_part_alone() -> None:
    found = list(TRANSLATOR.translate_lines([LINES[0], "dogs play. " * 8], prefix="the cat"))
    assert all(one.text.startswith("the cat") for one in found)
    assert found[1].text.count("the cat") < 8


def test_options_are_fields_of_search_options() -> None:
    assert TRANSLATOR.translate(LINES[:1], beam=1) == [
        next(TRANSLATOR.translate_lines(LINES[:1], SearchOptions(beam=1, max_length_a=0.5, max_length_b=4))).text
    ]
    with pytest.raises(ConfigError, match="no search option 'bean'"):
        TRANSLATOR.translate(LINES, bean=3)
    with pytest.raises(ConfigError, match="beam: input should be greater than or equal to 1, got 0"):
        TRANSLATOR.translate(LINES, beam=0)


@pytest.mark.parametrize("wrong", [None, b"", 3])
def test_a_text_that_is_not_a_string_is_an_error(wrong: Any) -> None:
    with pytest.raises(InputError, match=f"text 2 is {wrong!r}, not a string"):
        TRANSLATOR.translate(["a", wrong])


@pytest.mark.parametrize("wrong", [{"window": 0}, {"window": 1.5}, {"batch_size": 0}, {"first": 0}])
def test_counts_of_lines_are_checked(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"{name} is {wrong[name]}, not an integer of 1 or more"):
        list(TRANSLATOR.translate_lines(LINES, **wrong))


def test_an_unknown_precision_or_engine_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no precision 'fp16'"):
        load(tmp_path, precision="fp16")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no engine 'foo'"):
        load(tmp_path, engine="foo")  # type: ignore[arg-type]


def test_a_pause_ends_a_window_and_is_no_line() -> None:
    lines: list[str | Pause] = [Pause(), "a", "b", Pause(), Pause(), "c"]
    stream = iter(lines)
    assert [module._take(stream, 1000) for _ in range(3)] == [["a", "b"], ["c"], []]
    assert [found.source for found in TRANSLATOR.translate_lines(lines)] == ["a", "b", "c"]


def test_windows_shrink_where_the_machine_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that advances one second for each line translated."""
    translator, now, sizes = make(), [0.0], []
    translate = translator._translate_window

    def slow(lines: list[str], *args: Any) -> Any:
        now[0] += len(lines)
        sizes.append(len(lines))
        return translate(lines, *args)

    monkeypatch.setattr(translator, "_translate_window", slow)
    monkeypatch.setattr(module, "FIRST_WINDOW_LINES", 30)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    texts = [found.source for found in translator.translate_lines([str(n) for n in range(45)], batch_size=2)]
    assert texts == [str(n) for n in range(45)]
    assert sizes == [30, module.WINDOW_S, module.WINDOW_S, module.WINDOW_S]


def test_a_window_ends_early_where_lines_are_long() -> None:
    stream = iter(["x" * 700_000] * 5)
    assert len(module._take(stream, 1000)) == 2
    assert len(module._take(stream, 1)) == 1
    assert len(module._take(iter([]), 3)) == 0


def test_a_model_that_gives_no_numbers_is_an_error() -> None:
    broken = make()
    with torch.no_grad():
        model_of(broken).projection.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="not a number"):
        broken.translate(LINES)


def write_run(path: Path) -> RunDirectory:
    run = RunDirectory(path)
    run.create()
    tensors = {f"model.{name}": x.float() for name, x in weights_of(model_of(TRANSLATOR)).items()}
    save_checkpoint(run.model_file, Checkpoint(TRANSLATOR.config, tensors, TRANSLATOR.tokenizers))
    run.write_tokenizers(TRANSLATOR.tokenizers, joint=True)
    return run


def test_a_run_and_its_model_file_load_alike(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    expected = TRANSLATOR.translate(LINES)
    assert load(run.path).translate(LINES) == expected
    assert load(run.model_file, device="cpu").translate(LINES) == expected


def test_an_exchanged_tokenizer_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    other = train_tokenizer(LINES[:2], TRANSLATOR.config.tokenizer).model
    run.tokenizer_files(joint=True)[0].write_bytes(other)
    with pytest.raises(ModelError, match=r"tokenizer\.model is not the tokenizer that the model was trained with"):
        load(run.path)


def test_no_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model at .*model\.safetensors"):
        load(tmp_path)
    with pytest.raises(ModelError, match=r"no model at .*nothing"):
        load(tmp_path / "nothing")
