"""Stages contain what the modules computed, and recording them does not change the model."""

import ast
import math
from typing import Any

import pytest
import torch
from models import FAMILY, TRANSFORMERS, V, batch, make, name
from torch import nn

from nmt.insight.stages import Recorder, Stage, decoder_cache, excerpts, record_stages
from nmt.model.attention import causal_mask, window_mask
from nmt.model.base import AttentionWeights, Seq2Seq
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import Transformer

S, T = 6, 5


def recorded(model: Seq2Seq) -> tuple[list[Stage], AttentionWeights]:
    return record_stages(model, *batch((S, T)), lambda tokens: list(map(str, tokens)))


@pytest.mark.parametrize("choices", FAMILY, ids=name)
def test_the_last_stage_is_the_model_s_distribution(choices: dict[str, Any]) -> None:
    model = make(**choices)
    stages, attention = recorded(model)
    with torch.no_grad():
        expected = model(*batch((S, T)))[0].float().softmax(-1)  # (T, V)
    assert [stage.name for stage in stages[-2:]] == ["Logits", "Probabilities"]
    columns = list(map(int, stages[-1].columns or []))
    assert sorted(columns) == list(range(V))
    torch.testing.assert_close(stages[-1].values, expected[:, columns])
    assert torch.equal(stages[-2].values.argmax(1), stages[-1].values.argmax(1))
    for stage in stages:
        assert stage.shape[-2:] == tuple(stage.values.shape)
        sizes = {"B": 1, "S": S, "T": T, "D": 16, "H": 4, "d": 4, "F": 24, "V": V}
        assert stage.shape == tuple(sizes[axis] for axis in stage.axes)
    weights = attention.cross if len(attention.cross) else attention.encoder
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@pytest.mark.parametrize("choices", [one for one in FAMILY if one.get("architecture") != "rnn"], ids=name)
def test_scores_weights_and_masks_belong_together(choices: dict[str, Any]) -> None:
    stages, attention = recorded(make(**choices))
    scores, weights, masks = (
        [stage for stage in stages if stage.name.startswith(start)] for start in ("Scores", "Attention weights", "Mask")
    )
    assert [stage.axes for stage in masks] == ["SS", "TT", "TS"]
    expected = (attention.encoder, attention.decoder, attention.cross)
    for score, weight, mask, all_weights in zip(scores, weights, masks, expected, strict=True):
        assert torch.equal(weight.values, all_weights[0, 0, 0])
        torch.testing.assert_close(score.values.softmax(-1), weight.values)
        assert torch.equal(mask.values.bool(), score.values > -math.inf)
    seen = masks[1].values.bool()
    expected_mask = causal_mask(T)
    if window := choices.get("attention_window"):
        expected_mask &= window_mask(T, window)
        assert torch.equal(masks[0].values.bool(), window_mask(S, window))
    assert torch.equal(seen, expected_mask), "the past within the window, nothing of the future"


def test_stages_are_what_the_formulas_give() -> None:
    model = make(**TRANSFORMERS[0] | {"norm": "post", "tied_embeddings": "none"})
    assert isinstance(model, Transformer)
    src, tgt = batch((S, T))
    stages, _ = recorded(model)
    with torch.no_grad():
        embedded = model.source_embedding(src)
        x, _ = model.embed(src, model.source_embedding, None, slice(S))
        layer = next(iter(model.encoder))
        query, key, value = (q[:, 0] for q in layer.self_attention.project(x)[0].unbind(1))
        memory = model.encode(src)
        out = model.decode(tgt, *memory)
    by_name = {(stage.part, stage.name): stage.values for stage in reversed(stages)}
    assert torch.equal(by_name["encoder", "Embedding"], embedded[0])
    assert torch.equal(by_name["encoder", "Embedding + position"], x[0])
    assert torch.equal(by_name["encoder", "Queries, head 1"], query)
    torch.testing.assert_close(by_name["encoder", "Scores QKᵀ/√d, head 1"], query @ key.T / 2)
    merged = by_name["encoder", "Attention weights, head 1"] @ value
    torch.testing.assert_close(by_name["encoder", "Heads merged"][:, :4], merged)
    torch.testing.assert_close(by_name["encoder", "Memory, after all 2 layers"], memory[0][0])
    torch.testing.assert_close(by_name["decoder", "Decoder output, after all 2 layers"], out[0])


@pytest.mark.parametrize("choices", FAMILY, ids=name)
def test_the_cache_has_what_a_full_pass_computes(choices: dict[str, Any]) -> None:
    model = make(**choices)
    src, tgt = batch((S, T))
    shapes, added = decoder_cache(model, src, tgt)
    if isinstance(model, RecurrentModel):
        n_states = 2 if choices["cell"] == "lstm" else 1
        assert shapes == [(n_states, 1, 16)] * T
        with torch.no_grad():
            hidden, _ = model.decode(tgt, model.start(src).layers)
        torch.testing.assert_close(added[0], hidden[0])
        return
    n_kept = choices.get("attention_window", T) + 1  # the token itself, and those of its window
    assert shapes == [(2, 1, 4, min(t, n_kept), 4) for t in range(1, T + 1)]
    stages = {stage.name: stage.values for stage in recorded(model)[0] if stage.box == "self-attention"}
    torch.testing.assert_close(added[1], stages["Values, head 1"])
    if choices.get("positions") != "rotary":  # the stage has keys before they are rotated
        torch.testing.assert_close(added[0], stages["Keys, head 1"])


def test_excerpts_are_code_without_docstrings() -> None:
    for qualified, (_, source) in excerpts().items():
        (function,) = ast.parse(source).body
        assert isinstance(function, ast.FunctionDef)
        assert function.name == qualified.split(".")[-1]
        assert ast.get_docstring(function) is None


def test_a_recorder_leaves_no_hook_behind() -> None:
    model = make()
    with pytest.raises(RuntimeError, match="stop"), Recorder(model):
        raise RuntimeError("stop")
    assert not any(module._forward_hooks for module in model.modules())
    with Recorder(model) as seen:
        nn.Linear(2, 2)(torch.ones(1, 2)).softmax(-1)
    assert len(seen.scores) == 1
    assert not seen.outputs, "a module of no part of the model"
