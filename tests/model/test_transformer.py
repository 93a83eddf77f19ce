"""The Transformer equals torch's Transformer with the same weights; attention weights; position tables."""

from typing import Any

import pytest
import torch
from models import batch, logits_of_steps, make
from torch import Tensor, nn

from nmt.model.attention import CrossAttention, SelfAttention
from nmt.model.incremental import incremental_decoder
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
    positions = ours.sinusoids.table if ours.sinusoids else ours.source_positions
    assert positions is not None
    causal = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), dtype=torch.float64)
    encoder.eval(), decoder.eval()
    memory = encoder(embed[src] + positions[: src.size(1)], src_key_padding_mask=src == PAD)
    hidden = decoder(
        embed[tgt] + positions[: tgt.size(1)],
        memory,
        tgt_mask=causal,
        memory_key_padding_mask=src == PAD,
    )
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


def rows_of(model: Transformer) -> Tensor:
    """The current table of fixed positional encodings."""
    table = model.sinusoids or model.rotations
    assert table is not None
    return table.table


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_position_tables_grow_with_the_sequences_and_their_values_stay(
    monkeypatch: pytest.MonkeyPatch, positions: str
) -> None:
    whole = make(positions=positions, max_positions=30)
    monkeypatch.setattr("nmt.model.positions.FIRST_POSITIONS", 4)
    growing = make(positions=positions, max_positions=30)
    assert isinstance(whole, Transformer)
    assert isinstance(growing, Transformer)
    n_rows = []
    for lengths in ((4, 4), (5, 3), (3, 9), (30, 30)):
        batches = batch(lengths, (2, 2))
        with torch.inference_mode():
            decoders = map(incremental_decoder, (growing, whole))
            steps = [torch.stack(logits_of_steps(decoder, *batches, n_beams=2)) for decoder in decoders]
        assert torch.equal(*steps)
        n_rows.append(len(rows_of(growing)))
    assert n_rows == [4, 8, 16, 30]
    assert torch.equal(rows_of(growing), rows_of(whole))
    growing(*batches).sum().backward()  # would fail with a table created in inference mode
    assert torch.equal(growing(*batches), whole(*batches))
