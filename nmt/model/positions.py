"""Positional encodings: sinusoids (Vaswani et al. 2017, section 3.5) and rotations (Su et al. 2021)."""

import torch
from torch import Tensor


def sinusoidal_positions(n_positions: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)): (n_positions, D) float32."""
    angles = _angles(n_positions, d_model)  # (P, D/2)
    pairs = torch.stack([angles.sin(), angles.cos()], -1)  # (P, D/2, 2)
    return pairs.flatten(1).float()


def rotary_positions(n_positions: int, d: int) -> Tensor:
    """exp(i * pos / 10000^(2i/d)): (n_positions, d/2) complex64."""
    angles = _angles(n_positions, d)  # (P, d/2)
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def _angles(n_positions: int, d: int) -> Tensor:
    position = torch.arange(n_positions, dtype=torch.float64)  # (P,)
    exponent = torch.arange(0, d, 2, dtype=torch.float64) / d  # (d/2,)
    frequency = 10_000**-exponent
    return torch.outer(position, frequency)  # (P, d/2)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Multiply pairs of neighboring elements of x (..., d), as complex numbers, by `rotation`.

    `rotation` is broadcastable to (..., d/2), from `rotary_positions`. The dot product of a rotated query and a
    rotated key depends on the distance between their positions alone.
    """
    dtype = torch.promote_types(x.dtype, torch.float32)  # complex numbers are never bf16
    pairs = x.to(dtype).view(*x.shape[:-1], -1, 2)  # (..., d/2, 2)
    rotated = torch.view_as_complex(pairs) * rotation  # (..., d/2)
    return torch.view_as_real(rotated).flatten(-2).to(x.dtype)
