"""The Transformer equals torch's Transformer with the same weights; attention weights; position tables."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from models import batch, make
from torch import nn

from nmt.model.attention import CrossAttention, SelfAttention
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
