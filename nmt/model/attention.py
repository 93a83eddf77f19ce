"""Attention (Vaswani et al. 2017, section 3.2): equation 1 and multi-head attention.

A mask is a bool tensor. True means that the query may attend to the key.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import ModelSettings
from nmt.model import kernels
from nmt.model.kernels import Dropout, Linear  # like the classes of torch.nn, but faster on a CPU
from nmt.model.positions import rotate


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: nn.Module | None = None
) -> tuple[Tensor, Tensor]:
    """Compute equation 1: Attention(Q, K, V) = softmax(QK^T / sqrt(d)) V.

    Args:
        query: (..., T, d).
        key, value: (..., S, d).
        mask: bool, broadcastable to (..., T, S). None allows all keys. A row that allows no key gives NaN.
        dropout: a module that is applied to the weights, or None.
    Returns:
        the output (..., T, d) and the weights (..., T, S), whose rows sum to 1.
    """
    d = query.size(-1)
    scores = query @ key.mT / math.sqrt(d)  # (..., T, S)
    return weighted_sum(scores, value, mask, dropout)


def weighted_sum(
    scores: Tensor, value: Tensor, mask: Tensor | None, dropout: nn.Module | None
) -> tuple[Tensor, Tensor]:
    """Compute softmax(scores) V.

    Args:
        scores: (..., T, S). This tensor may be modified in place.
        value, mask, dropout: see `scaled_dot_product_attention`.
    Returns:
        the output (..., T, d) and the weights (..., T, S) before dropout, whose rows sum to 1.
    """
    if mask is not None:
        scores = scores.masked_fill_(~mask, -math.inf)
    weights = kernels.softmax(scores)
    dropped = dropout(weights) if dropout else weights
    return dropped.to(value.dtype) @ value, weights


def additive_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """Compute v tanh(q + k) for every pair of a projected query and key (Bahdanau et al. 2015, section A.1.2).

    Args:
        query: (..., T, d).
        key: (..., S, d).
        v: (d,), or broadcastable to (..., T, d).
    Returns:
        the scores (..., T, S). The sums q + k take up a tensor of shape (..., T, S, d).
    """
    hidden = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))  # (..., T, S, d)
    scores = hidden @ v.unsqueeze(-1)  # (..., T, S, 1)
    return scores.squeeze(-1)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Return a bool mask (length, length) in which position t may attend to positions 0..t (section 3.2.3)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def window_mask(length: int, n: int, device: torch.device | None = None) -> Tensor:
    """Return a bool mask (length, length) in which position t may attend to positions t-n..t+n."""
    everywhere = torch.ones(length, length, dtype=torch.bool, device=device)
    return everywhere.tril(n).triu(-n)


class MultiHeadAttention(nn.Module):
    """Multi-head attention (section 3.2.2): H heads of width D/H are concatenated and projected.

    Subclasses compute queries, keys and values. The scores are scaled dot products, plain dot products, or additive
    scores (Bahdanau et al. 2015).
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        d_model = settings.d_model
        self.n_heads = settings.n_heads
        self.dropout = Dropout(settings.attention_dropout)
        self.output = Linear(d_model, d_model)  # the paper's W^O
        self.scaled = settings.attention != "dot"
        self.v = None  # (H, 1, D/H), the vector v of additive attention; None for dot products
        if settings.attention == "additive":
            d_head = d_model // self.n_heads
            self.v = nn.Parameter(uniform(self.n_heads, 1, d_head))

    def split_heads(self, x: Tensor, n: int) -> Tensor:
        """Reshape the outputs of n projections from (B, T, n*D) to (B, T, n, H, D/H)."""
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
        """Compute attention for each head, then merge the heads.

        Args:
            query: (B, H, T, D/H).
            key, value: (B, H, S, D/H).
            mask: bool, broadcastable to (B, H, T, S).
            causal: whether to apply the causal mask. This requires T = S and no other mask.
            weights: if not None, the attention weights (B, H, T, S) are appended to this list.
        Returns:
            the projected output of all heads, (B, T, D).
        """
        if not self.scaled:
            d_head = query.size(-1)
            query = query * math.sqrt(d_head)  # cancels the division by sqrt(d) in equation 1
        # 1. Use a fused kernel where it is faster. Fused kernels cannot return weights or compute additive scores.
        if weights is None and self.v is None and kernels.prefers_fused(query):
            p = self.dropout.p if self.training else 0.0
            heads = F.scaled_dot_product_attention(query, key, value, mask, p, is_causal=causal)
            return self.merge_heads(heads)
        # 2. Otherwise, compute equation 1 step by step. Without autocast, matmuls keep the dtype of their inputs.
        if causal:
            mask = causal_mask(query.size(2), query.device)
        if kernels.prefers_fp32(query, key):
            query, key, value = query.float(), key.float(), value.float()
        with torch.autocast(query.device.type, enabled=False):
            if self.v is None:
                heads, w = scaled_dot_product_attention(query, key, value, mask, self.dropout)
            else:
                scores = additive_scores(query, key, self.v.to(key.dtype))
                heads, w = weighted_sum(scores, value, mask, self.dropout)
        if weights is not None:
            weights.append(w)
        return self.merge_heads(heads)

    def merge_heads(self, heads: Tensor) -> Tensor:
        """Concatenate the heads (B, H, T, D/H), and project them to (B, T, D)."""
        merged = heads.transpose(1, 2).flatten(2)  # (B, T, D)
        out: Tensor = self.output(merged)
        return out


