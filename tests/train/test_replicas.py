"""Processes that share a step; reliability/test_training_random.py has their gradient."""

import copy
import itertools

import pytest
import torch
from models import fresh, gradient, random_batch
from torch import Tensor, nn

from nmt.config import TrainSettings
from nmt.errors import LostRankError
from nmt.model.base import Seq2Seq
from nmt.text.batches import collate
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, forward_backward, shares_of, train_step

SETTINGS = TrainSettings()


def make(dropout: float = 0.0) -> Seq2Seq:
    torch.manual_seed(1)
    return fresh(dropout=dropout)


def test_every_pair_is_in_one_share() -> None:
    for n_batches, n_replicas in itertools.product(range(1, 5), range(1, 7)):
        batches = [random_batch(5, first=5 * i) for i in range(n_batches)]
        shares = shares_of(batches, n_replicas)
        assert sorted(line for share in shares for part in share for line in part.lines) == [*range(5 * n_batches)]
        assert len({len(share) for share in shares}) == 1  # equally many batches, because ranks wait for each other
        if n_batches % n_replicas == 0:
            assert all(any(part.lines == whole.lines for whole in batches) for share in shares for part in share)


@pytest.mark.parametrize(("dropout", "is_equal"), [(0.0, True), (0.3, False)])
def test_each_drops_out_something_else(dropout: float, *, is_equal: bool) -> None:
    # The same pair in each of n replicas: without dropout, the mean loss has the same gradient.
    same = [collate([[5, 6, 7]] * n, [[8, 9]] * n, range(n)) for n in (1, 2)]
    one, two = (gradient(make(dropout), [of], TrainSettings(clip_norm=0.0), n=n) for n, of in enumerate(same, 1))
    assert torch.allclose(one["source_embedding.weight"], two["source_embedding.weight"], atol=1e-6) == is_equal


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_have_the_weights_of_one_after_steps_and_after_a_rollback(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.train.replicas.METHOD", method)
    found: list[float] = []
    for n in (1, 2):
        model = make()
        before = copy.deepcopy(model.state_dict())
        replicas, optimizers = Replicas(model, n), make_optimizers(model, SETTINGS)
        for seed in (0, 1, 2, 3, 0):
            model.load_state_dict(before if len(found) % 5 == 4 else model.state_dict())
            found.append(train_step(replicas, optimizers, [random_batch(7)], StepOptions(SETTINGS, 3e-2, seed)).loss)
        replicas.close()
    assert found[3] < 0.9 * found[0] == 0.9 * found[4]
    assert found[5:] == pytest.approx(found[:5], rel=1e-4)


def fails_in(model: nn.Module, number: int) -> Tensor:
    if number == 1:
        raise ValueError("of a replica")
    return forward_backward(model, [random_batch(3)], StepOptions(SETTINGS, lr=0.0, seed=1), 1.0, number)


def test_the_error_of_a_replica_is_raised_and_leaves_no_gradient_behind() -> None:
    model = make()
    expected = gradient(model, [random_batch(7)], SETTINGS, n=2)
    replicas = Replicas(model, 2)
    for shares in ([(0,), (1,)], [(1,), (0,)]):  # in the other process, in this one
        with pytest.raises(ValueError, match="of a replica"):
            replicas.backward(fails_in, shares)
        train_step(replicas, [], [random_batch(7)], StepOptions(SETTINGS, lr=0.0, seed=1))
        for name, p in model.named_parameters():
            torch.testing.assert_close(p.grad, expected[name], rtol=0, atol=0)
    replicas.close()


def threads_of(model: nn.Module) -> Tensor:
    logits: Tensor = model(*torch.ones(2, 64, 20, dtype=torch.int64))  # by all threads
    return logits.sum() * 0 + torch.get_num_threads()


def test_replicas_share_the_threads_and_end_with_their_parent() -> None:
    torch.set_num_threads(6)
    replicas = Replicas(make(), 3)
    assert replicas.backward(threads_of, [(), (), ()]) == [2, 2, 2]
    replicas.processes[1].terminate()  # ignored: a signal to all processes lets the parent finish its step
    assert replicas.backward(threads_of, [(), (), ()]) == [2, 2, 2]
    replicas.processes[0].kill()
    with pytest.raises(LostRankError, match="a process of --replicas has ended"):
        replicas.backward(threads_of, [(), (), ()])
    replicas.connections[1].close()  # as the kernel does when the parent ends
    replicas.processes[1].join(10)
    assert replicas.processes[1].exitcode == 0
    torch.set_num_threads(1)  # as in conftest.py
