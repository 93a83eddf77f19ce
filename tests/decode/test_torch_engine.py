"""Our own engine: in every precision, on the device that was asked for."""

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from conftest import SOURCE, TARGET, FiveRun, err_lines, model_of, out_lines, run_nmt
from models import FAMILY, batch, fresh, logits_of_steps, make, name
from torch import nn

from nmt.decode import torch_engine
from nmt.decode.int8 import Int8Linear
from nmt.decode.torch_engine import in_precision, pick_device
from nmt.decode.translator import load
from nmt.distributed import Place
from nmt.errors import ConfigError
from nmt.model import attention, traced
from nmt.model.base import ActivatedLinear
from nmt.model.traced import Traced


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_int8_and_bf16_are_close_to_fp32(five_run: FiveRun, precision: Literal["bf16", "int8"]) -> None:
    translator = load(five_run.run, precision=precision)
    assert translator.translate(SOURCE) == TARGET
    expected = load(five_run.run).reference_log_probs(SOURCE, TARGET)
    for found, wanted in zip(translator.reference_log_probs(SOURCE, TARGET), expected, strict=True):
        assert found == pytest.approx(wanted, abs=0.05)


@torch.no_grad()
def test_in_int8_several_sentences_keep_keys_and_values_in_bf16() -> None:
    torch.manual_seed(1)
    for choices in ({}, {"positions": "rotary"}, {"attention": "additive"}, {"attention_window": 3}):
        model = in_precision(make(**choices).float(), "int8")
        src, tgt = batch((7, 20), (4, 20), (2, 20))
        found = []
        for model.cache_dtype in (None, torch.bfloat16):
            state = model.start(src)
            logits = []
            for t in range(tgt.size(1)):
                step, state = model.step(tgt[:, t : t + 1], state)
                logits.append(step)
            found.append(torch.cat(logits, 1))
        exact, kept = found
        assert state.past[0].dtype == state.memory[0][0].dtype == torch.bfloat16
        assert 0 < (kept - exact).std() < 0.04 * exact.std()
        assert model.start(src[:1]).memory[0][0].dtype == torch.float32  # alone it would only cost time


@torch.no_grad()
@pytest.mark.parametrize("activation", [torch.relu, F.gelu])
def test_int8_keeps_the_activation_that_follows(activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(1)
    layer, x = ActivatedLinear(8, 16, activation), torch.randn(5, 8)
    plain = nn.Linear(8, 16)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), activation(plain(x)))
    torch.testing.assert_close(Int8Linear(layer)(x), activation(Int8Linear(plain)(x)))


@torch.no_grad()
def test_steps_recorded_with_one_precision_of_the_cache_leave_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traced, "OFTEN", 0)
    model = in_precision(make().float(), "int8")
    model.cache_dtype = torch.bfloat16  # of several sentences
    several, tgt = batch((16, 3), (16, 3))
    padded, _ = batch((9, 3), (16, 3))
    found: list[list[torch.Tensor]] = [[], []]
    for logits in found:
        for src in (several, several[:1], padded[:1], several):
            logits += logits_of_steps(model, src, tgt[: len(src)], 2)
        if model.traced is None:
            model.trace_steps()
    assert isinstance(model.traced, Traced)
    assert len(model.traced.recorded) == 3
    assert all(model.traced.recorded.values())
    for plain, recorded in zip(*found, strict=True):
        torch.testing.assert_close(recorded, plain)


@torch.no_grad()
def test_what_few_beams_have_recorded_does_not_change_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "OFTEN", 0)
    model = make().bfloat16()
    src, tgt = batch((16, 3), (9, 3))
    found: list[list[torch.Tensor]] = [[], []]
    for logits in found:
        for n_beams in (5, attention.FEW, 5):
            logits += logits_of_steps(model, src, tgt, n_beams)
        model.trace_steps()
    for plain, recorded in zip(*found, strict=True):
        assert torch.equal(recorded, plain)


def test_int8_where_there_is_none_is_a_clear_error(five_run: FiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(load(five_run.run))
    with pytest.raises(ConfigError, match="int8 is for CPUs"):
        in_precision(model.to("meta"), "int8")

    def refuse(*args: object) -> None:
        raise RuntimeError("no engine")

    monkeypatch.setattr("torch.quantize_per_channel", refuse)
    with pytest.raises(ConfigError, match="has no int8 here"):
        in_precision(model_of(load(five_run.run)), "int8")


def test_devices() -> None:
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type in ("cuda", "mps", "cpu")
    for wrong in ("cpuu", "meta", "xla"):
        with pytest.raises(ConfigError, match=f"no device '{wrong}'"):
            pick_device(wrong)


def test_a_rank_takes_its_own_gpu_and_none_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch_engine, "launched", lambda: Place(1, 2, 1))
    assert pick_device("cuda") == torch.device("cuda:1")
    assert pick_device("auto") == torch.device("cuda:1")
    with pytest.raises(ConfigError, match="no device 'cuda:2'"):
        pick_device("cuda:2")


@pytest.mark.parametrize("choices", FAMILY, ids=name)
def test_bf16_of_every_model_is_close_to_fp32(choices: dict[str, Any]) -> None:
    src, tgt = batch((9, 12), (4, 7))
    model = fresh(**choices)
    with torch.inference_mode():
        expected = model(src, tgt)
        found = in_precision(model, "bf16")(src, tgt).float()
    assert (found - expected).abs().max() < 0.05 * expected.abs().max()


def test_nothing_is_said_while_steps_are_recorded_in_bf16(five_run: FiveRun) -> None:
    """One sentence at a time, often enough that its steps are recorded."""
    args = ["translate", "-m", five_run.run, "--precision", "bf16", "--beam", 1, "--batch-size", 1]
    done = run_nmt(*args, input="".join(f"{line}\n" for line in SOURCE * 3).encode())
    assert out_lines(done) == TARGET * 3
    assert err_lines(done) == []
