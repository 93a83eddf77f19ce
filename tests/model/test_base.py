"""Properties of every model: causal, independent of padding and of other sentences, the same logits step by step."""

from typing import Any, get_args

import pytest
import torch
from models import FAMILY, RNNS, RUNGS, TRANSFORMERS, V, batch, fresh, make, name

from nmt.config.schema import ModelPart
from nmt.model.base import Seq2Seq
from nmt.model.incremental import incremental_decoder
from nmt.model.recurrent import RecurrentModel
from nmt.run.checkpoint import weights_of
from nmt.text import BOS, PAD

every = pytest.mark.parametrize("choices", FAMILY, ids=name)


@pytest.fixture(params=FAMILY, ids=name)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    return make(**request.param)


@every
def test_every_weight_belongs_to_a_part_that_can_be_frozen(choices: dict[str, Any]) -> None:
    frozen: set[str] = set()
    for part in get_args(ModelPart):
        model = fresh(**choices)
        model.freeze([part])
        own = {name for name, p in model.named_parameters() if not p.requires_grad}
        is_shared = part == "output" and model.settings.tied_embeddings != "none"
        assert own
        assert is_shared == bool(own & frozen), "a tied matrix is in two parts, all others in one"
        frozen |= own
    assert frozen == weights_of(model).keys()


@pytest.mark.parametrize("choices", [*TRANSFORMERS, *RUNGS, *RNNS, {"padding_mask": False}], ids=name)
def test_a_cached_step_equals_the_full_forward_pass(choices: dict[str, Any]) -> None:
    model = make(**choices)
    decoder = incremental_decoder(model)
    src, tgt = batch((7, 6), (4, 6), (2, 6))
    with torch.no_grad():
        full = model(src, tgt)
        state = decoder.start(src)
        for t in range(tgt.size(1)):
            logits, state = decoder.step(tgt[:, t : t + 1], state)
            torch.testing.assert_close(logits[:, 0], full[:, t])


def test_reordered_beams_and_finished_sentences_keep_the_cache_of_the_others(model: Seq2Seq) -> None:
    """Parents are random, and in the end there is a single beam."""
    decoder = incremental_decoder(model)
    src, _ = batch((7, 6), (4, 6), (2, 6))
    n_beams, generator = 3, torch.Generator().manual_seed(2)
    ids = torch.full((3, n_beams), BOS)
    tokens, sentences = ids[..., None], torch.arange(3)  # (B, K, t) that each beam has read; (B,)
    with torch.no_grad():
        state = decoder.select(decoder.start(src), torch.arange(3)[:, None].expand(-1, n_beams))
        for t in range(16):
            logits, state = decoder.step(ids, state)
            full = model(src[sentences].repeat_interleave(ids.size(1), 0), tokens.flatten(0, 1))
            torch.testing.assert_close(logits.flatten(0, 1), full[:, -1])
            parents = torch.randint(ids.size(1), ids.shape if t < 12 else (len(ids), 1), generator=generator)
            stay = torch.tensor({5: [2, 1], 14: [1]}.get(t, range(len(ids))))
            state = decoder.select(state, (parents + torch.arange(len(ids))[:, None] * ids.size(1))[stay])
            sentences, parents, tokens = sentences[stay], parents[stay], tokens[stay]
            ids = torch.randint(4, V, parents.shape, generator=generator)
            before = tokens.gather(1, parents[..., None].expand(-1, -1, tokens.size(2)))
            tokens = torch.cat([before, ids[..., None]], 2)


def test_a_future_target_token_cannot_change_a_logit_at_all(model: Seq2Seq) -> None:
    src, tgt = batch((7, 8))
    before = model(src, tgt)
    for t in range(1, 8):
        other = tgt.clone()
        other[0, t:] = torch.randint(4, V, (8 - t,), generator=torch.Generator().manual_seed(t))
        assert torch.equal(model(src, other)[0, :t], before[0, :t])


def test_the_content_of_source_padding_cannot_change_a_logit_at_all(model: Seq2Seq) -> None:
    """PAD is embedded like any other token, so only the mask can make its embedding irrelevant."""
    src, tgt = batch((7, 5), (4, 5))
    with torch.no_grad():
        before = model(src, tgt)
        model.source_embedding.weight[PAD] += 100.0
        if model.settings.tied_embeddings == "all":  # the logit of PAD changes with its embedding
            assert torch.equal(model(src, tgt)[..., 1:], before[..., 1:])
        else:
            assert torch.equal(model(src, tgt), before)


def test_a_sentence_alone_is_the_same_as_in_a_batch(model: Seq2Seq) -> None:
    lengths = [(7, 5), (1, 9), (12, 2)]
    src, tgt = batch(*lengths)
    together = model(src, tgt)
    for row, (s, t) in enumerate(lengths):
        torch.testing.assert_close(model(src[row : row + 1, :s], tgt[row : row + 1, :t])[0], together[row, :t])


def test_projecting_real_positions_alone_gives_their_logits(model: Seq2Seq) -> None:
    src, tgt = batch((7, 5), (4, 9))
    real = tgt != PAD
    torch.testing.assert_close(model(src, tgt, real), model(src, tgt)[real])


def test_attention_weights_sum_to_one_and_tell_of_layers_that_are_there(model: Seq2Seq) -> None:
    src, tgt = batch((7, 5), (4, 5))
    found = model.attention(src, tgt)
    n_cross = 2 if model.settings.architecture == "transformer" else model.settings.attention != "none"
    n_self = 2 if model.settings.architecture == "transformer" else 0
    for weights, n, size in zip(found, (n_self, n_self, n_cross), ((7, 7), (5, 5), (5, 7)), strict=True):
        assert (len(weights), weights.size(1), weights.shape[3:]) == (n, 2, size)
        real = weights[:, 0]  # the sentence without padding
        torch.testing.assert_close(real.sum(-1), torch.ones_like(real.sum(-1)))
    assert (found.cross[:, 1, :, :, 4:] == 0).all()
    assert (found.decoder.triu(1) == 0).all()


def test_without_the_padding_mask_the_amount_of_padding_matters() -> None:
    model = make(padding_mask=False)
    src, tgt = batch((7, 5))
    wide = torch.cat([src, torch.full((1, 9), PAD)], 1)
    assert not torch.allclose(model(wide, tgt), model(src, tgt), atol=1e-3)
    assert model.attention(wide, tgt).cross[..., 7:].sum() > 0.1


@every
def test_fresh_logits_are_of_moderate_size(choices: dict[str, Any]) -> None:
    """At initialization the loss should be about log V, which large logits would prevent."""
    model = fresh(**choices, d_model=128, d_ff=256)
    src, tgt = torch.randint(4, V, (8, 20)), torch.randint(4, V, (8, 20))
    assert model(src, tgt).std() < 2.0
    if isinstance(model, RecurrentModel) and model.settings.cell == "lstm":
        assert all((layer.cell.state_dict()["bias_ih_l0"].chunk(4)[1] == 1).all() for layer in model.encoder)
    if (learned := getattr(model, "source_positions", None)) is not None:
        assert learned.std() < 2 * 128**-0.5  # as embeddings before they are scaled


@every
def test_dropout_acts_in_training_alone(choices: dict[str, Any]) -> None:
    model = make(**choices, dropout=0.5, activation_dropout=0.3, attention_dropout=0.2)
    src, tgt = batch((7, 5))
    assert torch.equal(model(src, tgt), model(src, tgt))
    model.train()
    assert not torch.equal(model(src, tgt), model(src, tgt))
    with torch.no_grad():
        assert not torch.equal(model(src, tgt), model(src, tgt))
