"""Properties of every model: causal, independent of padding and of other sentences, the same logits step by step."""

from collections import Counter
from typing import Any, get_args

import pytest
import torch
from models import FAMILY, RNNS, RUNGS, TRANSFORMERS, V, batch, fresh, make, name
from torch.testing import assert_close

from nmt.config.schema import ModelPart
from nmt.model.base import Seq2Seq
from nmt.model.incremental import incremental_decoder
from nmt.model.recurrent import RecurrentModel
from nmt.model.transformer import Transformer
from nmt.run.checkpoint import weights_of
from nmt.text import BOS, PAD

# A fixture `model` has random weights; `choices` are for tests that make models of their own.
every = pytest.mark.parametrize("choices", FAMILY, ids=name)


@pytest.fixture(params=FAMILY, ids=name)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    return make(**request.param)


def frozen_weights(model: Seq2Seq, part: str) -> set[str]:
    model.freeze([part])
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


@every
def test_every_weight_belongs_to_a_part_that_can_be_frozen(choices: dict[str, Any]) -> None:
    frozen: set[str] = set()
    for part in get_args(ModelPart):
        weights = frozen_weights(fresh(**choices), part)
        assert weights
        frozen |= weights
    assert frozen == weights_of(fresh(**choices)).keys()


@every
def test_a_tied_matrix_is_in_two_parts_and_all_others_in_one(choices: dict[str, Any]) -> None:
    n_parts: Counter[str] = Counter()  # by weight
    for part in get_args(ModelPart):
        weights = frozen_weights(fresh(**choices), part)
        n_parts.update(weights)
    largest, *others = sorted(n_parts.values(), reverse=True)
    assert largest == (1 if choices.get("tied_embeddings") == "none" else 2)
    assert set(others) == {1}


ALL: list[dict[str, Any]] = [*TRANSFORMERS, *RUNGS, *RNNS, {"padding_mask": False}]


@pytest.mark.parametrize("choices", ALL, ids=name)
def test_a_cached_step_equals_the_full_forward_pass(choices: dict[str, Any]) -> None:
    model = make(**choices)
    decoder = incremental_decoder(model)
    src, tgt = batch((7, 6), (4, 6), (2, 6))
    # Each step reads one token of every sentence.
    with torch.no_grad():
        full = model(src, tgt)
        state = decoder.start(src)
        for t, tokens in enumerate(tgt.T):
            logits, state = decoder.step(tokens[:, None], state)
            assert_close(logits[:, 0], full[:, t])


def test_reordered_beams_and_finished_sentences_keep_the_cache_of_the_others(model: Seq2Seq) -> None:
    """Parents are random, sentences leave the batch after steps 5 and 14, and from step 12 on there is one beam."""
    generator = torch.Generator().manual_seed(2)
    staying = {5: [2, 1], 14: [1]}  # rows of the batch
    decoder = incremental_decoder(model)
    src, _ = batch((7, 6), (4, 6), (2, 6))
    read = torch.full((3, 3, 1), BOS)  # (B, K, t), the tokens that each beam has read
    first_beams = torch.arange(3)[:, None].expand(3, 3)  # three for each sentence
    with torch.no_grad():
        state = decoder.select(decoder.start(src), first_beams)
        for t in range(16):
            n_sentences, n_beams, _ = read.shape
            # 1. A step gives the logits of a full pass over each beam.
            logits, state = decoder.step(read[..., -1], state)
            prefixes = read.flatten(0, 1)
            full = model(src.repeat_interleave(n_beams, 0), prefixes)
            expected = full[:, -1].view_as(logits)
            assert_close(logits, expected)
            # 2. Choose parents, as search does, and drop finished sentences.
            n_new_beams = 3 if t < 12 else 1
            parents = torch.randint(n_beams, (n_sentences, n_new_beams), generator=generator)
            first_beams = n_beams * torch.arange(n_sentences)[:, None]
            rows = torch.tensor(staying.get(t, range(n_sentences)))
            beam_indices = (first_beams + parents)[rows]
            state = decoder.select(state, beam_indices)
            # 3. Each new beam goes on from its parent.
            src = src[rows]
            before = prefixes[beam_indices]
            following = torch.randint(4, V, (*beam_indices.shape, 1), generator=generator)
            read = torch.cat([before, following], 2)


