"""Variants of attention: additive scores (Bahdanau et al. 2015) and local windows."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

MIN_BLOCK = 32  # minimum number of queries per block of local attention


def additive_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """v tanh(q + k) for each projected query and key (Bahdanau et al. 2015, section A.1.2): (..., T, S).

    query is (..., T, d), key (..., S, d), v (d,) or broadcastable to (..., T, d). The sum q + k is (..., T, S, d).
    """
    return (torch.tanh(query[..., :, None, :] + key[..., None, :, :]) @ v[..., None])[..., 0]


def local_mask(length: int, window: int, causal: bool, is_token: Tensor) -> Tensor:
    """Local mask: a position attends to itself and to tokens at most `window` away; if `causal`, not to later tokens.

    is_token is (..., 1, T) bool, False at padding; the mask is (..., T, T) bool. Padding attends to itself, because a
    softmax over no key is NaN.
    """
    ones = torch.ones(length, length, dtype=torch.bool, device=is_token.device)
    near = ones.tril(0 if causal else window).triu(-window)
    return near & (is_token | ones.tril().triu())


def local_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    window: int,
    causal: bool,
    is_token: Tensor,
    attention: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
) -> Tensor:
    """Attention with `local_mask` in time and memory linear in T: each block of queries sees only the keys in reach.

    Args:
        query, key, value: (B, H, T, d); the result has the same shape.
        window, causal: see `local_mask`.
        is_token: (B, 1, 1, T) or (1, 1, 1, T) bool.
        attention: computes equation 1 from query, key, value and a bool mask.
    """
    length, block, right = query.size(2), max(window, MIN_BLOCK), 0 if causal else window
    beyond = -length % block  # padding of the last block
    n_keys = window + block + right  # W, keys per block

    def key_blocks(x: Tensor) -> Tensor:  # (B, H, T, d) to (B, H, n, W, d)
        return F.pad(x, (0, 0, window, beyond + right)).unfold(2, n_keys, block).transpose(-1, -2)

    queries = F.pad(query, (0, 0, 0, beyond)).reshape(*query.shape[:2], -1, block, query.size(3))
    query_index = torch.arange(block, device=query.device)[:, None]
    key_index = torch.arange(n_keys, device=query.device) - window
    near = (key_index >= query_index - window) & (key_index <= query_index + right)  # (block, W)
    tokens = key_blocks(is_token.transpose(2, 3)).transpose(3, 4)  # (B, 1, n, 1, W)
    mask = near & (tokens | (key_index == query_index))  # (B, 1, n, block, W)
    out = attention(queries, key_blocks(key), key_blocks(value), mask)  # (B, H, n, block, d)
    return out.flatten(2, 3)[:, :, :length]
