"""Variants of attention: additive scores (Bahdanau et al. 2015) and local windows."""

import torch
from torch import Tensor


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
