"""Stages contain what the modules computed, and recording them does not change the model."""

import ast
import math
from typing import Any

import pytest
import torch
from models import FAMILY, RNNS, TRANSFORMERS, V, batch, make, name
from torch import nn

from nmt.insight.stages import Recorder, Stage, decoder_cache, excerpts, record_stages
from nmt.model.base import AttentionWeights, Seq2Seq
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import Transformer

S, T = 6, 5


# Of the models of `make`.
SIZES = {"B": 1, "S": S, "T": T, "D": 16, "H": 4, "d": 4, "F": 24, "V": V}
NOT_RECURRENT = [choices for choices in FAMILY if choices.get("architecture") != "rnn"]
each_model = pytest.mark.parametrize("choices", FAMILY, ids=name)
each_transformer = pytest.mark.parametrize("choices", NOT_RECURRENT, ids=name)


def numbers(tokens: list[int]) -> list[str]:
    return list(map(str, tokens))


def recorded(model: Seq2Seq) -> tuple[list[Stage], AttentionWeights]:
    return record_stages(model, *batch((S, T)), numbers)


@each_model
def test_the_last_stage_is_the_model_s_distribution(choices: dict[str, Any]) -> None:
    model = make(**choices)
    (*_, logits, probabilities), _ = recorded(model)
    assert [logits.name, probabilities.name] == ["Logits", "Probabilities"]
    with torch.no_grad():
        logits_of_model = model(*batch((S, T)))  # (1, T, V)
    expected = logits_of_model[0].float().softmax(-1)  # (T, V)
    # All tokens have a column here, the most probable first.
    columns = list(map(int, probabilities.columns or []))
    result = sorted(columns)
    assert result == list(range(V))
    torch.testing.assert_close(probabilities.values, expected[:, columns])
    most_probable = probabilities.values.argmax(1)
    assert torch.equal(logits.values.argmax(1), most_probable)


@each_model
def test_each_stage_has_the_sizes_of_its_axes(choices: dict[str, Any]) -> None:
    stages, _ = recorded(make(**choices))
    for stage in stages:
        sizes = [SIZES[axis] for axis in stage.axes]
        assert list(stage.shape) == sizes
        assert stage.shape[-2:] == stage.values.shape


@each_transformer
def test_scores_weights_and_masks_belong_together(choices: dict[str, Any]) -> None:
    stages, attention = recorded(make(**choices))
    scores = [stage.values for stage in stages if stage.name.startswith("Scores")]
    weights = [stage.values for stage in stages if stage.name.startswith("Attention weights")]
    masks = [stage.values.bool() for stage in stages if stage.name == "Mask"]
    expected = [attention.encoder, attention.decoder, attention.cross]
    for i, all_weights in enumerate(expected):
        assert torch.equal(weights[i], all_weights[0, 0, 0])
        torch.testing.assert_close(scores[i].softmax(-1), weights[i])
        assert torch.equal(masks[i], scores[i] > -math.inf)


@pytest.fixture(scope="module")
def post_norm() -> Transformer:
    model = make(**{**TRANSFORMERS[0], "norm": "post", "tied_embeddings": "none"})
    assert isinstance(model, Transformer)
    return model


@pytest.fixture(scope="module")
def stages(post_norm: Transformer) -> dict[str, torch.Tensor]:
    """The values of the stages by part and name."""
    found, _ = recorded(post_norm)
    return {f"{stage.part}: {stage.name}": stage.values for stage in reversed(found)}


def test_embeddings_are_what_the_formulas_give(post_norm: Transformer, stages: dict[str, torch.Tensor]) -> None:
    src, _ = batch((S, T))
    with torch.no_grad():
        embedded = post_norm.source_embedding(src)
        x, _ = post_norm.embed(src, post_norm.source_embedding, None, slice(S))
    assert torch.equal(stages["encoder: Embedding"], embedded[0])
    assert torch.equal(stages["encoder: Embedding + position"], x[0])


def test_attention_is_what_the_formulas_give(post_norm: Transformer, stages: dict[str, torch.Tensor]) -> None:
    src, _ = batch((S, T))
    layer = next(iter(post_norm.encoder))
    with torch.no_grad():
        x, _ = post_norm.embed(src, post_norm.source_embedding, None, slice(S))
        projected = layer.self_attention.project(x)[0]
    query, key, value = projected[:, :, 0].unbind(1)  # of head 1: (S, D/H)
    assert torch.equal(stages["encoder: Queries, head 1"], query)
    scores = query @ key.T / 2
    torch.testing.assert_close(stages["encoder: Scores QKᵀ/√d, head 1"], scores)
    # The values of head 1 are the first D/H of the D numbers.
    merged = stages["encoder: Attention weights, head 1"] @ value
    torch.testing.assert_close(stages["encoder: Heads merged"][:, :4], merged)


@each_transformer
def test_the_cache_has_the_keys_and_values_of_a_full_pass(choices: dict[str, Any]) -> None:
    model = make(**choices)
    shapes, added = decoder_cache(model, *batch((S, T)))
    # The token itself, and those of its window.
    n_kept = choices.get("attention_window", T) + 1
    for t, shape in enumerate(shapes, 1):
        assert shape == (2, 1, 4, min(t, n_kept), 4)
    assert len(shapes) == T
    keys, values = added
    all_stages, _ = recorded(model)
    in_box = [stage for stage in all_stages if stage.box == "self-attention"]
    stages = {stage.name: stage.values for stage in in_box}
    torch.testing.assert_close(values, stages["Values, head 1"])
    if choices.get("positions") != "rotary":  # the stage has keys before they are rotated
        torch.testing.assert_close(keys, stages["Keys, head 1"])


@pytest.mark.parametrize("choices", RNNS, ids=name)
def test_the_state_of_a_recurrent_model_is_that_of_a_full_pass(choices: dict[str, Any]) -> None:
    model = make(**choices)
    assert isinstance(model, RecurrentModel)
    src, tgt_in = batch((S, T))
    shapes, added = decoder_cache(model, src, tgt_in)
    n_states = 2 if choices["cell"] == "lstm" else 1
    assert shapes == [(n_states, 1, 16)] * T
    with torch.no_grad():
        hidden, _ = model.decode(tgt_in, model.start(src).layers)
    torch.testing.assert_close(added[0], hidden[0])


@pytest.mark.parametrize(("function", "excerpt"), excerpts().items())
def test_excerpts_are_code_without_docstrings(function: str, excerpt: tuple[str, str]) -> None:
    _, source = excerpt
    (parsed,) = ast.parse(source).body
    assert isinstance(parsed, ast.FunctionDef)
    assert function.endswith(parsed.name)
    assert ast.get_docstring(parsed) is None


def test_a_recorder_leaves_no_hook_behind() -> None:
    model = make()
    with pytest.raises(RuntimeError, match="stop"), Recorder(model):
        raise RuntimeError("stop")
    assert not any(module._forward_hooks for module in model.modules())


def test_a_recorder_sees_the_modules_of_its_model_only() -> None:
    with Recorder(make()) as seen:
        x = nn.Linear(2, 2)(torch.ones(1, 2))
        x.softmax(-1)
    assert len(seen.scores) == 1
    assert not seen.outputs
