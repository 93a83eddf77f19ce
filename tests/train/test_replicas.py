"""Processes that share a step; reliability/test_training_random.py has their gradient."""

import copy
from collections.abc import Iterator
from itertools import chain

import pytest
import torch
from models import fresh, gradient, random_batch
from torch import Tensor, nn

from nmt.config import TrainSettings
from nmt.errors import LostRankError
from nmt.model.base import Seq2Seq
from nmt.text.batches import Batch, collate
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, forward_backward, shares_of, train_step

SETTINGS = TrainSettings()


def make(dropout: float = 0.0) -> Seq2Seq:
    torch.manual_seed(1)
    return fresh(dropout=dropout)


def batches_of_5(n_batches: int) -> list[Batch]:
    """Return batches of five pairs, with lines that go on from batch to batch."""
    return [random_batch(5, first=5 * i) for i in range(n_batches)]


@pytest.mark.parametrize("n_replicas", range(1, 7))
@pytest.mark.parametrize("n_batches", range(1, 5))
def test_every_pair_is_in_one_share(n_batches: int, n_replicas: int) -> None:
    shares = shares_of(batches_of_5(n_batches), n_replicas)
    lines = [part.lines for part in chain(*shares)]
    n_pairs = 5 * n_batches
    result = sorted(chain(*lines))
    assert result == list(range(n_pairs))
    # Equally many batches, because ranks wait for each other.
    n_parts = {len(share) for share in shares}
    assert len(n_parts) == 1


def test_batches_are_not_split_if_there_are_enough() -> None:
    batches = batches_of_5(4)
    first, second = shares_of(batches, 2)
    assert list(first) == batches[::2]
    assert list(second) == batches[1::2]


@pytest.mark.parametrize(("dropout", "is_equal"), [(0.0, True), (0.3, False)])
def test_each_drops_out_something_else(dropout: float, *, is_equal: bool) -> None:
    """Of two replicas with the same pair, the mean loss has the gradient of one, but for dropout."""
    settings = TrainSettings(clip_norm=0.0)
    once = collate([[5, 6, 7]], [[8, 9]], [0])
    twice = collate([[5, 6, 7]] * 2, [[8, 9]] * 2, [0, 1])
    one = gradient(make(dropout), [once], settings, n=1)["source_embedding.weight"]
    two = gradient(make(dropout), [twice], settings, n=2)["source_embedding.weight"]
    assert torch.allclose(one, two, atol=1e-6) == is_equal


def losses(n_replicas: int) -> list[float]:
    """Train four steps, then the first one again with the first weights; return the losses."""
    model = make()
    before = copy.deepcopy(model.state_dict())
    replicas, optimizers = Replicas(model, n_replicas), make_optimizers(model, SETTINGS)
    found: list[float] = []
    for seed in (0, 1, 2, 3, 0):
        if len(found) == 4:
            model.load_state_dict(before)
        options = StepOptions(SETTINGS, 3e-2, seed)
        figures = train_step(replicas, optimizers, [random_batch(7)], options)
        found.append(figures.loss)
    replicas.close()
    return found


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_have_the_weights_of_one_also_after_weights_were_loaded(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.train.replicas.METHOD", method)
    expected = losses(1)
    assert expected[3] < 0.9 * expected[0]
    assert expected[4] == expected[0]
    result = losses(2)
    assert result == pytest.approx(expected, rel=1e-4)


def fails_in(model: nn.Module, number: int) -> Tensor:
    if number == 1:
        raise ValueError("of a replica")
    options = StepOptions(SETTINGS, lr=0.0, seed=1)
    return forward_backward(model, [random_batch(3)], options, 1.0, number)


@pytest.mark.parametrize("shares", [[(0,), (1,)], [(1,), (0,)]], ids=["the other process", "this one"])
def test_the_error_of_a_replica_is_raised_and_leaves_no_gradient_behind(shares: list[tuple[int]]) -> None:
    model = make()
    expected = gradient(model, [random_batch(7)], SETTINGS, n=2)
    replicas = Replicas(model, 2)
    with pytest.raises(ValueError, match="of a replica"):
        replicas.backward(fails_in, shares)
    # The next step has the gradient of its own batch.
    train_step(replicas, [], [random_batch(7)], StepOptions(SETTINGS, lr=0.0, seed=1))
    replicas.close()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, expected[name], rtol=0, atol=0)


def threads_of(model: nn.Module) -> Tensor:
    logits: Tensor = model(*torch.ones(2, 64, 20, dtype=torch.int64))  # by all threads
    return logits.sum() * 0 + torch.get_num_threads()


@pytest.fixture
def three_replicas() -> Iterator[Replicas]:
    """Replicas that share six threads."""
    torch.set_num_threads(6)
    yield Replicas(make(), 3)
    torch.set_num_threads(1)  # as in conftest.py


def test_replicas_share_the_threads(three_replicas: Replicas) -> None:
    assert three_replicas.backward(threads_of, [(), (), ()]) == [2, 2, 2]
    three_replicas.close()


def test_a_signal_to_all_processes_lets_the_parent_finish_its_step(three_replicas: Replicas) -> None:
    three_replicas.backward(threads_of, [(), (), ()])  # from then on, they ignore it
    three_replicas.processes[1].terminate()
    assert three_replicas.backward(threads_of, [(), (), ()]) == [2, 2, 2]
    three_replicas.close()


def test_a_replica_that_was_killed_is_an_error(three_replicas: Replicas) -> None:
    three_replicas.processes[0].kill()
    with pytest.raises(LostRankError, match="a process of --replicas has ended"):
        three_replicas.backward(threads_of, [(), (), ()])
    three_replicas.close()


def test_a_replica_ends_with_its_parent(three_replicas: Replicas) -> None:
    # The kernel closes the connection when the parent ends.
    three_replicas.connections[1].close()
    three_replicas.processes[1].join(10)
    assert three_replicas.processes[1].exitcode == 0
    three_replicas.close()
