"""Linear layers with weights and products of 8 bits, for decoding on a CPU.

Weights have a scale for each output, inputs one for each call (dynamic quantisation).
"""

import warnings

import torch
from torch import Tensor, nn

from nmt.errors import ConfigError
from nmt.model.base import ActivatedLinear

WIDE = 4096  # outputs from which oneDNN is quicker, for it keeps no second copy of them in 32 bits


class Int8Linear(nn.Module):
    """What a linear layer does, nearly: x W^T + b with x and W rounded to 8 bits, their sums in 32.

    A ReLU that follows is done along, and so needs no time.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features = linear.out_features
        activation = linear.activation if isinstance(linear, ActivatedLinear) else None
        relu, quantized = activation is torch.relu, torch.ops.quantized
        self.product = quantized.linear_relu_dynamic if relu else quantized.linear_dynamic
        self.activation = None if relu else activation
        weight = linear.weight.detach().float()
        bias = None if linear.bias is None else linear.bias.detach().float()
        scale = (weight.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny).double()  # (out,)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch wants to move this to another package
            rounded = torch.quantize_per_channel(weight, scale, torch.zeros_like(scale).long(), 0, torch.qint8)
        before = torch.backends.quantized.engine
        try:
            if linear.out_features >= WIDE and "onednn" in torch.backends.quantized.supported_engines:
                torch.backends.quantized.engine = "onednn"
            self.packed = torch.ops.quantized.linear_prepack(rounded, bias)
        finally:  # it is everybody's
            torch.backends.quantized.engine = before

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) of any precision to (..., out) in fp32.

        Of x 7 bits are used: with 8, sums of two products overflow on older CPUs.
        """
        out: Tensor = self.product(x.float(), self.packed, True)
        return self.activation(out) if self.activation else out


def to_int8(model: nn.Module) -> None:
    """Exchange all linear layers of a model, in place.

    Raises:
        ConfigError: this torch cannot, or this is no CPU for it.
    """
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                try:
                    setattr(module, name, Int8Linear(child))
                except (AttributeError, RuntimeError) as error:
                    raise ConfigError(
                        "this torch has no int8 here", hint="take fp32, bf16, or an export to CTranslate2"
                    ) from error
