"""An ensemble: the mean of the probabilities that several models give the next token.

The models share one vocabulary; their architectures may differ.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nmt.decode.search import IncrementalDecoder


class EnsembleDecoder:
    """Several decoders as one, see `IncrementalDecoder`; its state is the list of their states."""

    def __init__(self, decoders: Sequence[IncrementalDecoder[Any]]) -> None:
        self.decoders = decoders

    def start(self, src: Tensor) -> list[Any]:
        """See `IncrementalDecoder`."""
        return [decoder.start(src) for decoder in self.decoders]

    def step(self, tokens: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """See `IncrementalDecoder`; the logits are log-probabilities."""
        steps = [decoder.step(tokens, state) for decoder, state in zip(self.decoders, states, strict=True)]
        return log_mean_probs([logits for logits, _ in steps]), [state for _, state in steps]

    def select(self, states: list[Any], beam_indices: Tensor) -> list[Any]:
        """See `IncrementalDecoder`."""
        pairs = zip(self.decoders, states, strict=True)
        return [decoder.select(state, beam_indices) for decoder, state in pairs]


def log_mean_probs(logits: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean probability: M times (..., V) logits to (..., V), in float32 at least."""
    dtype = torch.promote_types(logits[0].dtype, torch.float32)
    log_probs = torch.stack([x.log_softmax(-1, dtype=dtype) for x in logits])  # (M, ..., V)
    return log_probs.logsumexp(0) - math.log(len(logits))
