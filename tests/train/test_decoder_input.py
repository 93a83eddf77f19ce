"""The decoder's input in training, compared with greedy search and teacher forcing."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from models import batch_of, gradient, make
from torch import Tensor

from nmt.config import TrainSettings
from nmt.model.base import Seq2Seq
from nmt.text import BOS, EOS, PAD
from nmt.text.batches import Batch, collate
from nmt.train.decoder_input import decoder_input
from nmt.train.memory import split_on_out_of_memory

SCHEDULED = TrainSettings(decoder_input="scheduled_sampling", clip_norm=0)
ALL = batch_of(0, 1, 2, 3)


def predicting(dropout: float = 0.0) -> Seq2Seq:
    """Return a model whose predictions are far from uniform."""
    return make(scale=2.0, dropout=dropout, n_encoder_layers=1).train()


def gradients(
    model: Seq2Seq, batches: Sequence[Batch], rate: float, settings: TrainSettings = SCHEDULED, *, bf16: bool = False
) -> list[Tensor]:
    """Return the gradient of a step with this prediction rate."""
    by_name = gradient(model, batches, settings, prediction_rate=rate, bf16=bf16)
    return list(by_name.values())


def test_a_prediction_rate_of_zero_is_teacher_forcing_bit_for_bit() -> None:
    model = predicting(dropout=0.3)
    teacher = gradients(model, [ALL], 0.0, TrainSettings(clip_norm=0))
    never = gradients(model, [ALL], 0.0)
    often = gradients(model, [ALL], 0.5)
    assert all(map(torch.equal, never, teacher))
    assert not all(map(torch.equal, often, teacher))


def test_only_words_are_replaced() -> None:
    found = decoder_input(predicting(dropout=0.3), ALL, 1.0, seed=1)
    assert (found[:, 0] == BOS).all()
    assert torch.equal(found == PAD, ALL.tgt_in == PAD)
    words = found[:, 1:]
    assert (words[words != PAD] > EOS).all()


def test_the_first_pass_leaves_no_trace() -> None:
    """It changes neither torch's random state nor the modes of the model and of autograd."""
    model = predicting(dropout=0.3)
    state = torch.get_rng_state()
    assert torch.equal(decoder_input(model, ALL, 1e-9, seed=1), ALL.tgt_in)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert torch.is_grad_enabled()


def test_a_rank_without_a_sentence_replaces_nothing() -> None:
    idle = ALL.split(6)[5]
    found = decoder_input(predicting(), idle, 1.0, seed=1)
    assert torch.equal(found, idle.tgt_in)


def test_predictions_follow_the_true_tokens() -> None:
    model = predicting(dropout=0.3)
    found = decoder_input(model, ALL, 1.0, seed=1)
    with torch.no_grad():
        logits = model.eval()(ALL.src, ALL.tgt_in)
    logits[..., : EOS + 1] = -torch.inf
    # Each prediction is the input of the next position.
    predictions = logits.argmax(-1)[:, :-1]
    expected = torch.cat([ALL.tgt_in[:, :1], predictions], 1)
    real = ALL.tgt_in != PAD
    assert torch.equal(found[real], expected[real])
    assert (found != ALL.tgt_in).sum() > 5


@pytest.fixture(scope="module")
def many() -> Batch:
    """A batch of 400 equal sentences."""
    return collate([[5]] * 400, [[9] * 20] * 400, range(400))


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.7])
def test_the_rate_is_the_share_of_replaced_words(many: Batch, rate: float) -> None:
    model = predicting()
    every = decoder_input(model, many, 1.0, seed=1)
    some = decoder_input(model, many, rate, seed=1)
    # Some predictions are the true token.
    n_replaced = (some != many.tgt_in).sum()
    share = n_replaced / (every != many.tgt_in).sum()
    result = float(share)
    assert result == pytest.approx(rate, abs=0.03)


def test_another_seed_replaces_other_words(many: Batch) -> None:
    first = decoder_input(predicting(), many, 0.25, seed=1)
    second = decoder_input(predicting(), many, 0.25, seed=2)
    assert not torch.equal(first, second)


def test_bf16_has_the_gradient_of_the_same_words_read_by_teacher_forcing() -> None:
    """The second pass must not use weights that the first pass has cast to bf16 without a gradient."""
    model = predicting().float()
    found = gradients(model, [ALL], 1.0, bf16=True)
    result = len(found)
    assert result == len(list(model.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        tgt_in = decoder_input(model, ALL, 1.0, seed=1)
    assert not torch.equal(tgt_in, ALL.tgt_in)
    expected = gradients(model, [replace(ALL, tgt_in=tgt_in)], 0.0, bf16=True)
    assert all(map(torch.equal, found, expected))


def test_out_of_memory_in_the_first_pass_begins_the_step_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = predicting(dropout=0.3)
    hidden = model.hidden
    sizes = []

    def of_two_pairs(src: Tensor, tgt_in: Tensor) -> Tensor:
        sizes.append(len(src))
        if len(src) > 2:
            raise torch.OutOfMemoryError
        return hidden(src, tgt_in)

    monkeypatch.setattr(model, "hidden", of_two_pairs)
    split_on_out_of_memory(lambda parts: gradients(model, parts, 1.0), [ALL], 0)
    assert sizes == [4, 2, 2, 2, 2]  # two passes over each half
    assert model.training
