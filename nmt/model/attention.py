"""Attention (Vaswani et al. 2017, section 3.2) and positions (section 3.5), with what came before and after them.

Masks are bool, True = may be attended; `added` makes of one what kernels add to scores. Knows nothing of layers.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.model.dropout import Dropout

BLOCK = 32  # least number of queries that a local window is worked on with
FEW = 32  # queries
VECTOR = 16  # keys: on a CPU the softmax of 15 takes ten times as long as that of 16


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
    return weighted_sum(query @ key.transpose(-2, -1) / math.sqrt(query.size(-1)), value, mask, dropout)


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


def weighted_sum(
    scores: Tensor, value: Tensor, mask: Tensor | None = None, dropout: nn.Module | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(scores) V, whatever the scores (..., T, S), which are overwritten.

    Args:
        mask: as in `scaled_dot_product_attention`, or what `added` makes of it.
    """
    if mask is not None:
        scores = scores.masked_fill_(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    n_queries, n_keys = scores.shape[-2:]
    # for one query it does not pay; nor in search, whose layers are recorded with their sizes
    if n_keys < VECTOR and n_queries > 1 and torch.is_grad_enabled() and scores.device.type == "cpu":
        scores = F.pad(scores, (0, VECTOR - n_keys), value=-math.inf)
        value = F.pad(value, (0, 0, 0, VECTOR - n_keys))
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    return (dropout(weights) if dropout else weights).to(value.dtype) @ value, weights[..., :n_keys]


def added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a mask is True and -inf elsewhere: made once, where many calls share a mask."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -math.inf)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """(length, length) bool: a position sees itself and what stands before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def local_mask(length: int, window: int, causal: bool, real: Tensor) -> Tensor:
    """What a position with a local window sees: itself, and those of its neighbours on either side that are real.

    A position sees itself even where it is padding, or padding far from any word would have nothing to look at.

    Args:
        length: T.
        window: w.
        causal: only before it.
        real: (..., 1, T) bool.
    Returns:
        (..., T, T) bool
    """
    ones = torch.ones(length, length, dtype=torch.bool, device=real.device)
    near = ones.tril(0 if causal else window).triu(-window)
    return near & (real | ones.tril().triu())


def local_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    causal: bool,
    real: Tensor,
    dropout: nn.Module | None = None,
) -> Tensor:
    """Scaled dot-product attention under `local_mask`, in time and memory that grow with T alone.

    Queries are taken in blocks, each with the keys that any of them sees.

    Args:
        query, key, value: (B, H, T, d).
        window: positions seen on either side, w.
        causal: only on the left.
        real: (B, 1, 1, T) bool, or (1, 1, 1, T).
        dropout: on the weights.
    Returns:
        (B, H, T, d)
    """
    length, block, right = query.size(2), max(window, BLOCK), 0 if causal else window
    beyond = -length % block
    width = window + block + right  # keys a block, W

    def blocks(x: Tensor) -> Tensor:  # (B, H, T, d) to (B, H, n, W, d)
        return F.pad(x, (0, 0, window, beyond + right)).unfold(2, width, block).transpose(-1, -2)

    queries = F.pad(query, (0, 0, 0, beyond))
    queries = queries.reshape(*query.shape[:2], -1, block, query.size(3))  # (B, H, n, block, d)
    of_query = torch.arange(block, device=query.device)[:, None]
    of_key = torch.arange(width, device=query.device) - window
    near = (of_key >= of_query - window) & (of_key <= of_query + right)  # (block, W)
    seen = near & (blocks(real.transpose(2, 3)).transpose(3, 4) | (of_key == of_query))  # (B, 1, n, block, W)
    out, _ = scaled_dot_product_attention(queries, blocks(key), blocks(value), seen, dropout)
    return out.flatten(2, 3)[:, :, :length]


def unbound(heads: Tensor) -> tuple[Tensor, ...]:
    """(B, T, n, H, d), as a linear layer leaves it, to n views (B, H, T, d)."""
    return heads.permute(2, 0, 3, 1, 4).unbind()


