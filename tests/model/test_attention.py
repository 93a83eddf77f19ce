"""Attention, positions and dropout, compared with plain implementations of their definitions."""

import cmath
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from nmt.config import ModelSettings
from nmt.model.attention import (
    CrossAttention,
    SelfAttention,
    uniform,
    window_mask,
)
from nmt.model.attention import scaled_dot_product_attention as attend
from nmt.model.kernels import Dropout
from nmt.model.positions import rotary_positions, rotate, sinusoidal_positions

SETTINGS = ModelSettings(d_model=16, n_heads=4)
LENGTHS = torch.tensor([3, 5, 1])[:, None]
MASK = (torch.arange(5) < LENGTHS)[:, None, None]  # (3, 1, 1, 5)


def sentences(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(3, length, 16, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("n_keys", [5, 40])
def test_scaled_dot_product_attention_is_the_formula_in_numpy(n_keys: int) -> None:
    rng = np.random.default_rng(1)
    query = rng.normal(size=(2, 3, 8))
    key = rng.normal(size=(2, n_keys, 8))
    value = rng.normal(size=(2, n_keys, 6))
    products = query @ key.transpose(0, 2, 1)
    exponentials = np.exp(products / math.sqrt(8))
    expected = exponentials / exponentials.sum(2, keepdims=True)
    tensors = torch.tensor(query), torch.tensor(key), torch.tensor(value)
    out, weights = attend(*tensors)
    np.testing.assert_allclose(weights, expected, atol=1e-12)
    np.testing.assert_allclose(out, expected @ value, atol=1e-12)


@pytest.mark.parametrize("options", [{"mask": MASK}, {"causal": True}], ids=["padding", "causal"])
def test_fused_and_written_out_self_attention_are_the_same(options: dict[str, object]) -> None:
    layer = SelfAttention(SETTINGS).double()
    weights: list[torch.Tensor] = []  # a list makes attention write the formula out
    with torch.no_grad():
        fused = layer(sentences(5), **options)
        written_out = layer(sentences(5), **options, weights=weights)
    assert_close(written_out, fused)
    assert weights[0].shape == (3, 4, 5, 5)


def test_fused_and_written_out_cross_attention_are_the_same() -> None:
    layer = CrossAttention(SETTINGS).double()
    weights: list[torch.Tensor] = []
    with torch.no_grad():
        cross_kv = layer.keys_values(sentences(5))
        fused = layer(sentences(4), cross_kv, MASK)
        written_out = layer(sentences(4), cross_kv, MASK, weights)
    assert_close(written_out, fused)
    assert weights[0].shape == (3, 4, 4, 5)


@pytest.mark.parametrize("attention", ["dot", "additive"])
def test_other_attention_is_its_formula_in_each_head(attention: str) -> None:
    layer = SelfAttention(ModelSettings(d_model=16, n_heads=4, attention=attention)).double()
    x = sentences(5)[:1]
    projected = layer.query_key_value(x).view(5, 3, 4, 4)  # (T, 3, H, D/H)
    heads = []
    for head in range(4):
        query, key, value = projected[:, :, head].unbind(1)
        scores = query @ key.T
        if layer.v is not None:
            scores = torch.tanh(query[:, None] + key) @ layer.v[head, 0]  # (T, S)
        heads.append(scores.softmax(-1) @ value)
    expected = layer.output(torch.cat(heads, 1))
    assert_close(layer(x)[0], expected)


def test_a_window_holds_the_positions_that_are_at_most_n_away() -> None:
    expected = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    result = window_mask(3, 1).int().tolist()
    assert result == expected


def test_the_vector_of_additive_attention_begins_with_the_variance_of_its_length() -> None:
    torch.manual_seed(8)
    v = uniform(200, 500)
    assert v.mean().abs() < 1e-3
    result = v.var()
    assert result == pytest.approx(1 / 500, rel=0.02)


# Positions, and numbers i of pairs of elements in a width of 8.
of_positions = pytest.mark.parametrize("position", [0, 1, 49])
of_pairs = pytest.mark.parametrize("i", [0, 1, 3])


def angle_of(position: int, i: int) -> float:
    return float(position / 10_000 ** (2 * i / 8))


@of_positions
@of_pairs
def test_sinusoidal_positions_are_the_papers(position: int, i: int) -> None:
    angle = angle_of(position, i)
    pairs = sinusoidal_positions(50, 8)[position].view(4, 2)
    sine, cosine = pairs[i]
    assert sine == pytest.approx(math.sin(angle), abs=1e-6)
    assert cosine == pytest.approx(math.cos(angle), abs=1e-6)


@of_positions
@of_pairs
def test_rotary_positions_turn_pairs_by_the_papers_angles(position: int, i: int) -> None:
    """Equation 15 of Su et al. 2021, in complex numbers."""
    x = torch.linspace(-2, 3, 8)
    rotated = rotate(x, rotary_positions(50, 8)[position])
    before = complex(*x.view(4, 2)[i])
    after = complex(*rotated.view(4, 2)[i])
    turn = cmath.exp(1j * angle_of(position, i))
    assert after == pytest.approx(before * turn, abs=1e-5)


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    torch.manual_seed(5)
    y = Dropout(0.3)(torch.ones(1000, 333))  # not a multiple of eight, the elements of a random word
    share = (y == 0).float().mean()
    assert share == pytest.approx(0.3, abs=0.005)
    result = y.mean()
    assert result == pytest.approx(1, abs=0.01)


def test_dropout_that_is_off_changes_nothing() -> None:
    x = torch.rand(10, 9)
    assert torch.equal(Dropout(0.0)(x), x)
    in_eval_mode = Dropout(0.3).eval()
    assert torch.equal(in_eval_mode(x), x)


def test_dropout_drops_each_of_the_eight_bytes_of_a_word_alike() -> None:
    torch.manual_seed(6)
    y = Dropout(0.5)(torch.ones(80_000))
    dropped = (y == 0).view(-1, 8)
    shares = dropped.float().mean(0)
    result = shares.tolist()
    assert result == pytest.approx([0.5] * 8, abs=0.02)
