"""The torch engine: precisions and devices."""

from typing import Any

import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun
from models import FAMILY, batch, fresh, name

from nmt.decode.engines import torch_engine
from nmt.decode.engines.torch_engine import TorchEngine, in_precision, pick_device
from nmt.distributed import Launch
from nmt.errors import ConfigError
from nmt.translate.loading import load


def test_bf16_translates_as_fp32_with_close_log_probs(five_run: FiveRun) -> None:
    translator = load(five_run.run, precision="bf16")
    assert isinstance(translator.engine, TorchEngine)
    assert translator.translate(SOURCE) == TARGET
    reference = load(five_run.run, engine="torch")
    expected = reference.reference_log_probs(SOURCE, TARGET)
    rows = translator.reference_log_probs(SOURCE, TARGET)
    for log_probs, forced in zip(rows, expected, strict=True):
        assert log_probs == pytest.approx(forced, abs=0.05)


def test_int8_is_refused_with_the_engine_that_has_it(five_run: FiveRun) -> None:
    with pytest.raises(ConfigError, match="torch does not translate in int8") as error:
        load(five_run.run, precision="int8", engine="torch")
    assert "CTranslate2 does" in error.value.hint


def test_pick_device_refuses_unknown_devices() -> None:
    for wrong in ("cpuu", "meta", "xla"):
        with pytest.raises(ConfigError, match=f"no device '{wrong}'"):
            pick_device(wrong)


def test_pick_device_finds_one() -> None:
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type in ("cuda", "mps", "cpu")


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
        logits = in_precision(model, "bf16")(src, tgt)
    tolerance = 0.05 * expected.abs().max()
    torch.testing.assert_close(logits.float(), expected, rtol=0, atol=tolerance.item())
