"""The torch engine: precisions, cache dtypes, traces and devices."""

from typing import Any, Literal

import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, err_lines, out_lines, run_nmt
from models import FAMILY, batch, fresh, logits_of_steps, make, name

from nmt.decode.engines import torch_engine
from nmt.decode.engines.torch_engine import in_precision, pick_device
from nmt.decode.translator import load
from nmt.distributed import Launch
from nmt.errors import ConfigError
from nmt.model import kernels
from nmt.model.incremental import TransformerDecoder, incremental_decoder


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_bf16_and_int8_translate_as_fp32_with_close_log_probs(
    five_run: FiveRun, precision: Literal["bf16", "int8"]
) -> None:
    translator = load(five_run.run, precision=precision)
    assert translator.translate(SOURCE) == TARGET
    expected = load(five_run.run).reference_log_probs(SOURCE, TARGET)
    for found, wanted in zip(translator.reference_log_probs(SOURCE, TARGET), expected, strict=True):
        assert found == pytest.approx(wanted, abs=0.05)


@torch.no_grad()
def test_bf16_cache_of_a_batch_changes_int8_logits_little() -> None:
    torch.manual_seed(1)
    for choices in ({}, {"positions": "rotary"}, {"attention": "additive"}, {"attention_window": 3}):
        model = in_precision(make(**choices).float(), "int8")
        src, tgt = batch((7, 20), (4, 20), (2, 20))
        found = []
        for cache_dtype in (None, torch.bfloat16):
            decoder = incremental_decoder(model, cache_dtype=cache_dtype)
            state = decoder.start(src)
            logits = []
            for t in range(tgt.size(1)):
                step, state = decoder.step(tgt[:, t : t + 1], state)
                logits.append(step)
            found.append(torch.cat(logits, 1))
        exact, rounded = found
        assert state.self_kv[0].dtype == state.cross_kv[0][0].dtype == torch.bfloat16
        assert 0 < (rounded - exact).std() < 0.08 * exact.std()
        assert decoder.start(src[:1]).cross_kv[0][0].dtype == torch.float32  # one sentence is not memory-bound


@torch.no_grad()
def test_each_cache_dtype_has_its_own_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "CALLS_BEFORE_TRACING", 0)
    model = in_precision(make().float(), "int8")
    several, tgt = batch((16, 3), (16, 3))
    padded, _ = batch((9, 3), (16, 3))
    found: list[list[torch.Tensor]] = []
    for trace in (False, True):
        decoder = incremental_decoder(model, cache_dtype=torch.bfloat16, trace=trace)
        found.append([])
        for src in (several, several[:1], padded[:1], several):
            found[-1] += logits_of_steps(decoder, src, tgt[: len(src)], 2)
    assert isinstance(decoder, TransformerDecoder)
    assert decoder.traced is not None
    assert len(decoder.traced.traces) == 3
    assert all(decoder.traced.traces.values())
    for plain, traced in zip(*found, strict=True):
        torch.testing.assert_close(traced, plain)


@torch.no_grad()
def test_trace_of_few_beams_is_not_used_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "CALLS_BEFORE_TRACING", 0)
    model = make().bfloat16()
    src, tgt = batch((16, 3), (9, 3))
    found: list[list[torch.Tensor]] = []
    for trace in (False, True):
        decoder = incremental_decoder(model, trace=trace)
        found.append([])
        for n_beams in (5, kernels.FEW_QUERIES, 5):
            found[-1] += logits_of_steps(decoder, src, tgt, n_beams)
    for plain, traced in zip(*found, strict=True):
        assert torch.equal(traced, plain)


def test_int8_on_a_gpu_is_refused() -> None:
    with pytest.raises(ConfigError, match="int8 runs on CPUs only"):
        in_precision(make().to("meta"), "int8")


def test_pick_device_refuses_unknown_devices() -> None:
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type in ("cuda", "mps", "cpu")
    for wrong in ("cpuu", "meta", "xla"):
        with pytest.raises(ConfigError, match=f"no device '{wrong}'"):
            pick_device(wrong)


def test_each_rank_picks_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch_engine, "launched", lambda: Launch(1, 2, 1))
    assert pick_device("cuda") == torch.device("cuda:1")
    assert pick_device("auto") == torch.device("cuda:1")
    with pytest.raises(ConfigError, match="no device 'cuda:2'"):
        pick_device("cuda:2")


@pytest.mark.parametrize("choices", FAMILY, ids=name)
def test_bf16_logits_of_every_model_are_close_to_fp32(choices: dict[str, Any]) -> None:
    torch.manual_seed(1)
    src, tgt = batch((9, 12), (4, 7))
    model = fresh(**choices)
    with torch.inference_mode():
        expected = model(src, tgt)
        found = in_precision(model, "bf16")(src, tgt).float()
    assert (found - expected).abs().max() < 0.05 * expected.abs().max()


def test_tracing_in_bf16_prints_no_warning(five_run: FiveRun) -> None:
    """Translates one sentence at a time, with enough steps that they are traced."""
    args = ["translate", "-m", five_run.run, "--precision", "bf16", "--beam", 1, "--batch-size", 1]
    done = run_nmt(*args, input="".join(f"{line}\n" for line in SOURCE * 3).encode())
    assert out_lines(done) == TARGET * 3
    assert err_lines(done) == []
