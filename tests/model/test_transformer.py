"""The Transformer: equal to torch's own with the same weights, causal, blind to padding, the same step by step."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.config import ModelSettings
from nmt.model.attention import CrossAttention, SelfAttention
from nmt.model.transformer import ROOM, Transformer
from nmt.run.checkpoint import weights_of
from nmt.text import BOS, EOS, PAD

V = 23


def make(seed: int = 1, n_target_vocab: int = V, **changes: Any) -> Transformer:
    """A small model with random weights, biases and norms, in float64, where any leak shows."""
    settings = ModelSettings(
        **{"d_model": 16, "d_ff": 24, "n_heads": 4, "n_encoder_layers": 2, "n_decoder_layers": 3, "dropout": 0.0}
        | {"max_positions": 32}
        | changes
    )
    torch.manual_seed(seed)
    model = Transformer(settings, V, n_target_vocab).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch(*lengths: tuple[int, int], seed: int = 2) -> tuple[Tensor, Tensor]:
    """Random source and target ids of the given lengths, padded."""
    generator = torch.Generator().manual_seed(seed)
    src = torch.full((len(lengths), max(s for s, _ in lengths)), PAD)
    tgt = torch.full((len(lengths), max(t for _, t in lengths)), PAD)
    for row, (s, t) in enumerate(lengths):
        src[row, : s - 1] = torch.randint(4, V, (s - 1,), generator=generator)
        src[row, s - 1] = EOS
        tgt[row, 1:t] = torch.randint(4, V, (t - 1,), generator=generator)
        tgt[row, 0] = BOS
    return src, tgt


VARIANTS = [
    {"norm": norm, "activation": activation, "positions": positions, "tied_embeddings": tied}
    for norm, activation, positions, tied in itertools.product(
        ("pre", "post"), ("relu", "gelu"), ("sinusoidal", "learned"), ("all", "decoder", "none")
    )
]
FEW = [VARIANTS[0], VARIANTS[-1]]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_equals_torchs_transformer_with_the_same_weights(norm: str, activation: str) -> None:
    ours = make(norm=norm, activation=activation)
    common = {"dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": norm == "pre"}
    encoder_layer = nn.TransformerEncoderLayer(16, 4, 24, dtype=torch.float64, **common)  # type: ignore[arg-type]
    decoder_layer = nn.TransformerDecoderLayer(16, 4, 24, dtype=torch.float64, **common)  # type: ignore[arg-type]
    pre = norm == "pre"  # torch's Transformer has final norms always, ours only where nothing else normalises
    encoder = nn.TransformerEncoder(encoder_layer, 2, nn.LayerNorm(16).double() if pre else None, False)
    decoder = nn.TransformerDecoder(decoder_layer, 3, nn.LayerNorm(16).double() if pre else None)
    with torch.no_grad():
        for theirs, mine in zip(encoder.layers, ours.encoder, strict=True):
            copy_attention(theirs.self_attn, mine.self_attention)
            copy_rest(theirs, mine, ["self_attention_residual", "feed_forward_residual"])
        for theirs, mine_ in zip(decoder.layers, ours.decoder, strict=True):
            copy_attention(theirs.self_attn, mine_.self_attention)
            copy_attention(theirs.multihead_attn, mine_.cross_attention)
            copy_rest(
                theirs, mine_, ["self_attention_residual", "cross_attention_residual", "feed_forward_residual"]
            )
        if pre:
            encoder.norm.load_state_dict(ours.encoder_norm.state_dict())  # type: ignore[union-attr]
            decoder.norm.load_state_dict(ours.decoder_norm.state_dict())  # type: ignore[union-attr]
    src, tgt = batch((7, 5), (4, 9), (1, 1))
    embed = ours.source_embedding.weight * 16**0.5
    positions = ours.source_positions
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


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_cached_step_is_the_full_pass(variant: dict[str, Any]) -> None:
    model = make(**variant)
    src, tgt = batch((7, 6), (4, 6), (2, 6))
    with torch.no_grad():
        full = model(src, tgt)
        state = model.start(src)
        for t in range(tgt.size(1)):
            logits, state = model.step(tgt[:, t : t + 1], state)
            torch.testing.assert_close(logits[:, 0], full[:, t])


@pytest.mark.parametrize("variant", FEW)
def test_beams_that_part_and_sentences_that_leave_keep_their_own_past(variant: dict[str, Any]) -> None:
    """Beams go on from one another at random until their slots have been used again and again."""
    model = make(**variant)
    src, _ = batch((7, 6), (4, 6), (2, 6))
    n_beams, generator = 3, torch.Generator().manual_seed(2)
    ids = torch.full((3, n_beams), BOS)
    tokens, sentences = ids[..., None], torch.arange(3)  # what each beam has read, and which source it is of
    with torch.no_grad():
        state = model.select(model.start(src), torch.arange(3)[:, None].expand(-1, n_beams))
        for t in range(3 * ROOM // n_beams):
            logits, state = model.step(ids, state)
            for b, s in enumerate(sentences):
                for k in range(n_beams):
                    torch.testing.assert_close(logits[b, k], model(src[s : s + 1], tokens[b, k][None])[0, -1])
            parents = torch.randint(n_beams, ids.shape, generator=generator)
            stay = torch.tensor({5: [2, 1], 9: [1]}.get(t, range(len(ids))))
            state = model.select(state, (parents + torch.arange(len(ids))[:, None] * n_beams)[stay])
            sentences, parents, tokens = sentences[stay], parents[stay], tokens[stay]
            ids = torch.randint(4, V, parents.shape, generator=generator)
            tokens = torch.cat([tokens.gather(1, parents[..., None].expand_as(tokens)), ids[..., None]], 2)
    assert state.ancestry.size(2) < 3 * ROOM  # or nothing would have been used again


@pytest.mark.parametrize("variant", FEW)
def test_a_future_target_token_cannot_change_a_logit_at_all(variant: dict[str, Any]) -> None:
    model = make(**variant)
    src, tgt = batch((7, 8))
    before = model(src, tgt)
    for t in range(1, 8):
        other = tgt.clone()
        other[0, t:] = torch.randint(4, V, (8 - t,), generator=torch.Generator().manual_seed(t))
        assert torch.equal(model(src, other)[0, :t], before[0, :t])


@pytest.mark.parametrize("variant", FEW)
def test_the_content_of_source_padding_cannot_change_a_logit_at_all(variant: dict[str, Any]) -> None:
    """What stands at padded positions is embedded like anything else: only the mask keeps it out."""
    model = make(**variant)
    src, tgt = batch((7, 5), (4, 5))
    with torch.no_grad():
        before = model(src, tgt)
        model.source_embedding.weight[PAD] += 100.0
        if model.settings.tied_embeddings == "all":  # PAD's own logit changes with its row
            assert torch.equal(model(src, tgt)[..., 1:], before[..., 1:])
        else:
            assert torch.equal(model(src, tgt), before)


@pytest.mark.parametrize("variant", FEW)
def test_the_amount_of_padding_changes_nothing_beyond_rounding(variant: dict[str, Any]) -> None:
    model = make(**variant)
    src, tgt = batch((7, 5))
    wide_src = torch.cat([src, torch.full((1, 9), PAD)], 1)
    wide_tgt = torch.cat([tgt, torch.full((1, 4), PAD)], 1)
    torch.testing.assert_close(model(wide_src, wide_tgt)[:, :5], model(src, tgt))


@pytest.mark.parametrize("variant", FEW)
def test_a_sentence_alone_is_the_same_as_in_a_batch(variant: dict[str, Any]) -> None:
    model = make(**variant)
    lengths = [(7, 5), (1, 9), (12, 2)]
    src, tgt = batch(*lengths)
    together = model(src, tgt)
    for row, (s, t) in enumerate(lengths):
        torch.testing.assert_close(model(src[row : row + 1, :s], tgt[row : row + 1, :t])[0], together[row, :t])


def test_projecting_real_positions_alone_gives_their_logits() -> None:
    model = make()
    src, tgt = batch((7, 5), (4, 9))
    real = tgt != PAD
    torch.testing.assert_close(model(src, tgt, real), model(src, tgt)[real])


@pytest.mark.parametrize("variant", FEW)
def test_attention_weights_are_given_for_every_layer_and_head(variant: dict[str, Any]) -> None:
    model = make(**variant)
    src, tgt = batch((7, 5), (4, 5))
    encoder, decoder, cross = model.attention(src, tgt)
    assert encoder.shape == (2, 2, 4, 7, 7)
    assert decoder.shape == (3, 2, 4, 5, 5)
    assert cross.shape == (3, 2, 4, 5, 7)
    for weights in (encoder, decoder, cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64))
    assert (encoder[:, 1, :, :, 4:] == 0).all()  # the second source has 4 pieces
    assert (cross[:, 1, :, :, 4:] == 0).all()
    assert (decoder.triu(1) == 0).all()


def test_ties_are_one_matrix() -> None:
    def names(tied: str) -> set[str]:
        return {name for name in weights_of(make(tied_embeddings=tied)) if "embedding" in name or "proj" in name}

    assert names("all") == {"source_embedding.weight"}
    assert names("decoder") == {"source_embedding.weight", "target_embedding.weight"}
    assert names("none") == {"source_embedding.weight", "target_embedding.weight", "projection.weight"}


def test_sides_may_have_vocabularies_of_different_size() -> None:
    model = make(n_target_vocab=31, tied_embeddings="decoder")
    src, tgt = batch((7, 5))
    assert model(src, tgt).shape == (1, 5, 31)


def test_fresh_logits_are_of_moderate_size() -> None:
    """At the start the loss should be about log V: no projection that shouts."""
    torch.manual_seed(1)
    model = Transformer(ModelSettings(d_model=128, d_ff=256), 1000, 1000).eval()
    src, tgt = torch.randint(4, 1000, (8, 20)), torch.randint(4, 1000, (8, 20))
    assert model(src, tgt).std() < 2.0


def test_dropout_acts_in_training_alone() -> None:
    model = make(dropout=0.5, activation_dropout=0.3, attention_dropout=0.2)
    src, tgt = batch((7, 5))
    assert torch.equal(model(src, tgt), model(src, tgt))
    model.train()
    assert not torch.equal(model(src, tgt), model(src, tgt))
    with torch.no_grad():
        assert not torch.equal(model(src, tgt), model(src, tgt))
