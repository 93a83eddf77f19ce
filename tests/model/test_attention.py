"""Attention, positions and dropout, compared with plain implementations of their definitions."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config import ModelSettings
from nmt.model.attention import CrossAttention, SelfAttention, scaled_dot_product_attention, uniform
from nmt.model.dropout import Dropout
from nmt.model.positions import rotary_positions, rotate, sinusoidal_positions
from nmt.model.recurrent import GlobalAttention
from nmt.model.variants import local_mask


def settings(d_model: int, n_heads: int, **choices: Any) -> ModelSettings:
    return ModelSettings(d_model=d_model, n_heads=n_heads, dropout=0.0, **choices)


def test_scaled_dot_product_attention_is_the_formula_in_numpy() -> None:
    rng = np.random.default_rng(1)
    query, key, value = rng.normal(size=(3, 8)), rng.normal(size=(5, 8)), rng.normal(size=(5, 6))
    scores = query @ key.T / math.sqrt(8)
    weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    out, w = scaled_dot_product_attention(torch.tensor(query), torch.tensor(key), torch.tensor(value))
    np.testing.assert_allclose(w, weights, atol=1e-12)
    np.testing.assert_allclose(out, weights @ value, atol=1e-12)


def test_fused_and_written_out_paths_give_the_same() -> None:
    generator = torch.Generator().manual_seed(4)
    x, memory = (torch.randn(3, n, 16, dtype=torch.float64, generator=generator) for n in (5, 4))
    ones, cross = SelfAttention(settings(16, 4)).double(), CrossAttention(settings(16, 4)).double()
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()[:, None, None]
    weights: list[torch.Tensor] = []
    with torch.no_grad():
        for options in ({"mask": mask}, {"causal": True}):
            torch.testing.assert_close(ones(x, **options, weights=weights), ones(x, **options))
        keys_values = cross.keys_values(memory)
        expected = cross(x, keys_values, mask[..., :4])
        torch.testing.assert_close(cross(x, keys_values, mask[..., :4], weights), expected)
    assert [w.shape[2:] for w in weights] == [(5, 5), (5, 5), (5, 4)]
    assert sum(weights[0][0, 0, 0].tolist()) == pytest.approx(1)


def test_sinusoidal_positions_are_the_papers() -> None:
    table = sinusoidal_positions(50, 8)
    for position in (0, 1, 49):
        for i in range(4):
            angle = position / 10_000 ** (2 * i / 8)
            assert math.isclose(table[position, 2 * i], math.sin(angle), abs_tol=1e-6)
            assert math.isclose(table[position, 2 * i + 1], math.cos(angle), abs_tol=1e-6)


def test_dropout_drops_its_share_keeps_the_mean_and_rests_in_eval_mode() -> None:
    torch.manual_seed(5)
    x = torch.ones(1000, 333)  # not a multiple of eight
    dropout = Dropout(0.3)
    y = dropout(x)
    assert abs((y == 0).float().mean() - 0.3) < 0.005
    assert abs(y.mean() - 1) < 0.01
    assert torch.equal(dropout.eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    torch.testing.assert_close(Dropout(0.25)(x).unique(), torch.tensor([0, 1 / (1 - 0.25)]))


def test_dropout_drops_each_of_the_eight_bytes_of_a_word_alike() -> None:
    torch.manual_seed(6)
    dropped = (Dropout(0.5)(torch.ones(80_000)) == 0).view(-1, 8).float().mean(0)
    assert ((dropped - 0.5).abs() < 0.02).all()


# --- additive and dot-product attention, rotary positions, local windows --------------------------------------


def test_additive_heads_are_the_formula_with_each_heads_slice() -> None:
    attention = CrossAttention(settings(12, 3, attention="additive")).double()
    x, y = (torch.randn(1, n, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in (2, 5))
    weights: list[torch.Tensor] = []
    with torch.no_grad():
        attention(x, attention.keys_values(y), weights=weights)
        q, k = attention.query(x)[0].numpy(), attention.key_value(y)[0, :, :12].numpy()
        v = attention.get_parameter("v").numpy()
    for head in range(3):
        part = slice(4 * head, 4 * head + 4)
        scores = np.array([[v[head, 0] @ np.tanh(a[part] + b[part]) for b in k] for a in q])
        by_hand = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        np.testing.assert_allclose(weights[0][0, head], by_hand, atol=1e-12)


def test_the_vector_of_additive_attention_begins_with_the_variance_of_its_length() -> None:
    torch.manual_seed(8)
    v = uniform(200, 500)
    assert v.mean().abs() < 1e-3
    assert v.var() == pytest.approx(1 / 500, rel=0.02)


@pytest.mark.parametrize("scoring", ["dot", "scaled_dot", "general", "additive"])
def test_attention_of_recurrent_models_is_the_papers_formula(scoring: str) -> None:
    """Equations 5 and 7 of Luong et al. 2015; `scaled_dot` divides by sqrt(d); `additive` is v tanh(W q + W' k + b)."""
    torch.manual_seed(9)
    attention = GlobalAttention(settings(6, 1, architecture="rnn", attention=scoring)).double()
    hidden, memory = torch.randn(1, 2, 6, dtype=torch.float64), torch.randn(1, 5, 6, dtype=torch.float64)
    mask = torch.tensor([[[True, True, True, True, False]]])
    with torch.no_grad():
        out, weights = attention(hidden, attention.key(memory), memory, mask)
    weight = {name: p.detach().numpy() for name, p in attention.named_parameters()}
    q, k = hidden[0].numpy(), memory[0, :4].numpy()
    scores = q @ weight.get("query.weight", np.eye(6)).T @ k.T
    if scoring == "scaled_dot":
        scores = scores / math.sqrt(6)
    if scoring == "additive":
        keys = k @ weight["key.weight"].T + weight["key.bias"]
        scores = np.tanh((q @ weight["query.weight"].T)[:, None] + keys) @ weight["v"]
    by_hand = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(weights[0, :, :4], by_hand, atol=1e-12)
    context = np.concatenate([by_hand @ k, q], 1)
    np.testing.assert_allclose(out[0], np.tanh(context @ weight["output.weight"].T), atol=1e-12)


def test_rotary_positions_turn_pairs_by_the_papers_angles() -> None:
    """Equation 15 of the paper (Su et al. 2021): pair i is rotated by the angle position * 10000^(-2i/d)."""
    x = np.random.default_rng(2).normal(size=(50, 8))
    turned = rotate(torch.tensor(x), rotary_positions(50, 8)).numpy()
    for position in (0, 1, 49):
        for i in range(4):
            angle = position * 10_000 ** (-2 * i / 8)
            matrix = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            by_hand = np.array(matrix) @ x[position, 2 * i : 2 * i + 2]
            np.testing.assert_allclose(turned[position, 2 * i : 2 * i + 2], by_hand, atol=1e-6)


def test_the_product_of_turned_vectors_knows_their_distance_alone() -> None:
    query, key = torch.randn(2, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    rotation = rotary_positions(60, 8)
    queries, keys = (rotate(x.expand(60, 8), rotation) for x in (query, key))
    products = queries @ keys.T  # (60, 60), for every pair of positions
    for distance in range(-59, 60):
        of_distance = products.diagonal(distance)
        torch.testing.assert_close(of_distance, of_distance[:1].expand_as(of_distance), atol=1e-5, rtol=0)
    assert products[0].std() > 0.1, "and does know that"


def test_local_mask_by_hand() -> None:
    real = torch.tensor([[True, True, True, True]])
    rows = local_mask(4, 1, False, real).int().tolist()
    assert rows == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    rows = local_mask(4, 2, True, real).int().tolist()
    assert rows == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]
    rows = local_mask(4, 1, False, torch.tensor([[True, True, False, False]])).int().tolist()
    assert rows == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
