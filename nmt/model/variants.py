"""A variant of attention: additive scores (Bahdanau et al. 2015)."""

import torch
from torch import Tensor


def additive_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """v tanh(q + k) for each projected query and key (Bahdanau et al. 2015, section A.1.2): (..., T, S).

    query is (..., T, d), key (..., S, d), v (d,) or broadcastable to (..., T, d). The sum q + k is (..., T, S, d).
    """
    return (torch.tanh(query[..., :, None, :] + key[..., None, :, :]) @ v[..., None])[..., 0]
