"""The CTranslate2 engine: the same translations and scores as the torch engine, without torch."""

import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, err_lines, model_of, one_clear_error, out_lines, run_nmt

from nmt import sandbox
from nmt.decode.engines import ctranslate2_engine as module
from nmt.decode.engines.ctranslate2_engine import CTranslate2Engine
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.distributed import LAUNCH_VARIABLES
from nmt.errors import ConfigError, InputError, ModelError, NmtError
from nmt.files import cache_directory, locked
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.run.checkpoint import read_checkpoint, save_checkpoint
from nmt.run.directory import RunDirectory
from nmt.text import BOS, EOS, UNK
from nmt.translate.loading import load, needs_torch
from nmt.translate.translator import Translator
from nmt.translate.units import Unit

pytest.importorskip("ctranslate2")

# Nats per piece. Label smoothing gives PAD, UNK and BOS some probability; the export bans them before the softmax.
TOLERANCE = 5e-3


@pytest.fixture(scope="module")
def exported(five_run: FiveRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "five"
    to_ctranslate2(load(five_run.run, engine="torch"), path)
    return path


@pytest.fixture(scope="module")
def engine(exported: Path) -> Translator:
    return load(exported)


@pytest.mark.parametrize(("max_length", "min_length"), [(1, 0), (1, 25), (2, 3), (4, 3)])
def test_length_limits_equal_torchs(five_run: FiveRun, engine: Translator, max_length: int, min_length: int) -> None:
    """The maximum overrides the minimum."""
    lengths, limits = [], {"max_length_a": 0.0, "max_length_b": max_length, "min_length": min_length}
    for translator in (load(five_run.run, engine="torch"), engine):
        options = translator.with_options(**limits, beam=2, n_best=2)
        found = list(translator.translate_lines([SOURCE[0], "书"], options))
        assert all(hypothesis.pieces[-1] == "</s>" for one in found for hypothesis in one.hypotheses)
        lengths.append([len(one.hypotheses[0].pieces) for one in found])
    assert lengths[0] == lengths[1]
    assert max(lengths[0]) <= max_length
    if max_length == 1:
        assert [(h.text, h.pieces) for h in found[0].hypotheses] == [("", ["</s>"])]


def test_attention_is_that_of_the_last_layer(five_run: FiveRun, engine: Translator) -> None:
    reference = load(five_run.run, "cpu", engine="torch")
    src, tgt = reference.encode_pairs([*SOURCE, ""], [*TARGET, "a"])
    everything = reference.engine.attention(src, tgt)
    for source, target, weights, mean in zip(src, tgt, engine.engine.attention(src, tgt), everything, strict=True):
        ids = torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]])
        cross = model_of(reference).attention(*ids).cross[:, 0, :, :-1, :-1]  # (L, H, T, S)
        np.testing.assert_allclose(weights, cross[-1].mean(0), atol=1e-5)
        np.testing.assert_allclose(mean, cross.mean((0, 1)), atol=1e-5)


def test_unsupported_options_are_refused_by_name(exported: Path, engine: Translator) -> None:
    with pytest.raises(ConfigError, match="sampling"):
        engine.translate(SOURCE, sample=True)
    with pytest.raises(ModelError, match="is a CTranslate2 export"):
        load(exported, engine="torch")
    with pytest.raises(ModelError, match="cannot load"):
        load(exported, device="nosuch")
    with pytest.raises(ConfigError, match="CTranslate2 has no weights to export"):
        to_ctranslate2(engine, exported.with_name("again"))


@pytest.mark.parametrize("name", ["torch", "ctranslate2", "export"])
def test_engines_keep_lines_prefixes_n_best_scores_and_segments(five_run: FiveRun, exported: Path, name: Any) -> None:
    engine = load(exported) if name == "export" else load(five_run.run, engine=name)
    lines = ["", SOURCE[0], "  ", SOURCE[1], "书 " * 300]
    found = list(engine.translate_lines(lines, engine.with_options(beam=3, n_best=2)))
    assert [one.source for one in found] == lines
    assert [one.text for one in found[:4]] == ["", TARGET[0], "", TARGET[1]]
    for one in found:
        scores = [h.score for h in one.hypotheses]
        assert scores == sorted(scores, reverse=True)
        for h in one.hypotheses:
            assert len(h.pieces) == len(h.log_probs) == len(h.tokens)
            if h.tokens:
                assert h.score == pytest.approx(h.log_prob / len(h.tokens))
    best = found[1].hypotheses[0]
    (forced_log_probs,) = engine.reference_log_probs(lines[1:2], [best.text])
    assert best.log_probs == pytest.approx(forced_log_probs, abs=TOLERANCE)
    assert found[4].hypotheses[0].pieces.count("</s>") == 2, "the long line has two segments"
    (forced,) = engine.translate_lines([SOURCE[0]], prefix="She")
    assert forced.text.startswith("She")
    (plain,) = engine.translate_lines([SOURCE[0]], engine.with_options(scores=False))
    assert plain.text == TARGET[0]


