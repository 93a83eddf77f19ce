"""The Transformer equals torch's Transformer with the same weights; truncated attention; bf16 matmuls."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from models import batch, make
from torch import Tensor, nn
from torch.testing import assert_close

from nmt.model.attention import CrossAttention, SelfAttention, window_mask
from nmt.model.kernels import Linear
from nmt.model.transformer import ACTIVATIONS, Transformer
from nmt.text import BOS, PAD


def transformer(**choices: Any) -> Transformer:
    model = make(**choices)
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_equals_torchs_transformer_with_the_same_weights(norm: str, activation: str) -> None:
    # 1. Two models with the same weights.
    ours = transformer(norm=norm, activation=activation, n_decoder_layers=3)
    theirs = torchs_transformer(norm, activation)
    with torch.no_grad():
        copy_weights(ours, theirs)
    # 2. Both read the same sentences. torch's model has neither embeddings nor a projection.
    src, tgt = batch((7, 5), (4, 9), (1, 1))
    assert ours.sinusoids is not None
    embedding = ours.source_embedding.weight * 16**0.5
    n_source, n_target = src.size(1), tgt.size(1)
    source = embedding[src] + ours.sinusoids[:n_source]
    target = embedding[tgt] + ours.sinusoids[:n_target]
    causal = nn.Transformer.generate_square_subsequent_mask(n_target, dtype=torch.float64)
    padding = src == PAD
    memory = theirs.encoder(source, src_key_padding_mask=padding)
    hidden = theirs.decoder(target, memory, tgt_mask=causal, memory_key_padding_mask=padding)
    # 3. The logits of real tokens are the same.
    logits = hidden @ ours.projection.weight.T
    is_token = tgt != PAD
    our_logits = ours(src, tgt)
    assert_close(our_logits[is_token], logits[is_token])


def torchs_transformer(norm: str, activation: str) -> Any:
    options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "dtype": torch.float64}
    options |= {"norm_first": norm == "pre", "activation": ACTIVATIONS[activation]}
    layer = nn.TransformerEncoderLayer(16, 4, 24, **options)
    final_norm = nn.LayerNorm(16).double()
    encoder = nn.TransformerEncoder(layer, 2, final_norm, enable_nested_tensor=False)
    model: Any = nn.Transformer(16, 4, 2, 3, 24, custom_encoder=encoder, **options)
    model.eval()
    if norm == "post":  # torch's model always has final norms, ours only with pre-norm
        model.encoder.norm = model.decoder.norm = None
    return model


def copy_weights(ours: Any, theirs: Any) -> None:
    for our_layer, layer in zip(ours.encoder, theirs.encoder.layers, strict=True):
        copy_layer(our_layer, layer)
        copy(our_layer.feed_forward_residual.norm, layer.norm2)
    for our_layer, layer in zip(ours.decoder, theirs.decoder.layers, strict=True):
        copy_layer(our_layer, layer)
        copy_attention(our_layer.cross_attention, layer.multihead_attn)
        copy(our_layer.cross_attention_residual.norm, layer.norm2)
        copy(our_layer.feed_forward_residual.norm, layer.norm3)
    if theirs.encoder.norm is not None:
        copy(ours.encoder_norm, theirs.encoder.norm)
        copy(ours.decoder_norm, theirs.decoder.norm)


def copy_layer(ours: Any, theirs: Any) -> None:
    """Copy what both kinds of layer have, the norm of the feed-forward network aside."""
    copy_attention(ours.self_attention, theirs.self_attn)
    copy(ours.self_attention_residual.norm, theirs.norm1)
    copy(ours.feed_forward.inner, theirs.linear1)
    copy(ours.feed_forward.outer, theirs.linear2)


def copy(ours: nn.Module, theirs: nn.Module) -> None:
    theirs.load_state_dict(ours.state_dict())


def copy_attention(ours: SelfAttention | CrossAttention, theirs: nn.MultiheadAttention) -> None:
    projections = [ours.query_key_value] if isinstance(ours, SelfAttention) else [ours.query, ours.key_value]
    weights: list[Tensor] = [linear.weight for linear in projections]
    biases: list[Tensor] = [linear.bias for linear in projections]
    theirs.in_proj_weight.copy_(torch.cat(weights))
    theirs.in_proj_bias.copy_(torch.cat(biases))
    copy(ours.output, theirs.out_proj)


# --- truncated self-attention: a window of one position reaches L positions through L layers


@pytest.mark.parametrize("n_layers", [1, 2])
def test_a_source_token_outside_the_window_cannot_change_the_memory(n_layers: int) -> None:
    model = transformer(attention_window=1, n_encoder_layers=n_layers)
    src, _ = batch((9, 2))
    changed = src.clone()
    changed[0, 4] += 1  # another token
    before, _ = model.encode(src)
    after, _ = model.encode(changed)
    reached = range(4 - n_layers, 4 + n_layers + 1)
    assert changed_positions(before, after) == list(reached)


@pytest.mark.parametrize("n_layers", [1, 2])
def test_a_target_token_outside_the_window_cannot_change_a_logit(n_layers: int) -> None:
    model = transformer(attention_window=1, n_decoder_layers=n_layers)
    src, tgt = batch((5, 9))
    changed = tgt.clone()
    changed[:, 3] += 1
    before = model(src, tgt)
    after = model(src, changed)
    reached = range(3, 3 + n_layers + 1)  # none before the token
    assert changed_positions(before, after) == list(reached)


def changed_positions(before: Tensor, after: Tensor) -> list[int]:
    """Return the positions of a sentence at which (1, T, D) differs at all."""
    differs = (before != after).any(-1)[0]
    positions = differs.nonzero().flatten()
    return list(map(int, positions))


def test_attention_weights_outside_the_window_are_zero() -> None:
    model = transformer(attention_window=2)
    weights = model.attention(*batch((9, 8)))
    outside_source = ~window_mask(9, 2)
    outside_target = ~window_mask(8, 2)
    assert not weights.encoder[..., outside_source].any()
    assert not weights.decoder[..., outside_target].any()
    assert (weights.cross > 0).all(), "cross-attention is not truncated"


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_window_as_wide_as_the_sentences_changes_nothing(positions: str) -> None:
    src, tgt = batch((12, 10), (8, 9))
    wide = make(attention_window=12, positions=positions)
    full = make(positions=positions)
    expected = full(src, tgt)
    assert_close(wide(src, tgt), expected)


# --- bf16 matmuls on a CPU, whose number of rows is rounded up


IN_BF16 = torch.autocast("cpu", torch.bfloat16)


def test_rounding_gives_bf16_matmuls_few_shapes() -> None:
    layer = Linear(24, 40)
    with IN_BF16, patch("torch.nn.functional.linear", wraps=F.linear) as linear:
        for n in range(1, 2049, 7):
            layer(torch.ones(n, 24))
    n_rows = {len(call.args[0]) for call in linear.call_args_list}
    assert len(n_rows) < 25


@pytest.mark.parametrize("n", [1, 31, 33, 300])
def test_rounding_changes_no_result_and_no_gradient(n: int) -> None:
    layer = Linear(24, 40)
    x = torch.randn(n, 1, 24, requires_grad=True)
    with IN_BF16:
        rounded = layer(x)
        plain = F.linear(x, layer.weight, layer.bias)
    parameters = [x, *layer.parameters()]
    gradients = torch.autograd.grad(rounded.square().sum(), parameters)
    expected = torch.autograd.grad(plain.square().sum(), parameters)
    for actual, reference in zip((rounded, *gradients), (plain, *expected), strict=True):
        scale = reference.abs().max().item()
        assert_close(actual, reference, rtol=0.02, atol=0.02 * scale)


def test_a_matmul_without_rows_has_none() -> None:
    """A replica that gets no pair has no token."""
    layer = Linear(24, 40)
    with IN_BF16:
        assert layer(torch.ones(0, 24)).shape == (0, 40)


def test_a_start_of_zeros_does_not_depend_on_the_row_of_bos() -> None:
    model = transformer(start="zero", tied_embeddings="none")
    src, tgt = batch((7, 5))
    before = model(src, tgt)
    with torch.no_grad():
        model.target_embedding.weight[BOS] += 1
    assert_close(model(src, tgt), before, rtol=0, atol=0)


def test_the_epsilon_of_all_norms_is_that_of_the_settings() -> None:
    model = transformer(norm="pre", norm_epsilon=1e-3)
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) == 2 * 2 + 2 * 3 + 2
    assert {norm.eps for norm in norms} == {1e-3}
