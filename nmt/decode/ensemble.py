"""Several models as one: at each step the mean of the probabilities that they give the next piece.

All have the same vocabulary; what they are made of may differ. For search it is a step function like any other,
and its state a list of theirs.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from nmt.model.transformer import Transformer


class Ensemble(nn.Module):
    """Models that translate together.

    Args:
        models: in eval mode, on the same device.
    """

    def __init__(self, models: Sequence[Transformer]) -> None:
        super().__init__()
        self.models = cast(Sequence[Transformer], nn.ModuleList(models))

    @property
    def max_length(self) -> int:
        """The longest sequence that all of them can hold."""
        return min(model.max_length for model in self.models)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Log-probabilities (B, T, V) of the next token at every target position."""
        return log_mean_probs([model(src, tgt_in) for model in self.models])

    def start(self, src: Tensor) -> list[Any]:
        """See `Stepper`."""
        return [model.start(src) for model in self.models]

    def step(self, ids: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """See `Stepper`."""
        steps = [model.step(ids, state) for model, state in zip(self.models, states, strict=True)]
        return log_mean_probs([logits for logits, _ in steps]), [state for _, state in steps]

    def select(self, states: list[Any], rows: Tensor) -> list[Any]:
        """See `Stepper`."""
        return [model.select(state, rows) for model, state in zip(self.models, states, strict=True)]


def log_mean_probs(logits: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean probability: M times (…, V) logits to (…, V), in float32 at least."""
    dtype = torch.promote_types(logits[0].dtype, torch.float32)
    log_probs = torch.stack([x.log_softmax(-1, dtype=dtype) for x in logits])
    return log_probs.logsumexp(0) - math.log(len(logits))
