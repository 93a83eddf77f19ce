"""Int8 layers apply activations; a machine without int8 is a clear error. For precision see test_torch_engine.py."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from models import make
from torch import nn

from nmt.decode.engines.int8 import Int8Linear, to_int8
from nmt.errors import ConfigError
from nmt.model.base import ActivatedLinear


@torch.no_grad()
@pytest.mark.parametrize("activation", [torch.relu, F.gelu])
def test_activation_of_a_linear_layer_is_kept(activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(1)
    layer, x = ActivatedLinear(8, 16, activation), torch.randn(5, 8)
    plain = nn.Linear(8, 16)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), activation(plain(x)))
    torch.testing.assert_close(Int8Linear(layer)(x), activation(Int8Linear(plain)(x)))


def test_machine_without_int8_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise RuntimeError("no engine")

    monkeypatch.setattr("torch.quantize_per_channel", refuse)
    with pytest.raises(ConfigError, match="does not support int8 on this machine"):
        to_int8(make().float())
