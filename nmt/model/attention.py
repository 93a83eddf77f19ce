"""Attention (Vaswani et al. 2017, section 3.2) and positions (section 3.5).

Masks are bool, True = may be attended. Knows nothing of layers.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.model.dropout import Dropout


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: nn.Module | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(QK^T / sqrt(d)) V, written out: the paper's equation 1.

    Args:
        query: (..., T, d).
        key, value: (..., S, d).
        mask: broadcastable to (..., T, S), bool; every row must allow something, or it becomes NaN.
        dropout: on the weights that `value` is summed with.
    Returns:
        the output (..., T, d) and the weights (..., T, S), whose rows sum to 1.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(-1)
    return (dropout(weights) if dropout else weights) @ value, weights


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """(length, length) bool: a position sees itself and what stands before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def unbound(heads: Tensor) -> tuple[Tensor, ...]:
    """(B, T, n, H, d), as a linear layer leaves it, to n views (B, H, T, d)."""
    return heads.permute(2, 0, 3, 1, 4).unbind()


class MultiHeadAttention(nn.Module):
    """H heads of width D / H side by side (section 3.2.2); what asks and what answers, subclasses project."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(d_model, d_model)

    def split(self, x: Tensor, n: int) -> Tensor:
        """(B, T, n*D) to n times H heads, (B, T, n, H, D/H)."""
        return x.view(*x.shape[:2], n, self.n_heads, -1)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """What the positions that ask gather.

        Args:
            query: (B, H, T, D/H).
            key, value: (B, H, S, D/H).
            mask: broadcastable to (B, H, T, S), bool.
            causal: position t sees positions 0..t; only for T = S, and instead of a mask.
            weights: where given, the weights (B, H, T, S) are appended, and the fused kernel is not used.
        Returns:
            (B, T, D)
        """
        # On a CPU the fused kernel's gradient takes 2 (fp32) to 9 times (bf16) as long as the formula's.
        if weights is not None or (query.device.type == "cpu" and torch.is_grad_enabled()):
            mask = causal_mask(query.size(2), query.device) if causal else mask
            heads, w = scaled_dot_product_attention(query, key, value, mask, self.dropout)
            if weights is not None:
                weights.append(w)
        else:
            p = self.dropout.p if self.training else 0.0
            heads = F.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=p, is_causal=causal
            )
        out: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return out


class SelfAttention(MultiHeadAttention):
    """Every position asks all positions of the same sequence."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__(d_model, n_heads, dropout)
        self.query_key_value = nn.Linear(d_model, 3 * d_model)  # one product for all three

    def project(self, x: Tensor) -> Tensor:
        """(B, T, D) to queries, keys and values, (B, T, 3, H, D/H)."""
        return self.split(self.query_key_value(x), 3)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """(B, T, D) to (B, T, D); for `mask`, `causal` and `weights` see `attend`."""
        return self.attend(*unbound(self.project(x)), mask=mask, causal=causal, weights=weights)


class CrossAttention(MultiHeadAttention):
    """Every position asks another sequence, whose keys and values are made once."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__(d_model, n_heads, dropout)
        self.query = nn.Linear(d_model, d_model)
        self.key_value = nn.Linear(d_model, 2 * d_model)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, ...]:
        """(B, S, D) to keys and values, each (B, H, S, D/H)."""
        return unbound(self.split(self.key_value(memory), 2))

    def forward(
        self,
        x: Tensor,
        keys_values: Sequence[Tensor],
        mask: Tensor | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """(B, T, D) to (B, T, D); for `mask` and `weights` see `attend`."""
        (query,) = unbound(self.split(self.query(x), 1))
        return self.attend(query, *keys_values, mask=mask, weights=weights)


def sinusoidal_positions(n_positions: int, d_model: int) -> Tensor:
    """(n_positions, d_model) float32: sin and cos interleaved, wavelengths 2 pi to 10,000 * 2 pi (section 3.5)."""
    position = torch.arange(n_positions, dtype=torch.float64)[:, None]  # (P, 1)
    rate = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (D/2,)
    angles = position * rate  # (P, D/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()