class MultiHeadAttention(nn.Module):
    """H heads of width D / H side by side (section 3.2.2); what asks and what answers, subclasses project.

    Args:
        d_model: D.
        n_heads: H.
        dropout: on the weights.
        scoring: how a query and a key are compared: scaled_dot; dot, which shows what the scale is there for; or
            additive, as before the Transformer, by each head.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float, scoring: str = "scaled_dot") -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(d_model, d_model)
        self.scaled = scoring != "dot"
        self.v = nn.Parameter(uniform(n_heads, 1, d_model // n_heads)) if scoring == "additive" else None

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
            key, value: (B, H, S, D/H); may be kept in another precision, in which the products are then.
            mask: broadcastable to (B, H, T, S), bool or `added`.
            causal: position t sees positions 0..t; only for T = S, and instead of a mask.
            weights: where given, the weights (B, H, T, S) are appended, and the fused kernel is not used.
        Returns:
            (B, T, D)
        """
        query = query.to(key.dtype)
        if not self.scaled:
            query = query * math.sqrt(query.size(-1))  # by which all ways below divide
        # On a CPU the fused kernel's gradient takes 2 (fp32) to 9 times (bf16) as long as the formula's, and with
        # few queries its bf16 products twice as long.
        few = query.size(2) < FEW and query.dtype == torch.bfloat16
        by_formula = weights is not None or (query.device.type == "cpu" and (torch.is_grad_enabled() or few))
        if by_formula or self.v is not None:
            mask = causal_mask(query.size(2), query.device) if causal else mask
            if self.v is None:
                heads, w = scaled_dot_product_attention(query, key, value, mask, self.dropout)
            else:
                scores = additive_scores(query, key, self.v.to(key.dtype))
                heads, w = weighted_sum(scores, value, mask, self.dropout)
            if weights is not None:
                weights.append(w)
        else:
            p = self.dropout.p if self.training else 0.0
            heads = F.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=p, is_causal=causal
            )
        return self.merge(heads)

    def merge(self, heads: Tensor) -> Tensor:
        """What the heads gathered, (B, H, T, D/H), side by side and projected: (B, T, D)."""
        out: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return out


class SelfAttention(MultiHeadAttention):
    """Every position asks all positions of the same sequence, or those within a window."""

    def __init__(
        self, d_model: int, n_heads: int, dropout: float, scoring: str = "scaled_dot", window: int = 0
    ) -> None:
        super().__init__(d_model, n_heads, dropout, scoring)
        self.window = window
        self.query_key_value = nn.Linear(d_model, 3 * d_model)  # one product for all three

    def project(self, x: Tensor, rotation: Tensor | None = None) -> Tensor:
        """(B, T, D) to queries, keys and values, (B, T, 3, H, D/H).

        The first two are turned by `rotation`, (T, D/H/2), or (1, D/H/2) where all stand at one position.
        """
        heads = self.split(self.query_key_value(x), 3)
        if rotation is None:
            return heads
        return torch.cat([rotate(heads[:, :, :2], rotation[:, None, None]), heads[:, :, 2:]], 2)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        rotation: Tensor | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """(B, T, D) to (B, T, D); for `rotation` see `project`, for the rest `attend`."""
        query, key, value = unbound(self.project(x, rotation))
        if self.window:
            length = x.size(1)
            real = x.new_ones(1, 1, 1, length, dtype=torch.bool) if mask is None else mask
            if weights is None and length > self.window + BLOCK:  # else blocks do not pay
                return self.merge(local_attention(query, key, value, self.window, causal, real, self.dropout))
            mask, causal = local_mask(length, self.window, causal, real), False
        return self.attend(query, key, value, mask=mask, causal=causal, weights=weights)


class CrossAttention(MultiHeadAttention):
    """Every position asks another sequence, whose keys and values are made once."""

    def __init__(self, d_model: int, n_heads: int, dropout: float, scoring: str = "scaled_dot") -> None:
        super().__init__(d_model, n_heads, dropout, scoring)
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


def rotary_positions(n_positions: int, d: int) -> Tensor:
    """(n_positions, d/2) complex64: exp(i * position * rate), the rates as above (Su et al. 2021)."""
    position = torch.arange(n_positions, dtype=torch.float64)[:, None]  # (P, 1)
    angles = position * 10_000 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)  # (P, d/2)
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair of neighbouring numbers, as a complex one, by its position's angle.

    The product of a turned query and a turned key knows of their positions the distance alone.

    Args:
        x: (..., d).
        rotation: complex, broadcastable to (..., d/2), from `rotary_positions`.
    """
    pairs = x.reshape(*x.shape[:-1], -1, 2).to(torch.promote_types(x.dtype, torch.float32))
    turned = torch.view_as_complex(pairs) * rotation  # (..., d/2)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def uniform(*shape: int) -> Tensor:
    """Fresh weights of what is summed over the last dimension, d of it: uniform, of variance 1/d."""
    return torch.empty(shape).uniform_(-1, 1) * math.sqrt(3 / shape[-1])
