"""The CTranslate2 engine: the same translations and scores as the torch engine, without torch."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, imported_modules, model_of, one_clear_error, out_lines, run_nmt

from nmt import sandbox
from nmt.decode.engines import ctranslate2_engine as module
from nmt.decode.engines.ctranslate2_engine import CTranslate2Engine, load_export
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
from nmt.translate.units import TextHypothesis, Translation, Unit

pytest.importorskip("ctranslate2")

# Nats per piece. Label smoothing gives PAD, UNK and BOS some probability; the export bans them before the softmax.
TOLERANCE = 5e-3


@pytest.fixture(scope="module")
def reference(five_run: FiveRun) -> Translator:
    """The model by the torch engine."""
    return load(five_run.run, "cpu", engine="torch")


@pytest.fixture(scope="module")
def exported(reference: Translator, folder: Path) -> Path:
    to_ctranslate2(reference, folder / "five")
    return folder / "five"


@pytest.fixture(scope="module")
def export(exported: Path) -> Translator:
    return load(exported)


@pytest.fixture(scope="module")
def converted(five_run: FiveRun) -> Translator:
    """The model by the engine that is chosen on a CPU."""
    return load(five_run.run)


def best(translator: Translator, lines: Sequence[str], **options: Any) -> list[TextHypothesis]:
    """The best hypothesis of each line."""
    return [translation.hypotheses[0] for translation in translations(translator, lines, **options)]


def translations(translator: Translator, lines: Sequence[str], **options: Any) -> list[Translation]:
    return list(translator.translate_lines(lines, translator.with_options(**options)))


# --- the same as torch ------------------------------------------------------------------------------------


@pytest.fixture(params=["reference", "converted", "export"])
def each(request: pytest.FixtureRequest) -> Any:
    """The translators of all engines, one after the other."""
    return request.getfixturevalue(request.param)


def test_every_engine_keeps_lines(each: Translator) -> None:
    lines = ["", SOURCE[0], "  ", SOURCE[1]]
    found = translations(each, lines)
    assert [translation.source for translation in found] == lines
    texts = [translation.text for translation in found]
    assert texts == ["", TARGET[0], "", TARGET[1]]


def test_every_engine_scores_hypotheses_best_first(each: Translator) -> None:
    (translation,) = translations(each, [SOURCE[0]], beam=3, n_best=2)
    first, second = translation.hypotheses
    assert first.score >= second.score
    for hypothesis in translation.hypotheses:
        n = len(hypothesis.tokens)
        assert len(hypothesis.pieces) == n
        assert len(hypothesis.log_probs) == n
        assert hypothesis.pieces[-1] == "</s>"
        assert hypothesis.score == pytest.approx(hypothesis.log_prob / n)


def test_every_engine_gives_the_log_probs_of_teacher_forcing(each: Translator) -> None:
    (hypothesis,) = best(each, [SOURCE[0]])
    (forced,) = each.reference_log_probs([SOURCE[0]], [hypothesis.text])
    assert hypothesis.log_probs == pytest.approx(forced, abs=TOLERANCE)


def test_every_engine_translates_long_lines_in_segments(each: Translator) -> None:
    (hypothesis,) = best(each, ["书 " * 300], beam=3)
    assert hypothesis.pieces.count("</s>") == 2


def test_every_engine_begins_with_the_prefix(each: Translator) -> None:
    (translation,) = each.translate_lines([SOURCE[0]], prefix="She")
    assert translation.text.startswith("She")


def test_every_engine_translates_without_scores(each: Translator) -> None:
    (translation,) = translations(each, [SOURCE[0]], scores=False)
    assert translation.text == TARGET[0]


def test_a_limit_of_one_has_no_room_for_a_word(each: Translator) -> None:
    (hypothesis,) = best(each, [SOURCE[0]], max_length_a=0.0, max_length_b=1)
    assert (hypothesis.text, hypothesis.pieces) == ("", ["</s>"])


LIMITS = [(1, 0), (1, 25), (2, 3), (4, 3)]


@pytest.mark.parametrize(("max_length", "min_length"), LIMITS)
def test_length_limits_equal_torchs(
    reference: Translator, export: Translator, max_length: int, min_length: int
) -> None:
    """The maximum overrides the minimum."""
    limits = {"max_length_a": 0.0, "max_length_b": max_length, "min_length": min_length}
    lines = [SOURCE[0], "书"]
    expected = best(reference, lines, beam=2, **limits)
    for hypothesis, same in zip(best(export, lines, beam=2, **limits), expected, strict=True):
        n_pieces = len(hypothesis.pieces)
        assert n_pieces == len(same.pieces)
        assert n_pieces <= max_length
        assert hypothesis.pieces[-1] == "</s>"


def test_both_engines_cut_the_same_lines(reference: Translator, export: Translator) -> None:
    """At every limit from too short to long enough. A line that the model ends at the limit is not cut."""
    n_tokens = [len(hypothesis.tokens) for hypothesis in best(reference, SOURCE)]
    longest = max(n_tokens)
    for limit in range(1, longest + 2):
        is_longer = [n > limit for n in n_tokens]
        for translator in (reference, export):
            hypotheses = best(translator, SOURCE, beam=1, max_length_a=0.0, max_length_b=limit)
            assert [hypothesis.is_cut for hypothesis in hypotheses] == is_longer


def test_a_line_is_not_cut_by_the_limit_of_another_in_its_batch(export: Translator) -> None:
    lines = [SOURCE[0], "。"]  # the limits are over 9 tokens and 3 tokens
    long, short = best(export, lines, beam=1, max_length_a=1.0, max_length_b=1)
    assert not long.is_cut
    assert short.is_cut


def test_attention_is_that_of_the_last_layer(reference: Translator, export: Translator) -> None:
    sources, targets = reference.encode_pairs([*SOURCE, ""], [*TARGET, "a"])
    last_layer = export.engine.attention(sources, targets)
    all_layers = reference.engine.attention(sources, targets)
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        src = torch.tensor([[*source, EOS]])
        tgt_in = torch.tensor([[BOS, *target]])
        attention = model_of(reference).attention(src, tgt_in)
        cross = attention.cross[:, 0, :, :-1, :-1]  # (L, H, T, S), without EOS
        # CTranslate2 has the mean over the heads of the last layer, torch that over all heads.
        of_layers = cross.mean(1)
        np.testing.assert_allclose(last_layer[i], of_layers[-1], atol=1e-5)
        np.testing.assert_allclose(all_layers[i], of_layers.mean(0), atol=1e-5)


def test_a_search_returns_the_attention_of_its_hypotheses(export: Translator) -> None:
    """The first row is that of another line, and replaced."""
    requests = []
    for line in SOURCE:
        (request,) = export.requests_of(line, export.options)
        request.attention = True
        requests.append(request)
    for (hypothesis,) in export.engine.start(requests, export.options, batch_size=8, watch=None)():
        (((source, target), weights),) = hypothesis.attention.items()
        assert target == tuple(hypothesis.tokens[:-1])
        (forced,) = export.engine.attention([list(source)], [list(target)])
        np.testing.assert_allclose(weights[1:], forced[1:], atol=1e-5)
        assert weights[0].tolist() == [1.0] + [0.0] * (len(source) - 1)


# --- what it lacks ----------------------------------------------------------------------------------------


def test_an_export_refuses_what_needs_torch(exported: Path, export: Translator) -> None:
    with pytest.raises(ConfigError, match="sampling"):
        export.translate(SOURCE, sample=True)
    with pytest.raises(ModelError, match="is a CTranslate2 export"):
        load(exported, engine="torch")
    again = exported.with_name("again")
    with pytest.raises(ConfigError, match="CTranslate2 has no weights to export"):
        to_ctranslate2(export, again)


def test_an_unknown_device_is_refused(exported: Path) -> None:
    with pytest.raises(ModelError, match="cannot load"):
        load(exported, device="nosuch")


def test_cuda_is_refused(five_run: FiveRun, exported: Path) -> None:
    with pytest.raises(ConfigError, match="CTranslate2 cannot translate: device cuda"):
        load(five_run.run, device="cuda", engine="ctranslate2")
    with pytest.raises(ModelError, match="invalid literal"):
        load_export(exported, device="cuda:x", precision=None)


# What is chosen or set, and why that needs torch; an empty reason: it does not.
REASONS = [  # arguments, model settings, reason
    ({}, {}, ""),
    ({"precision": "int8"}, {}, ""),
    ({"engine": "ctranslate2"}, {}, ""),
    ({}, {"positions": "none"}, ""),
    ({"engine": "torch"}, {}, "chosen"),
    ({"precision": "bf16"}, {}, "precision bf16"),
    ({"device": "cuda:1"}, {}, "device cuda:1"),
    ({}, {"architecture": "rnn"}, "model.architecture=rnn"),
    ({}, {"padding_mask": False}, "model.padding_mask=false"),
]


@pytest.mark.parametrize(("arguments", "settings", "reason"), REASONS, ids=str)
def test_the_engine_is_chosen_by_model_device_and_precision(
    five_run: FiveRun, arguments: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    config = RunDirectory(five_run.run).read_config()
    model = config.model.model_copy(update=settings)
    changed = config.model_copy(update={"model": model})
    defaults = {"device": "cpu", "precision": None, "engine": "auto"}
    assert needs_torch([changed], **(defaults | arguments)) == reason


def test_an_ensemble_needs_torch(five_run: FiveRun) -> None:
    config = RunDirectory(five_run.run).read_config()
    assert needs_torch([config, config]) == "several models"


def test_torch_is_loaded_when_it_is_needed_and_only_once(five_run: FiveRun) -> None:
    engine = load(five_run.run).engine
    assert isinstance(engine, CTranslate2Engine)
    assert engine.load_torch
    loads = engine.load_torch.cache_info()  # type: ignore[attr-defined]
    assert loads.currsize == 0
    torch_engine = engine.torch_engine("a test")
    assert engine.torch_engine("a test") is torch_engine


def test_torch_stands_in_with_the_same_model(reference: Translator, converted: Translator) -> None:
    samples = converted.translate(SOURCE, sample=True, beam=2, seed=3)
    assert samples == reference.translate(SOURCE, sample=True, beam=2, seed=3)


def test_torch_shows_the_steps_of_a_search(converted: Translator) -> None:
    shown: list[str] = []

    def show(texts_so_far: Callable[[], list[str]]) -> None:
        shown.extend(texts_so_far())

    unit = Unit(1, SOURCE[0])
    running = converted.start([unit], converted.options, 8, show)
    (translation,) = running.result()
    assert shown[-1] == translation.text == TARGET[0]


def test_scores_are_close_to_torchs(reference: Translator, converted: Translator) -> None:
    (log_probs,) = converted.reference_log_probs(SOURCE[:1], TARGET[:1])
    (expected,) = reference.reference_log_probs(SOURCE[:1], TARGET[:1])
    assert log_probs == pytest.approx(expected, abs=0.01)


def test_pairs_with_unknown_pieces_are_scored_by_torch(reference: Translator, converted: Translator) -> None:
    pair = ([[9]], [[8, UNK]])
    log_probs = converted.engine.score(*pair)
    assert log_probs == reference.engine.score(*pair)


def test_torch_does_not_stand_in_with_another_model_than_was_loaded(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    translator = load(run)
    # As a training replaces it.
    model = run / "model.safetensors"
    model.write_bytes(model.read_bytes() + b" ")
    assert translator.translate(SOURCE) == TARGET
    with pytest.raises(ModelError, match="has been replaced since it was loaded"):
        translator.translate(SOURCE, sample=True)


# --- conversions ------------------------------------------------------------------------------------------


@pytest.fixture
def conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Counts the conversions of models during a test, which begins with an empty cache.

    The test runs as a rank of a training, which the child that converts must not take for its own.
    """
    launch = zip(LAUNCH_VARIABLES, ["1", "2", "1", "29500", "127.0.0.1"], strict=True)
    for name, value in launch:
        monkeypatch.setenv(name, value)
    counted = mock.Mock(wraps=module.convert)
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "auto")  # invalid values are ignored
    monkeypatch.setattr(module, "convert", counted)
    return counted


