"""Attention (Vaswani et al. 2017, section 3.2) and positions (section 3.5).

Masks are bool, True = may be attended. Knows nothing of layers.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.model.dropout import Dropout

SHORT = 4096  # T x S


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
    return attend(query @ key.transpose(-2, -1) / math.sqrt(query.size(-1)), value, mask, dropout)


def additive_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """v tanh(q + k) for each query and key (Bahdanau et al. 2015, section A.1.2), both already projected.

    Args:
        query: (..., T, d).
        key: (..., S, d).
        v: (d,), or broadcastable to (..., T, d).
    Returns:
        (..., T, S); on the way there is a tensor of d times that size.
    """
    return (torch.tanh(query[..., :, None, :] + key[..., None, :, :]) @ v[..., None])[..., 0]


def attend(
    scores: Tensor, value: Tensor, mask: Tensor | None = None, dropout: nn.Module | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(scores) V, whatever the scores (..., T, S); the rest as in `scaled_dot_product_attention`."""
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(-1)
    return (dropout(weights) if dropout else weights) @ value, weights


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """(length, length) bool: a position sees itself and what stands before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class MultiHeadAttention(nn.Module):
    """H heads of width D / H side by side (section 3.2.2).

    Keys and values are made by a call of their own, so that a decoder can keep them.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = Dropout(dropout)
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def split(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, H, T, D/H): each head gets its slice of the width."""
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)

    @staticmethod
    def merge(x: Tensor) -> Tensor:
        """(B, H, T, D/H) to (B, T, D): the heads side by side again."""
        return x.transpose(1, 2).flatten(2)

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What can be attended to: (B, S, D) to keys and values, each (B, H, S, D/H)."""
        return self.split(self.key(x)), self.split(self.value(x))

    def forward(
        self,
        x: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """What the positions of `x` gather.

        Args:
            x: (B, T, D).
            key, value: (B, H, S, D/H), from `keys_values`.
            mask: broadcastable to (B, H, T, S), bool.
            causal: position t sees positions 0..t; only for T = S, and instead of a mask.
            weights: where given, the weights (B, H, T, S) are appended, and the fused kernel is not used.
        Returns:
            (B, T, D)
        """
        query = self.split(self.query(x))  # (B, H, T, D/H)
        # On a CPU the fused kernel's gradient takes 2 (fp32) to 9 times (bf16) as long as the formula's, and it
        # pays without one only where the weights would fill much memory.
        short = query.size(2) * key.size(2) <= SHORT
        if weights is not None or (x.device.type == "cpu" and (short or torch.is_grad_enabled())):
            mask = causal_mask(x.size(1), x.device) if causal else mask
            heads, w = scaled_dot_product_attention(query, key, value, mask, self.dropout)
            if weights is not None:
                weights.append(w)
        else:
            p = self.dropout.p if self.training else 0.0
            heads = F.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=p, is_causal=causal
            )
        out: Tensor = self.output(self.merge(heads))
        return out


def sinusoidal_positions(n_positions: int, d_model: int) -> Tensor:
    """(n_positions, d_model) float32: sin and cos interleaved, wavelengths 2 pi to 10,000 * 2 pi (section 3.5)."""
    position = torch.arange(n_positions, dtype=torch.float64)[:, None]  # (P, 1)
    rate = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (D/2,)
    angles = position * rate  # (P, D/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()
