"""Attention (Vaswani et al. 2017, section 3.2) and positions (section 3.5), with what came before and after them.

Masks are bool, True = may be attended. Knows nothing of layers.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.model.dropout import Dropout

SHORT = 4096  # T x S
BLOCK = 32  # least number of queries that a local window is worked on with


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


def local_mask(length: int, window: int, causal: bool, device: torch.device | None = None) -> Tensor:
    """(length, length) bool: a position sees itself and `window` neighbours on either side, or before it alone."""
    near = torch.ones(length, length, dtype=torch.bool, device=device).tril(0 if causal else window)
    return near.triu(-window)


def local_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    *,
    causal: bool,
    mask: Tensor | None = None,
    dropout: nn.Module | None = None,
) -> Tensor:
    """Scaled dot-product attention under `local_mask`, in time and memory that grow with T alone.

    Queries are taken in blocks, each with the keys that any of them sees. A position always sees itself, so that
    padding far from any word has something to look at.

    Args:
        query, key, value: (B, H, T, d).
        window: positions seen on either side, w.
        causal: only on the left.
        mask: (B, 1, 1, T) bool.
        dropout: on the weights.
    Returns:
        (B, H, T, d)
    """
    length, block, right = query.size(2), max(window, BLOCK), 0 if causal else window
    beyond = -length % block
    width = window + block + right  # keys a block, W

    def blocks(x: Tensor) -> Tensor:  # (B, H, T, d) to (B, H, n, W, d)
        return F.pad(x, (0, 0, window, beyond + right)).unfold(2, width, block).transpose(-1, -2)

    queries = F.pad(query, (0, 0, 0, beyond)).reshape(
        *query.shape[:2], -1, block, query.size(3)
    )  # (B, H, n, block, d)
    of_query = torch.arange(block, device=query.device)[:, None]
    of_key = torch.arange(width, device=query.device) - window
    near = (of_key >= of_query - window) & (of_key <= of_query + right)  # (block, W)
    real = query.new_ones(1, 1, 1, length, dtype=torch.bool) if mask is None else mask
    seen = near & (blocks(real.transpose(2, 3)).transpose(3, 4) | (of_key == of_query))  # (B, 1, n, block, W)
    out, _ = scaled_dot_product_attention(queries, blocks(key), blocks(value), seen, dropout)
    return out.flatten(2, 3)[:, :, :length]


class MultiHeadAttention(nn.Module):
    """H heads of width D / H side by side (section 3.2.2).

    Keys and values are made by a call of their own, so that a decoder can keep them.

    Args:
        d_model: D.
        n_heads: H.
        dropout: on the weights.
        scoring: how a query and a key are compared: scaled_dot; dot, which shows what the scale is there for; or
            additive, as before the Transformer, in each head.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float, scoring: str = "scaled_dot") -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = Dropout(dropout)
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)
        self.scaled = scoring != "dot"
        d = d_model // n_heads
        self.v = nn.Parameter(uniform(n_heads, 1, d)) if scoring == "additive" else None

    def split(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, H, T, D/H): each head gets its slice of the width."""
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)

    @staticmethod
    def merge(x: Tensor) -> Tensor:
        """(B, H, T, D/H) to (B, T, D): the heads side by side again."""
        return x.transpose(1, 2).flatten(2)

    def keys_values(self, x: Tensor, rotation: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What can be attended to: (B, S, D) to keys and values, each (B, H, S, D/H); `rotation` is the keys'."""
        key = self.split(self.key(x))
        return key if rotation is None else rotate(key, rotation), self.split(self.value(x))

    def forward(
        self,
        x: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        window: int = 0,
        rotation: Tensor | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """What the positions of `x` gather.

        Args:
            x: (B, T, D).
            key, value: (B, H, S, D/H), from `keys_values`.
            mask: broadcastable to (B, H, T, S), bool.
            causal: position t sees positions 0..t; only for T = S, and instead of a mask.
            window: position t sees so many neighbours (see `local_mask`) and itself; only for T = S; 0 is all.
            rotation: the queries', see `rotate`.
            weights: where given, the weights (B, H, T, S) are appended, and the fused kernel is not used.
        Returns:
            (B, T, D)
        """
        query = self.split(self.query(x))  # (B, H, T, D/H)
        if not self.scaled:
            query = query * math.sqrt(query.size(-1))  # by which all ways below divide
        if rotation is not None:
            query = rotate(query, rotation)
        if window and weights is None and x.size(1) > window + BLOCK:
            heads = local_attention(query, key, value, window, causal=causal, mask=mask, dropout=self.dropout)
            out: Tensor = self.output(self.merge(heads))
            return out
        if window:
            near = local_mask(x.size(1), window, causal, x.device)
            mask = near if mask is None else near & (mask | local_mask(x.size(1), 0, True, x.device))
            causal = False
        # On a CPU the fused kernel's gradient takes 2 (fp32) to 9 times (bf16) as long as the formula's, and it
        # pays without one only where the weights would fill much memory.
        short = query.size(2) * key.size(2) <= SHORT
        formula = weights is not None or (x.device.type == "cpu" and (short or torch.is_grad_enabled()))
        if formula or self.v is not None:
            mask = causal_mask(x.size(1), x.device) if causal else mask
            if self.v is not None:
                heads, w = attend(additive_scores(query, key, self.v), value, mask, self.dropout)
            else:
                heads, w = scaled_dot_product_attention(query, key, value, mask, self.dropout)
            if weights is not None:
                weights.append(w)
        else:
            p = self.dropout.p if self.training else 0.0
            heads = F.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=p, is_causal=causal
            )
        out = self.output(self.merge(heads))
        return out


def sinusoidal_positions(n_positions: int, d_model: int) -> Tensor:
    """(n_positions, d_model) float32: sin and cos interleaved, wavelengths 2 pi to 10,000 * 2 pi (section 3.5)."""
    position = torch.arange(n_positions, dtype=torch.float64)[:, None]  # (P, 1)
    rate = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (D/2,)
    angles = position * rate  # (P, D/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


def rotary_positions(n_positions: int, d: int) -> Tensor:
    """(n_positions, d/2) complex64: exp(i * position * rate), the rates as above (Su et al. 2021)."""
    position = torch.arange(n_positions, dtype=torch.float64)[:, None]  # (P, 1)
    angles = position * 10_000 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)  # (P, d/2)
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair of neighbouring numbers, as a complex one, by its position's angle.

    The product of a turned query and a turned key knows of their positions the distance alone.

    Args:
        x: (..., T, d).
        rotation: (T, d/2) complex, or broadcastable to it, from `rotary_positions`.
    """
    dtype = x.dtype
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotation).flatten(-2).to(dtype)


def uniform(*shape: int) -> Tensor:
    """Fresh weights of what is summed over the last dimension, d of it: uniform, of variance 1/d."""
    return torch.empty(shape).uniform_(-1, 1) * math.sqrt(3 / shape[-1])
