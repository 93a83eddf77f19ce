"""Stages contain what the modules computed, and recording them does not change the model."""

import math

import pytest
import torch
from models import FAMILY, batch, make, name
from torch import nn

from nmt.insight.stages import Recorder, Stage, record_stages
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import Transformer

S, T = 6, 5


def named(stages: list[Stage], stage_name: str) -> list[Stage]:
    return [stage for stage in stages if stage.name == stage_name]


@pytest.mark.parametrize("choices", FAMILY, ids=name)
def test_the_last_stage_is_the_model_s_distribution(choices: dict[str, object]) -> None:
    model = make(**choices)  # type: ignore[arg-type]
    src, tgt = batch((S, T))
    stages, attention, log_probs = record_stages(model, src, tgt)
    with torch.no_grad():
        expected = model(src, tgt)[0].float().log_softmax(-1)
    torch.testing.assert_close(log_probs, expected)
    torch.testing.assert_close(stages[-1].values, expected.exp())
    assert [stage.name for stage in stages[-2:]] == ["Logits", "Probabilities"]
    for stage in stages:
        assert stage.shape[-2:] == tuple(stage.values.shape)
        assert len(stage.axes) == len(stage.shape)
        assert stage.text
        assert stage.section
        sizes = {"B": 1, "S": S, "T": T, "D": 16, "H": 4, "d": 4, "F": 24}
        for axis, size in zip(stage.axes, stage.shape, strict=True):
            assert axis == "V" or size == sizes[axis] or axis == "H"
    weights = attention.cross if len(attention.cross) else attention.encoder
    for row in weights.sum(-1).flatten():
        assert float(row) == pytest.approx(1)


@pytest.mark.parametrize("choices", [one for one in FAMILY if one.get("architecture") != "rnn"], ids=name)
def test_scores_weights_and_masks_belong_together(choices: dict[str, object]) -> None:
    model = make(**choices)  # type: ignore[arg-type]
    stages, attention, _ = record_stages(model, *batch((S, T)))
    scores = [stage for stage in stages if stage.name.startswith("Scores")]
    weights = named(stages, "Attention weights, head 1")
    masks = named(stages, "Mask")
    assert [stage.axes for stage in masks] == ["SS", "TT", "TS"]
    for score, weight, mask, expected in zip(
        scores, weights, masks, (attention.encoder, attention.decoder, attention.cross), strict=True
    ):
        assert torch.equal(weight.values, expected[0, 0, 0])
        torch.testing.assert_close(score.values.softmax(-1), weight.values)
        assert torch.equal(mask.values.bool(), score.values > -math.inf)
    assert torch.equal(
        masks[1].values.bool() | ~torch.ones(T, T, dtype=torch.bool).tril(), torch.ones(T, T).bool()
    ) == (not choices.get("attention_window"))
    assert not (masks[1].values.bool() & ~torch.ones(T, T, dtype=torch.bool).tril()).any(), "nothing sees the future"


def test_stages_are_what_the_formulas_give() -> None:
    model = make(norm="post", activation="relu", positions="sinusoidal", tied_embeddings="none")
    assert isinstance(model, Transformer)
    src, tgt = batch((S, T))
    stages, *_ = record_stages(model, src, tgt)
    with torch.no_grad():
        embedded = model.source_embedding(src)
        x, _ = model.embed(src, model.source_embedding, None, slice(S))
        layer = next(iter(model.encoder))
        query, key, value = (q[:, 0] for q in layer.self_attention.project(x)[0].unbind(1))
        memory, _ = model.encode(src)
        out = model.decode(tgt, *model.encode(src))
    by_name = {(stage.part, stage.name): stage.values for stage in reversed(stages)}
    assert torch.equal(by_name["encoder", "Embedding"], embedded[0])
    assert torch.equal(by_name["encoder", "Embedding + position"], x[0])
    assert torch.equal(by_name["encoder", "Queries, head 1"], query)
    torch.testing.assert_close(by_name["encoder", "Scores QKᵀ/√d, head 1"], query @ key.T / 2)
    merged = by_name["encoder", "Attention weights, head 1"] @ value
    torch.testing.assert_close(by_name["encoder", "Heads merged"][:, :4], merged)
    torch.testing.assert_close(by_name["encoder", "Memory, after all 2 layers"], memory[0])
    torch.testing.assert_close(by_name["decoder", "Decoder output, after all 2 layers"], out[0])


def test_recurrent_stages_are_the_layers_in_order() -> None:
    model = make(architecture="rnn", cell="lstm", attention="additive", tied_embeddings="none")
    assert isinstance(model, RecurrentModel)
    src, tgt = batch((S, T))
    stages, *_ = record_stages(model, src, tgt)
    assert [stage.name for stage in stages] == [
        *("Embedding", "LSTM layer 1", "LSTM layer 2"),
        *("Embedding", "LSTM layer 1", "LSTM layer 2"),
        *("Scores", "Attention weights, head 1", "tanh(W [context; state])", "Logits", "Probabilities"),
    ]
    with torch.no_grad():
        torch.testing.assert_close(stages[2].values, model.start(src).memory[0])


def test_a_recorder_leaves_no_hook_behind() -> None:
    model = make()
    with pytest.raises(RuntimeError, match="stop"), Recorder(model):
        raise RuntimeError("stop")
    assert not any(module._forward_hooks for module in model.modules())
    with Recorder(model) as seen:
        nn.Linear(2, 2)(torch.ones(1, 2)).softmax(-1)
    assert len(seen.scores) == 1
    assert not seen.outputs, "a module of no part of the model"
