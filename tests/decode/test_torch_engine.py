"""Our own engine: in every precision, on the device that was asked for."""

from typing import Literal

import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, model_of

from nmt.decode import torch_engine
from nmt.decode.torch_engine import in_precision, pick_device
from nmt.decode.translator import load
from nmt.distributed import Place
from nmt.errors import ConfigError


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_int8_and_bf16_are_close_to_fp32(five_run: FiveRun, precision: Literal["bf16", "int8"]) -> None:
    translator = load(five_run.run, precision=precision)
    assert translator.translate(SOURCE) == TARGET
    expected = load(five_run.run).reference_log_probs(SOURCE, TARGET)
    for found, wanted in zip(translator.reference_log_probs(SOURCE, TARGET), expected, strict=True):
        assert found == pytest.approx(wanted, abs=0.05)


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
