"""The recurrent model, compared with torch's layers and the formulas of attention."""

import math
from typing import Any

import pytest
import torch
from models import RNNS, batch, make, name

from nmt.model.recurrent import RecurrentModel


@pytest.mark.parametrize("choices", RNNS, ids=name)
def test_logits_are_those_of_the_formulas(choices: dict[str, Any]) -> None:
    model, (src, tgt) = make(**choices), batch((7, 5))
    assert isinstance(model, RecurrentModel)
    look, attention = model.look, choices["attention"]
    with torch.no_grad():
        memory, x = 4 * model.source_embedding(src), 4 * model.target_embedding(tgt)
        for encoder, decoder in zip(model.encoder, model.decoder, strict=True):
            memory, last = encoder.cell(memory)
            both = [part.transpose(0, 1).reshape(1, 1, 16) for part in (last if choices["cell"] == "lstm" else [last])]
            x, _ = decoder.cell(x, tuple(both) if choices["cell"] == "lstm" else both[0])
        if look:
            query = x @ look.query.weight.T if attention in ("general", "additive") else x
            scores = query @ memory.mT
            if attention == "additive":
                keys = memory @ look.key.weight.T + look.key.bias
                scores = (query[:, :, None] + keys[:, None]).tanh() @ look.v  # (B, T, S)
            weights = (scores / math.sqrt(16) if attention == "scaled_dot" else scores).softmax(-1)
            x = (torch.cat([weights @ memory, x], -1) @ look.output.weight.T).tanh()
        torch.testing.assert_close(model(src, tgt), x @ model.projection.weight.T)
