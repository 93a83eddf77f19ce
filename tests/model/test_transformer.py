"""The Transformer equals torch's Transformer with the same weights; attention weights; position tables."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from models import batch, make
from torch import nn

from nmt.model.attention import CrossAttention, SelfAttention, window_mask
from nmt.model.kernels import Linear
from nmt.model.transformer import ACTIVATIONS, Transformer
from nmt.text import PAD


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_equals_torchs_transformer_with_the_same_weights(norm: str, activation: str) -> None:
    ours = make(norm=norm, activation=activation, n_decoder_layers=3)
    assert isinstance(ours, Transformer)
    common = {"dropout": 0.0, "activation": ACTIVATIONS[activation], "batch_first": True, "norm_first": norm == "pre"}
    encoder_layer = nn.TransformerEncoderLayer(16, 4, 24, dtype=torch.float64, **common)  # type: ignore[arg-type]
    decoder_layer = nn.TransformerDecoderLayer(16, 4, 24, dtype=torch.float64, **common)  # type: ignore[arg-type]
    pre = norm == "pre"  # nn.Transformer always has final norms, `Transformer` only with pre-norm
    encoder = nn.TransformerEncoder(encoder_layer, 2, nn.LayerNorm(16).double() if pre else None, False)
    decoder = nn.TransformerDecoder(decoder_layer, 3, nn.LayerNorm(16).double() if pre else None)
    with torch.no_grad():
        for theirs, mine in zip(encoder.layers, ours.encoder, strict=True):
            copy_attention(theirs.self_attn, mine.self_attention)
            copy_rest(theirs, mine, ["self_attention_residual", "feed_forward_residual"])
        for theirs, mine_ in zip(decoder.layers, ours.decoder, strict=True):
            copy_attention(theirs.self_attn, mine_.self_attention)
            copy_attention(theirs.multihead_attn, mine_.cross_attention)
            copy_rest(theirs, mine_, ["self_attention_residual", "cross_attention_residual", "feed_forward_residual"])
        if pre:
            encoder.norm.load_state_dict(ours.encoder_norm.state_dict())  # type: ignore[union-attr]
            decoder.norm.load_state_dict(ours.decoder_norm.state_dict())  # type: ignore[union-attr]
    src, tgt = batch((7, 5), (4, 9), (1, 1))
    embed = ours.source_embedding.weight * 16**0.5
    positions = ours.source_positions if ours.sinusoids is None else ours.sinusoids
    assert positions is not None
    causal = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), dtype=torch.float64)
    encoder.eval(), decoder.eval()
    memory = encoder(embed[src] + positions[: src.size(1)], src_key_padding_mask=src == PAD)
    hidden = decoder(embed[tgt] + positions[: tgt.size(1)], memory, tgt_mask=causal, memory_key_padding_mask=src == PAD)
    real = tgt != PAD
    torch.testing.assert_close(ours(src, tgt)[real], (hidden @ ours.projection.weight.T)[real])


def copy_attention(theirs: nn.MultiheadAttention, ours: SelfAttention | CrossAttention) -> None:
    parts = [ours.query_key_value] if isinstance(ours, SelfAttention) else [ours.query, ours.key_value]
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def copy_rest(theirs: Any, ours: Any, residuals: list[str]) -> None:
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    for number, name in enumerate(residuals, 1):
        getattr(theirs, f"norm{number}").load_state_dict(getattr(ours, name).norm.state_dict())


def test_bf16_matmuls_on_a_cpu_have_few_shapes_and_the_same_results() -> None:
    layer, n_rows = Linear(24, 40), set()
    for n in range(1, 2049, 7):
        x = torch.randn(n, 1, 24, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16), patch("torch.nn.functional.linear", wraps=F.linear) as products:
            results = [layer(x), F.linear(x, layer.weight, layer.bias)]
        n_rows.add(len(products.call_args_list[0].args[0]))
        found = [(y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])) for y in results]
        for rounded, plain in zip(*found, strict=True):
            torch.testing.assert_close(rounded, plain, rtol=0.02, atol=0.02 * float(plain.detach().abs().max()))
    assert len(n_rows) < 25
    with torch.autocast("cpu", torch.bfloat16):  # no position is a token if a replica gets no pair
        assert layer(torch.ones(0, 24)).shape == (0, 40)


def windowed(n_layers: int) -> Transformer:
    """A model whose self-attention reaches one position to each side in each layer."""
    model = make(attention_window=1, n_encoder_layers=n_layers, n_decoder_layers=n_layers)
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize("n_layers", [1, 2])
def test_a_source_token_outside_the_window_cannot_change_the_memory(n_layers: int) -> None:
    model = windowed(n_layers)
    src, _ = batch((9, 2))
    changed = src.clone()
    changed[0, 4] += 1
    with torch.no_grad():
        before, _ = model.encode(src)
        after, _ = model.encode(changed)
    is_changed = (before[0] != after[0]).any(1)
    reached = range(4 - n_layers, 4 + n_layers + 1)  # each layer adds one position to each side
    assert is_changed.nonzero().flatten().tolist() == list(reached)


@pytest.mark.parametrize("n_layers", [1, 2])
def test_a_target_token_outside_the_window_cannot_change_a_logit(n_layers: int) -> None:
    model = windowed(n_layers)
    src, tgt = batch((5, 9))
    changed = tgt.clone()
    changed[0, 3] += 1
    with torch.no_grad():
        is_changed = (model(src, tgt)[0] != model(src, changed)[0]).any(1)
    reached = range(3, 3 + n_layers + 1)
    assert is_changed.nonzero().flatten().tolist() == list(reached)


def test_attention_weights_outside_the_window_are_zero() -> None:
    model = make(attention_window=2)
    weights = model.attention(*batch((9, 8)))
    is_far_source = ~window_mask(9, 2)
    is_far_target = ~window_mask(8, 2)
    assert (weights.encoder[..., is_far_source] == 0).all()
    assert (weights.decoder[..., is_far_target] == 0).all()
    assert (weights.cross > 0).all(), "cross-attention is not truncated"


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_window_as_wide_as_the_sentences_changes_nothing(positions: str) -> None:
    src, tgt = batch((12, 10), (8, 9))
    wide = make(attention_window=12, positions=positions)
    full = make(positions=positions)
    torch.testing.assert_close(wide(src, tgt), full(src, tgt))


def test_positions_in_the_window_are_those_at_most_n_away() -> None:
    expected = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert window_mask(4, 1).int().tolist() == expected