def test_a_conversion_is_kept_until_the_model_changes(
    five_run: FiveRun, tmp_path: Path, conversions: mock.Mock
) -> None:
    run = five_run.copy_run(tmp_path / "run")
    file = run / "model.safetensors"
    for path in (run, run, file):
        assert load(path, engine="ctranslate2").translate(SOURCE) == TARGET
    assert conversions.call_count == 1
    # Other weights.
    checkpoint = read_checkpoint(file)
    name = next(name for name in checkpoint.tensors if "feed_forward" in name)
    checkpoint.tensors[name][:] = 0
    save_checkpoint(file, checkpoint)
    changed = load(run, engine="ctranslate2").translate(SOURCE, beam=1)
    assert conversions.call_count == 2
    assert changed == load(run, engine="torch").translate(SOURCE, beam=1)


def test_a_damaged_conversion_is_judged_and_replaced_under_its_lock(
    five_run: FiveRun, tmp_path: Path, conversions: mock.Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The cache of the other tests has the conversion.
    with monkeypatch.context() as patch:
        patch.delenv("NMT_CACHE")
        load(five_run.run, engine="ctranslate2")
        shutil.copytree(cache_directory(), tmp_path / "cache")
    conversions.reset_mock()
    entry, _ = module.converted(five_run.model_file, "fp32")
    assert not conversions.called
    (entry / "model.bin").write_bytes(b"damaged")

    def is_known(library: str, content: bytes) -> bool:
        with pytest.raises(InputError, match="is in use"), locked(entry.with_suffix(".lock")):
            pass
        return known(library, content)

    known = sandbox.is_known
    monkeypatch.setattr(module, "is_known", is_known)
    result = module.converted(five_run.model_file, "fp32")[0]
    assert result == entry
    conversions.assert_called_once()
    assert load(entry).translate(SOURCE) == TARGET


@pytest.fixture(params=["no cache", "no conversion"])
def trouble(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reason why no model can be converted."""
    if request.param == "no cache":
        (tmp_path / "file").touch()
        monkeypatch.setenv("NMT_CACHE", str(tmp_path / "file" / "cache"))
        return "cannot write to the cache"
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "convert", mock.Mock(side_effect=ModelError("the disk is full")))
    return "the disk is full"


def test_without_a_conversion_torch_translates_with_one_warning(
    five_run: FiveRun, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    translator = load(five_run.run)
    assert isinstance(translator.engine, TorchEngine)
    assert translator.translate(SOURCE) == TARGET
    (message,) = [message for message in caplog.messages if "CTranslate2" in message]
    assert trouble in message


@pytest.mark.parametrize("wanted", [{"engine": "ctranslate2"}, {"precision": "int8"}], ids=str)
def test_without_a_conversion_what_needs_it_fails(five_run: FiveRun, trouble: str, wanted: dict[str, Any]) -> None:
    with pytest.raises(NmtError, match=trouble):
        load(five_run.run, **wanted)


# --- exports ----------------------------------------------------------------------------------------------


def test_a_damaged_export_is_one_clear_error(exported: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "config.json", "shared_vocabulary.json"):
        shutil.copy(exported / name, tmp_path)
    weights = (exported / "model.bin").read_bytes()
    (tmp_path / "model.bin").write_bytes(weights[:1000])
    done = run_nmt("translate", "-m", tmp_path, "x")
    one_clear_error(done, 2, "has no tokenizer")
    shutil.copy(exported / "tokenizer.model", tmp_path)
    done = run_nmt("translate", "-m", tmp_path, "x")
    one_clear_error(done, 2, f"the export {tmp_path} is damaged")


def test_command_translates_without_importing_torch(exported: Path) -> None:
    done = run_nmt("translate", "-m", exported, SOURCE[0], env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert out_lines(done) == [TARGET[0]]
    assert "torch" not in imported_modules(done)
