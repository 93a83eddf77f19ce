"""Positional encodings: sinusoids (Vaswani et al. 2017, section 3.5), those of Marian, rotations (Su et al. 2021)."""

import torch
from torch import Tensor


def sinusoidal_positions(n_positions: int, d_model: int) -> Tensor:
    """Return the sinusoidal encodings PE of the first positions, (n_positions, D) float32.

    PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)).
    """
    return _sines_and_cosines(_angles(n_positions, d_model // 2, d_model / 2))


def marian_positions(n_positions: int, d_model: int) -> Tensor:
    """Return the sinusoids of Marian and tensor2tensor, (n_positions, D) float32.

    They have the exponent i / (D/2 - 1) in place of 2i/D.
    """
    return _sines_and_cosines(_angles(n_positions, d_model // 2, d_model / 2 - 1))


def _sines_and_cosines(angles: Tensor) -> Tensor:
    """Return the sines of angles (P, n) at the even places and their cosines at the odd ones, (P, 2n) float32."""
    pairs = torch.stack([angles.sin(), angles.cos()], -1)  # (P, n, 2)
    return pairs.flatten(1).float()


def rotary_positions(n_positions: int, d: int) -> Tensor:
    """Return the rotations R of the first positions, (n_positions, d/2) complex64.

    R(pos, k) = exp(i * pos / 10000^(2k/d)), where i is the imaginary unit.
    """
    angles = _angles(n_positions, d // 2, d / 2)  # (P, d/2)
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def _angles(n_positions: int, n: int, divisor: float) -> Tensor:
    """Return pos / 10000^(i/divisor) for 0 <= pos < n_positions and 0 <= i < n, (n_positions, n) float64."""
    position = torch.arange(n_positions, dtype=torch.float64)  # (P,)
    exponent = torch.arange(n, dtype=torch.float64) / divisor  # (n,)
    frequency = 10_000**-exponent
    return torch.outer(position, frequency)  # (P, n)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Read pairs of neighboring elements of x (..., d) as complex numbers, and multiply them by `rotation`.

    `rotation` comes from `rotary_positions`, and is broadcastable to (..., d/2). After the rotation, the dot product of
    a query and a key depends on the distance between their positions.
    """
    dtype = torch.promote_types(x.dtype, torch.float32)  # torch has no complex numbers of bf16
    pairs = x.to(dtype).view(*x.shape[:-1], -1, 2)  # (..., d/2, 2)
    rotated = torch.view_as_complex(pairs) * rotation  # (..., d/2)
    return torch.view_as_real(rotated).flatten(-2).to(x.dtype)
