"""Linear layers with int8 matmuls for CPUs: one scale per output feature of a weight, one per call for inputs."""

import warnings

import torch
from torch import Tensor, nn

from nmt.errors import ConfigError
from nmt.model.base import ActivatedLinear

ONEDNN_MIN_OUTPUTS = 4096  # from this size on, oneDNN is faster: it keeps no int32 copy of the outputs


class Int8Linear(nn.Module):
    """x W^T + b with x and W in int8 and sums in int32; a following ReLU is fused."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        activation = linear.activation if isinstance(linear, ActivatedLinear) else None
        fuses_relu, quantized = activation is torch.relu, torch.ops.quantized
        self.matmul = quantized.linear_relu_dynamic if fuses_relu else quantized.linear_dynamic
        self.activation = None if fuses_relu else activation
        weight = linear.weight.detach().float()
        bias = None if linear.bias is None else linear.bias.detach().float()
        scale = (weight.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny).double()  # (out,)
        with warnings.catch_warnings(action="ignore"):  # warns that it moves to another package
            rounded = torch.quantize_per_channel(weight, scale, torch.zeros_like(scale).long(), 0, torch.qint8)
        backend = torch.backends.quantized
        default = backend.engine  # process-wide; linear_prepack has no such argument
        try:
            if linear.out_features >= ONEDNN_MIN_OUTPUTS and "onednn" in backend.supported_engines:
                backend.engine = "onednn"
            self.packed = quantized.linear_prepack(rounded, bias)
        finally:
            backend.engine = default

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., in) of any float dtype to (..., out) float32."""
        # True is reduce_range, 7 bits for x: with 8, the sum of two products overflows 16 bits on CPUs without VNNI
        out: Tensor = self.matmul(x.float(), self.packed, True)
        return self.activation(out) if self.activation else out


def to_int8(model: nn.Module) -> None:
    """Replace all linear layers of a model in place. Raises ConfigError if torch does not support int8 here."""
    linears = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    try:
        for name, linear in linears:
            model.set_submodule(name, Int8Linear(linear))
    except (AttributeError, RuntimeError) as error:
        hint = "use fp32 or bf16, or an export to CTranslate2"
        raise ConfigError("torch does not support int8 on this machine", hint=hint) from error
