"""The recurrent model, compared with torch's layers and the formulas of attention."""

import math
from typing import Any

import pytest
import torch
from models import RNNS, batch, make, name
from torch import Tensor
from torch.testing import assert_close

from nmt.model.recurrent import RecurrentModel


@pytest.mark.parametrize("choices", RNNS, ids=name)
def test_logits_are_those_of_the_formulas(choices: dict[str, Any]) -> None:
    model = make(**choices)
    assert isinstance(model, RecurrentModel)
    src, tgt = batch((7, 5))
    with torch.no_grad():
        memory = 4 * model.source_embedding(src)  # 4 is sqrt(D)
        hidden = 4 * model.target_embedding(tgt)
        for encoder, decoder in zip(model.encoder, model.decoder, strict=True):
            memory, state = encoder.cell(memory)
            hidden, _ = decoder.cell(hidden, directions_joined(state))
        if model.look is not None:
            weights = luong_scores(model.look, hidden, memory).softmax(-1)  # (B, T, S)
            both = torch.cat([weights @ memory, hidden], -1)
            hidden = torch.tanh(both @ model.look.output.weight.T)
        logits = hidden @ model.projection.weight.T
        assert_close(model(src, tgt), logits)


def directions_joined(state: Any) -> Any:
    """Join the states of both directions, (2, B, D/2), of an LSTM (two tensors) or a GRU (one)."""
    if isinstance(state, tuple):
        return tuple(map(directions_joined, state))
    forward, backward = state
    return torch.cat([forward, backward], -1)[None]


def luong_scores(look: Any, hidden: Tensor, memory: Tensor) -> Any:
    """Return the scores (B, T, S) of a kind of attention."""
    if look.scoring == "additive":
        query = hidden @ look.query.weight.T
        key = memory @ look.key.weight.T + look.key.bias
        both = query[:, :, None] + key[:, None]  # (B, T, S, D)
        return torch.tanh(both) @ look.v
    if look.scoring == "general":
        return hidden @ look.query.weight.T @ memory.mT
    scores = hidden @ memory.mT
    if look.scoring == "scaled_dot":
        scores = scores / math.sqrt(16)
    return scores