@pytest.mark.parametrize("t", [1, 4, 7])
def test_a_future_target_token_cannot_change_a_logit_at_all(model: Seq2Seq, t: int) -> None:
    src, tgt = batch((7, 8))
    changed = tgt.clone()
    changed[:, t:] = torch.where(tgt[:, t:] == 5, 6, 5)  # other tokens
    before = model(src, tgt)
    after = model(src, changed)
    assert torch.equal(after[:, :t], before[:, :t])


def test_the_content_of_source_padding_cannot_change_a_logit_at_all(model: Seq2Seq) -> None:
    """PAD is embedded like any other token, so only the mask can make its embedding irrelevant."""
    src, tgt = batch((7, 5), (4, 5))
    with torch.no_grad():
        before = model(src, tgt)
        model.source_embedding.weight[PAD] += 100.0
        after = model(src, tgt)
    if model.settings.tied_embeddings == "all":  # the logit of PAD changes with its embedding
        before, after = before[..., 1:], after[..., 1:]
    assert torch.equal(after, before)


def test_a_sentence_alone_is_the_same_as_in_a_batch(model: Seq2Seq) -> None:
    lengths = [(7, 5), (1, 9), (12, 2)]
    src, tgt = batch(*lengths)
    together = model(src, tgt)
    for row, (s, t) in enumerate(lengths):
        source, target = src[row, :s], tgt[row, :t]
        alone = model(source[None], target[None])
        assert_close(alone[0], together[row, :t])


def test_projecting_real_positions_alone_gives_their_logits(model: Seq2Seq) -> None:
    src, tgt = batch((7, 5), (4, 9))
    is_token = tgt != PAD
    logits = model(src, tgt)
    projected = model(src, tgt, is_token)
    assert_close(projected, logits[is_token])
    pieces = torch.tensor([5, 2])
    assert_close(model(src, tgt, is_token, pieces), logits[is_token][:, pieces])


def test_attention_weights_of_a_sentence_without_padding_sum_to_one(model: Seq2Seq) -> None:
    for weights in model.attention(*batch((7, 5))):
        sums = weights.sum(-1)
        assert_close(sums, torch.ones_like(sums))


def test_attention_weights_of_padding_and_of_the_future_are_zero(model: Seq2Seq) -> None:
    weights = model.attention(*batch((7, 5), (4, 5)))
    of_padding = weights.cross[:, 1, :, :, 4:]
    of_future = weights.decoder.triu(1)
    assert not of_padding.any()
    assert not of_future.any()


def test_without_the_padding_mask_the_amount_of_padding_matters() -> None:
    model = make(padding_mask=False)
    src, tgt = batch((7, 5))
    wide = torch.nn.functional.pad(src, (0, 9), value=PAD)
    difference = model(wide, tgt) - model(src, tgt)
    assert difference.abs().max() > 1e-3
    weights = model.attention(wide, tgt).cross
    assert weights[..., 7:].sum() > 0.1


@every
def test_fresh_logits_are_of_moderate_size(choices: dict[str, Any]) -> None:
    """At initialization the loss should be about log V, which large logits would prevent."""
    model = fresh(**choices, d_model=128, d_ff=256)
    tokens = torch.randint(4, V, (8, 20))
    logits = model(tokens, tokens.flip(0))
    assert logits.std() < 2.0


def test_the_forget_gates_of_an_lstm_begin_open() -> None:
    model = fresh(architecture="rnn")
    assert isinstance(model, RecurrentModel)
    for layer in model.encoder:
        bias = layer.cell.state_dict()["bias_ih_l0"]
        _, forget_gate, _, _ = bias.chunk(4)
        assert (forget_gate == 1).all()


def test_learned_positions_begin_as_small_as_unscaled_embeddings() -> None:
    model = fresh(positions="learned", d_model=128)
    assert isinstance(model, Transformer)
    assert model.source_positions is not None
    scale_of_embeddings = 128**-0.5
    assert model.source_positions.std() < 2 * scale_of_embeddings


@every
def test_dropout_acts_in_training_alone(choices: dict[str, Any]) -> None:
    model = make(**choices, dropout=0.5, activation_dropout=0.3, attention_dropout=0.2)
    pair = batch((7, 5))
    assert torch.equal(model(*pair), model(*pair))
    model.train()
    assert not torch.equal(model(*pair), model(*pair))
    with torch.no_grad():
        assert not torch.equal(model(*pair), model(*pair))
