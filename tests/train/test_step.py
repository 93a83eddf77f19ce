"""A training step: norm, loss, dropout; its gradient is tested in tests/reliability/test_training_random.py."""

from unittest import mock

import pytest
import torch
from models import batch_of, make

from nmt.config import TrainSettings
from nmt.errors import NmtError
from nmt.model.base import Seq2Seq
from nmt.text.batches import Batch
from nmt.train import optimizer
from nmt.train.loop import uses_bf16
from nmt.train.memory import split_on_out_of_memory
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepFigures, StepOptions, batch_loss, norm_of, train_step


def step(model: Seq2Seq, micro_batches: list[Batch], options: StepOptions) -> StepFigures:
    return train_step(Replicas(model), make_optimizers(model, options.settings), micro_batches, options)


def test_the_norm_of_a_large_gradient_is_exact() -> None:
    """Over all 20M elements at once, torch 2.13's fp32 norm is off by 0.1 % on a CPU."""
    generator = torch.Generator().manual_seed(1)
    matrix, vector = (torch.randn(*shape, generator=generator) for shape in ((40_000, 500), (7,)))
    expected = float(torch.cat([matrix.flatten(), vector]).double().norm())
    assert float(norm_of([matrix, vector])) == pytest.approx(expected, rel=1e-6)


def test_figures_are_means_over_tokens() -> None:
    """The loss of a padded batch is the sum over its sentences."""
    settings, model = TrainSettings(), make().train()
    expected = batch_loss(model, batch_of(0, 1), settings)
    figures = step(model, [batch_of(0), batch_of(1)], StepOptions(settings, lr=1e-9, seed=1))
    assert figures.n_tokens == 10
    assert figures.n_real == 10 + 6  # target and source tokens, EOS included
    assert figures.n_positions == 10 + 6  # a batch of one sentence has no padding
    assert figures.loss == pytest.approx(float(expected.loss.detach()) / 10)
    assert figures.nll == pytest.approx(float(expected.nll) / 10)


def test_the_same_seed_drops_the_same_and_another_does_not() -> None:
    model = make(dropout=0.5).train()
    losses = [step(model, [batch_of(0, 1)], StepOptions(TrainSettings(), lr=0.0, seed=n)).loss for n in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def test_out_of_memory_while_weights_are_updated_does_not_repeat_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated step would update AdamW's parameters twice."""
    monkeypatch.setattr(optimizer, "orthogonalize", mock.Mock(side_effect=torch.OutOfMemoryError))
    options = StepOptions(TrainSettings(), lr=1e-3, seed=1)
    with pytest.raises(NmtError, match="out of memory while weights were updated"):
        split_on_out_of_memory(lambda parts: step(make().train(), list(parts), options), [batch_of(0, 1)], 0)


def test_precision_is_what_was_asked_for() -> None:
    cpu = torch.device("cpu")
    assert uses_bf16(TrainSettings(precision="bf16"), cpu)
    assert not uses_bf16(TrainSettings(precision="fp32"), cpu)
    assert not uses_bf16(TrainSettings(precision="auto"), torch.device("mps"))


def test_bf16_steps_keep_fp32_weights_and_come_close() -> None:
    """Steps are in fp32 if not told otherwise."""
    sums = batch_loss(make().train().float(), batch_of(0, 1), TrainSettings())
    losses = [sums.loss.item() / sums.n_tokens]
    for options in ({}, {"bf16": True}):
        model = make().train().float()
        losses.append(step(model, [batch_of(0, 1)], StepOptions(TrainSettings(), lr=1e-3, seed=1, **options)).loss)
        assert all(p.dtype == torch.float32 for p in model.parameters())
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert losses[2] == pytest.approx(losses[0], rel=0.02)
    assert losses[2] != pytest.approx(losses[0], rel=1e-6)