def test_the_engine_is_chosen_by_model_device_and_precision(five_run: FiveRun) -> None:
    config = RunDirectory(five_run.run).read_config()

    def reason(*, device: str = "cpu", precision: Any = None, engine: Any = "auto", **model: Any) -> str:
        changed = config.model_copy(update={"model": config.model.model_copy(update=model)})
        return needs_torch([changed], device, precision, engine)

    assert reason() == reason(precision="fp32") == reason(precision="int8") == reason(engine="ctranslate2") == ""
    assert reason(positions="rotary") == reason(positions="none") == ""
    assert reason(engine="torch") == "chosen"
    assert reason(precision="bf16") == "precision bf16"
    assert reason(device="cuda:1") == "device cuda:1"
    assert reason(architecture="rnn") == "model.architecture=rnn"
    assert reason(padding_mask=False) == "model.padding_mask=false"
    assert reason(attention_window=8) == "model.attention_window=8"
    assert needs_torch([config, config]) == "several models"
    with pytest.raises(ConfigError, match="CTranslate2 cannot translate: device cuda"):
        load(five_run.run, device="cuda", engine="ctranslate2")


def test_what_ctranslate2_lacks_is_done_by_torch_with_the_same_model(five_run: FiveRun) -> None:
    auto, torch_only = load(five_run.run), load(five_run.run, engine="torch")
    assert isinstance(auto.engine, CTranslate2Engine)
    assert auto.engine.load_torch
    assert not auto.engine.load_torch.cache_info().currsize, "loaded when it is needed"  # type: ignore[attr-defined]
    options = {"sample": True, "beam": 2, "seed": 3}
    assert auto.translate(SOURCE, **options) == torch_only.translate(SOURCE, **options)
    assert auto.engine.torch_engine("a test") is auto.engine.torch_engine("a test")
    shown: list[str] = []
    lines = [Unit(1, SOURCE[0])]
    (found,) = auto.start(lines, auto.options, 8, lambda texts_so_far: shown.extend(texts_so_far())).result()
    assert shown[-1] == found.text == TARGET[0]
    assert auto.engine.score([[9]], [[8, UNK]]) == torch_only.engine.score([[9]], [[8, UNK]])
    scores, expected = (one.reference_log_probs(SOURCE, TARGET)[0] for one in (auto, torch_only))
    assert scores == pytest.approx(expected, abs=0.01)


