"""Attention, positions and dropout, compared with plain implementations of their definitions."""

import math

import numpy as np
import pytest
import torch

from nmt.config import ModelSettings
from nmt.model.attention import CrossAttention, SelfAttention, scaled_dot_product_attention, uniform
from nmt.model.kernels import Dropout
from nmt.model.positions import rotary_positions, rotate, sinusoidal_positions


@pytest.mark.parametrize("n_keys", [5, 40])
def test_scaled_dot_product_attention_is_the_formula_in_numpy(n_keys: int) -> None:
    rng = np.random.default_rng(1)
    query, key, value = (rng.normal(size=(2, *size)) for size in ((3, 8), (n_keys, 8), (n_keys, 6)))
    scores = query @ key.transpose(0, 2, 1) / math.sqrt(8)
    weights = np.exp(scores) / np.exp(scores).sum(2, keepdims=True)
    out, w = scaled_dot_product_attention(torch.tensor(query), torch.tensor(key), torch.tensor(value))
    np.testing.assert_allclose(w, weights, atol=1e-12)
    np.testing.assert_allclose(out, weights @ value, atol=1e-12)


def test_fused_and_written_out_paths_give_the_same() -> None:
    generator = torch.Generator().manual_seed(4)
    x, memory = (torch.randn(3, n, 16, dtype=torch.float64, generator=generator) for n in (5, 4))
    settings = ModelSettings(d_model=16, n_heads=2)
    ones, cross = SelfAttention(settings).double(), CrossAttention(settings).double()
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


@pytest.mark.parametrize("kind", ["dot", "additive"])
def test_other_attention_is_its_formula_in_each_head(kind: str) -> None:
    layer = SelfAttention(ModelSettings.model_validate({"d_model": 16, "n_heads": 4, "attention": kind})).double()
    x = torch.randn(1, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    parts, heads = [part[0].split(4, 1) for part in layer.query_key_value(x).chunk(3, 2)], []
    for i, (query, key, value) in enumerate(zip(*parts, strict=True)):
        scores = query @ key.T
        if kind == "additive":
            assert layer.v is not None
            scores = (query[:, None] + key).tanh() @ layer.v[i, 0]
        heads.append(scores.softmax(-1) @ value)
    torch.testing.assert_close(layer(x)[0], layer.output(torch.cat(heads, 1)))


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


def test_the_vector_of_additive_attention_begins_with_the_variance_of_its_length() -> None:
    torch.manual_seed(8)
    v = uniform(200, 500)
    assert v.mean().abs() < 1e-3
    assert v.var() == pytest.approx(1 / 500, rel=0.02)


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
