"""Attention against the formula by hand, and positions against their definition."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nmt.model.attention import (
    CrossAttention,
    SelfAttention,
    causal_mask,
    scaled_dot_product_attention,
    sinusoidal_positions,
    unbound,
)
from nmt.model.dropout import Dropout


def test_scaled_dot_product_attention_is_the_formula_in_numpy() -> None:
    rng = np.random.default_rng(1)
    query, key, value = rng.normal(size=(3, 8)), rng.normal(size=(5, 8)), rng.normal(size=(5, 6))
    scores = query @ key.T / math.sqrt(8)
    weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    out, w = scaled_dot_product_attention(torch.tensor(query), torch.tensor(key), torch.tensor(value))
    np.testing.assert_allclose(w, weights, atol=1e-12)
    np.testing.assert_allclose(out, weights @ value, atol=1e-12)


def test_it_equals_torchs_fused_kernel_under_any_mask() -> None:
    generator = torch.Generator().manual_seed(2)
    query, key, value = (torch.randn(2, 3, 7, 4, dtype=torch.float64, generator=generator) for _ in range(3))
    mask = torch.rand(2, 1, 7, 7, generator=generator) < 0.5
    mask[..., 0] = True
    out, _ = scaled_dot_product_attention(query, key, value, mask)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(query, key, value, attn_mask=mask))


def test_masked_positions_get_no_weight_and_rows_sum_to_one() -> None:
    x = torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(3))
    mask = causal_mask(6)
    _, weights = scaled_dot_product_attention(x, x, x, mask)
    assert (weights[..., ~mask] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 6))


def test_causal_mask_lets_a_position_see_itself_and_the_past() -> None:
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_each_head_gets_its_slice() -> None:
    attention = CrossAttention(12, 3, 0.0)
    x = torch.arange(2 * 5 * 24.0).view(2, 5, 24)
    keys, values = unbound(attention.split(x, 2))
    assert keys.shape == values.shape == (2, 3, 5, 4)
    assert torch.equal(keys[1, 2, 3], x[1, 3, 8:12])
    assert torch.equal(values[1, 2, 3], x[1, 3, 20:24])


def test_fused_and_written_out_paths_give_the_same() -> None:
    generator = torch.Generator().manual_seed(4)
    x, memory = (torch.randn(3, n, 16, dtype=torch.float64, generator=generator) for n in (5, 4))
    ones, cross = SelfAttention(16, 4, 0.0).double(), CrossAttention(16, 4, 0.0).double()
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
    assert "p=0.3" in repr(dropout)


def test_dropout_drops_each_of_the_eight_bytes_of_a_word_alike() -> None:
    torch.manual_seed(6)
    dropped = (Dropout(0.5)(torch.ones(80_000)) == 0).view(-1, 8).float().mean(0)
    assert ((dropped - 0.5).abs() < 0.02).all()


def test_dropout_is_decided_by_the_seed_alone() -> None:
    torch.manual_seed(7)
    first = Dropout(0.5)(torch.ones(100))
    torch.manual_seed(7)
    assert torch.equal(Dropout(0.5)(torch.ones(100)), first)
