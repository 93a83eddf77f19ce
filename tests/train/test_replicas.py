"""Threads that share a step do the same each time; reliability/test_training_random.py has their gradient."""

import copy
import itertools

import pytest
import torch
from models import fresh, gradient, random_batch
from torch import nn

from nmt.config import TrainSettings
from nmt.model.base import Seq2Seq
from nmt.text.batches import collate
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, forward_backward, shares_of, train_step

SETTINGS = TrainSettings()


def make(dropout: float = 0.0) -> Seq2Seq:
    torch.manual_seed(1)
    return fresh(dropout=dropout)


def test_every_pair_is_one_workers() -> None:
    for n_batches, n_threads in itertools.product(range(1, 5), range(1, 7)):
        batches = [random_batch(5, first=5 * i) for i in range(n_batches)]
        shares = shares_of(batches, n_threads)
        assert sorted(line for share in shares for part in share for line in part.lines) == [*range(5 * n_batches)]
        assert len({len(share) for share in shares}) == 1  # equally many batches, because ranks wait for each other
        if n_batches % n_threads == 0:
            assert all(any(part.lines == whole.lines for whole in batches) for share in shares for part in share)


def test_threads_that_overtake_one_another_change_nothing() -> None:
    model, batches = make(dropout=0.3), [random_batch(7), random_batch(3)]
    first, *others = (gradient(model, batches, SETTINGS, n=3, bf16=True, prediction_rate=0.3) for _ in range(11))
    for again in others:
        assert all(torch.equal(again[name], first[name]) for name in first)


@pytest.mark.parametrize(("dropout", "is_equal"), [(0.0, True), (0.3, False)])
def test_each_drops_out_something_else(dropout: float, *, is_equal: bool) -> None:
    unclipped = TrainSettings(clip_norm=0.0)
    gradients = []
    for n in (1, 2):  # the same pair in each of n threads: without dropout, the mean loss has the same gradient
        model, same = make(dropout=dropout), collate([[5, 6, 7]] * n, [[8, 9]] * n, range(n))
        options = StepOptions(unclipped, lr=0.0, seed=1, bf16=False)
        train_step(Replicas(model.train(), n), make_optimizers(model, unclipped), [same], options)
        gradients.append(model.projection.weight.grad)
    one, two = gradients
    assert one is not None
    assert two is not None
    assert torch.allclose(one, two, atol=1e-6) == is_equal


@pytest.mark.parametrize("tied", ["all", "decoder", "none"])
def test_replicas_keep_no_gradients(tied: str) -> None:
    model = fresh(tied_embeddings=tied).train()
    replicas = Replicas(model, 2)
    train_step(replicas, make_optimizers(model, SETTINGS), [random_batch(7)], StepOptions(SETTINGS, lr=1e-2, seed=1))
    assert all(p.grad is not None and not p.grad.is_sparse for p in model.parameters())
    assert all(p.grad is None for replica in replicas.models for p in replica.parameters())


def test_a_step_that_failed_leaves_no_gradients_behind() -> None:
    """The error of a thread is raised when all are done."""
    model = make().train()
    replicas, optimizers = Replicas(model, 2), make_optimizers(model, SETTINGS)
    options = StepOptions(SETTINGS, lr=0.0, seed=1)
    train_step(replicas, optimizers, [random_batch(7)], options)
    expected = {name: p.grad for name, p in model.named_parameters()}
    done: list[int] = []

    def interrupted(i: int, replica: nn.Module) -> None:
        if i == 0:
            raise torch.OutOfMemoryError
        forward_backward(replica, [random_batch(3)], options, 1.0, i)
        done.append(i)

    with pytest.raises(torch.OutOfMemoryError):
        replicas.run(interrupted)
    assert done == [1]
    train_step(replicas, optimizers, [random_batch(7)], options)
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, expected[name], rtol=0, atol=0)


def test_every_step_sees_the_weights_of_the_last_one_and_of_a_rollback() -> None:
    losses = []
    for n in (1, 2):
        model = make()
        before = copy.deepcopy(model.state_dict())
        replicas, optimizers = Replicas(model, n), make_optimizers(model, SETTINGS)
        options = [StepOptions(SETTINGS, lr=3e-2, seed=i, bf16=True) for i in range(4)]
        losses.append([train_step(replicas, optimizers, [random_batch(7)], one).loss for one in options])
    assert losses[0][-1] < 0.9 * losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert not any(torch.equal(before[name], p) for name, p in replicas.models[1].named_parameters())
    model.load_state_dict(before)
    assert all(torch.equal(p, before[name]) for name, p in replicas.models[1].named_parameters())