@pytest.fixture
def conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Counts the conversions of models during a test, which begins with an empty cache."""
    counted = mock.Mock(wraps=module.convert)
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "auto")  # invalid values are ignored
    monkeypatch.setattr(module, "convert", counted)
    return counted


def test_conversion_is_kept_until_the_model_changes_and_has_no_rank_of_its_parent(
    five_run: FiveRun, tmp_path: Path, conversions: mock.Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in zip(LAUNCH_VARIABLES, ("1", "2", "1", "29500", "127.0.0.1"), strict=True):
        monkeypatch.setenv(name, value)
    run = tmp_path / "run"
    shutil.copytree(five_run.run, run)
    for _ in range(2):
        assert load(run, engine="ctranslate2").translate(SOURCE) == TARGET
    assert load(run / "model.safetensors", engine="ctranslate2").translate(SOURCE) == TARGET
    assert conversions.call_count == 1
    checkpoint = read_checkpoint(run / "model.safetensors")
    name = next(name for name in checkpoint.tensors if "feed_forward" in name)
    checkpoint.tensors[name][:] = 0
    save_checkpoint(run / "model.safetensors", checkpoint)
    changed = load(run, engine="ctranslate2")
    assert conversions.call_count == 2
    expected = load(run, engine="torch").translate(SOURCE, beam=1)
    assert changed.translate(SOURCE, beam=1) == expected


def test_a_damaged_conversion_is_judged_and_replaced_under_its_lock(
    five_run: FiveRun, tmp_path: Path, conversions: mock.Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("NMT_CACHE")
        load(five_run.run, engine="ctranslate2")
        shutil.copytree(cache_directory(), tmp_path / "cache")
    conversions.reset_mock()
    file = RunDirectory(five_run.run).model_file
    entry, _ = module.converted(file, "fp32")
    assert not conversions.called, "the cache of the other tests has it"
    (entry / "model.bin").write_bytes(b"damaged")

    def is_known(library: str, content: bytes) -> bool:
        with pytest.raises(InputError, match="is in use"), locked(entry.with_suffix(".lock")):
            pass
        return known(library, content)

    known = sandbox.is_known
    monkeypatch.setattr(module, "is_known", is_known)
    assert module.converted(file, "fp32")[0] == entry
    conversions.assert_called_once()
    assert load(entry).translate(SOURCE) == TARGET


def test_torch_does_not_stand_in_with_another_model_than_was_loaded(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    translator = load(run)
    with (run / "model.safetensors").open("ab") as file:  # as a training replaces it
        file.write(b" ")
    assert translator.translate(SOURCE) == TARGET
    with pytest.raises(ModelError, match="has been replaced since it was loaded"):
        translator.translate(SOURCE, sample=True)


def test_without_a_cache_or_a_conversion_torch_translates_with_one_warning(
    five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()

    broken = mock.Mock(side_effect=ModelError("the disk is full"))
    for cache, words in (("file/cache", "cannot write to NMT_CACHE"), ("cache", "the disk is full")):
        monkeypatch.setenv("NMT_CACHE", str(tmp_path / cache))
        with monkeypatch.context() as patch:
            patch.setattr(module, "convert", broken)
            caplog.clear()
            translator = load(five_run.run)
            assert isinstance(translator.engine, TorchEngine)
            assert translator.translate(SOURCE) == TARGET
            messages = [message for message in caplog.messages if "CTranslate2" in message]
            assert len(messages) == 1
            assert words in messages[0]
            for asked in ({"engine": "ctranslate2"}, {"precision": "int8"}):
                with pytest.raises(NmtError, match=words):
                    load(five_run.run, **asked)  # type: ignore[arg-type]


def test_damaged_export_is_one_clear_error(exported: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "config.json", "shared_vocabulary.json"):
        (tmp_path / name).write_bytes((exported / name).read_bytes())
    (tmp_path / "model.bin").write_bytes((exported / "model.bin").read_bytes()[:1000])
    one_clear_error(run_nmt("translate", "-m", tmp_path, "x"), 2, "has no tokenizer")
    (tmp_path / "tokenizer.model").write_bytes((exported / "tokenizer.model").read_bytes())
    one_clear_error(run_nmt("translate", "-m", tmp_path, "x"), 2, f"the export {tmp_path} is damaged")


def test_command_translates_without_importing_torch(exported: Path) -> None:
    done = run_nmt("translate", "-m", exported, SOURCE[0], env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert out_lines(done) == [TARGET[0]]
    assert not any(line.split("|")[-1].strip() == "torch" for line in err_lines(done))


def test_both_engines_cut_the_same_lines(five_run: FiveRun, engine: Translator) -> None:
    """At every limit from too short to long enough. A line that the model ends at the limit is not cut."""
    reference = load(five_run.run, engine="torch")
    n_tokens = [len(found.hypotheses[0].tokens) for found in reference.translate_lines(SOURCE)]
    for limit in range(1, max(n_tokens) + 2):
        cut = []
        for translator in (reference, engine):
            options = translator.with_options(beam=1, max_length_a=0.0, max_length_b=limit)
            cut.append([found.is_cut for found in translator.translate_lines(SOURCE, options)])
        assert cut[1] == cut[0] == [n > limit for n in n_tokens]


def test_a_line_is_not_cut_by_the_limit_of_another_in_its_batch(five_run: FiveRun, engine: Translator) -> None:
    """Each is searched for with its own limit."""
    options = engine.with_options(beam=1, max_length_a=1.0, max_length_b=1)
    lines = [SOURCE[0], "。"]  # the limits are over 9 tokens and 3 tokens
    assert [found.is_cut for found in engine.translate_lines(lines, options)] == [False, True]