class SelfAttention(MultiHeadAttention):
    """Attention whose queries, keys and values come from the same sequence.

    If `window` is a number n, position t attends only to positions t-n..t+n.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        self.window = settings.attention_window
        self.query_key_value = Linear(settings.d_model, 3 * settings.d_model)  # W^Q, W^K, W^V in one product

    def project(self, x: Tensor, rotation: Tensor | None = None) -> Tensor:
        """Project x to queries, keys and values, (B, T, 3, H, D/H).

        Args:
            x: (B, T, D).
            rotation: the rotary positions, complex, broadcastable to (T, D/H/2). None if the model has none.
        """
        heads = self.split_heads(self.query_key_value(x), 3)
        if rotation is None:
            return heads
        query_key = rotate(heads[:, :, :2], rotation[:, None, None])
        return torch.cat([query_key, heads[:, :, 2:]], 2)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        rotation: Tensor | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """Map x (B, T, D) to (B, T, D).

        The encoder passes `mask` (B, 1, 1, T), which hides padding. The decoder passes no mask.
        See `attend` for `causal` and `weights`, and `project` for `rotation`.
        """
        query, key, value = heads_first(self.project(x, rotation))
        if self.window is None:
            return self.attend(query, key, value, mask=mask, causal=causal, weights=weights)
        # With a window, combine the masks of the window, of padding and of future positions.
        length = x.size(1)
        near = window_mask(length, self.window, x.device)  # (T, T)
        if causal:
            near = near & causal_mask(length, x.device)
        if mask is not None:
            itself = window_mask(length, 0, x.device)
            # A row that allows no key would give NaN. So each position may attend to itself.
            near = near & (mask | itself)
        return self.attend(query, key, value, mask=near, weights=weights)


class CrossAttention(MultiHeadAttention):
    """Attention whose queries come from the decoder, and whose keys and values come from the encoder output."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        self.query = Linear(settings.d_model, settings.d_model)
        self.key_value = Linear(settings.d_model, 2 * settings.d_model)  # W^K and W^V in one product

    def keys_values(self, memory: Tensor) -> Tensor:
        """Project the encoder output (B, S, D) to keys and values, (2, B, H, S, D/H)."""
        projected = self.split_heads(self.key_value(memory), 2)  # (B, S, 2, H, D/H)
        return heads_first(projected)

    def forward(
        self,
        x: Tensor,
        cross_kv: Tensor,
        mask: Tensor,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """Map x (B, T, D) to (B, T, D). `cross_kv` comes from `keys_values`; for `mask` and `weights` see `attend`."""
        projected = self.split_heads(self.query(x), 1)  # (B, T, 1, H, D/H)
        (query,) = heads_first(projected)
        key, value = cross_kv
        return self.attend(query, key, value, mask=mask, weights=weights)


def heads_first(projections: Tensor) -> Tensor:
    """Permute the dimensions (B, T, n, H, d) to (n, B, H, T, d)."""
    return projections.permute(2, 0, 3, 1, 4)


def uniform(*shape: int) -> Tensor:
    """Sample a tensor from the uniform distribution with mean 0 and variance 1/shape[-1]."""
    spread = math.sqrt(3 / shape[-1])  # the variance of U(-1, 1) is 1/3
    return torch.empty(shape).uniform_(-1, 1) * spread
