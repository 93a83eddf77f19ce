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

SETTINGS = TrainSettings()
ALL = batch_of(0, 1)


def step(model: Seq2Seq, micro_batches: list[Batch], lr: float, seed: int = 1, *, bf16: bool = False) -> StepFigures:
    options = StepOptions(SETTINGS, lr, seed, bf16)
    return train_step(Replicas(model), make_optimizers(model, SETTINGS), micro_batches, options)


def test_the_norm_of_a_large_gradient_is_exact() -> None:
    """Over all 20M elements at once, torch 2.13's fp32 norm is off by 0.1 % on a CPU."""
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(40_000, 500, generator=generator)
    vector = torch.randn(7, generator=generator)
    elements = torch.cat([matrix.flatten(), vector])
    exact = elements.double().norm().item()
    result = norm_of([matrix, vector]).item()
    assert result == pytest.approx(exact, rel=1e-6)


def test_figures_are_means_over_tokens() -> None:
    """The loss of a padded batch is the sum over its sentences."""
    model = make().train()
    expected = batch_loss(model, ALL, SETTINGS)
    figures = step(model, [batch_of(0), batch_of(1)], lr=1e-9)
    assert figures.n_tokens == 10
    assert figures.loss == pytest.approx(expected.loss.item() / 10)
    assert figures.nll == pytest.approx(expected.nll.item() / 10)


def test_the_same_seed_drops_the_same_and_another_does_not() -> None:
    model = make(dropout=0.5).train()
    first = step(model, [ALL], lr=0.0, seed=1)
    again = step(model, [ALL], lr=0.0, seed=1)
    other = step(model, [ALL], lr=0.0, seed=2)
    assert first.loss == again.loss != other.loss


def test_out_of_memory_while_weights_are_updated_does_not_repeat_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated step would update AdamW's parameters twice."""
    monkeypatch.setattr(optimizer, "orthogonalize", mock.Mock(side_effect=torch.OutOfMemoryError))
    model = make().train()
    with pytest.raises(NmtError, match="out of memory while weights were updated"):
        split_on_out_of_memory(lambda parts: step(model, list(parts), lr=1e-3), [ALL], 0)


def test_precision_is_what_was_asked_for() -> None:
    cpu = torch.device("cpu")
    assert uses_bf16(TrainSettings(precision="bf16"), cpu)
    assert not uses_bf16(TrainSettings(precision="fp32"), cpu)
    assert not uses_bf16(TrainSettings(precision="auto"), torch.device("mps"))


@pytest.mark.parametrize(("bf16", "rel"), [(False, 1e-6), (True, 0.02)])
def test_bf16_steps_keep_fp32_weights_and_come_close(bf16: bool, rel: float) -> None:
    """Steps are in fp32 if not told otherwise."""
    sums = batch_loss(make().float(), ALL, SETTINGS)
    expected = sums.loss.item() / sums.n_tokens
    model = make().train().float()
    loss = step(model, [ALL], lr=1e-3, bf16=bf16).loss
    assert loss == pytest.approx(expected, rel=rel)
    result = {p.dtype for p in model.parameters()}
    assert result == {torch.float32}
    # In bf16, it is not exact.
    is_exact = loss == pytest.approx(expected, rel=1e-6)
    assert is_exact != bf16
