"""The thread tuner, on a simulated machine whose speed depends on the number of threads."""

import time

import pytest
import torch

from nmt.decode.engines.threads import FIRST_TRY, TRY_EVERY, ThreadTuner
from nmt.model.kernels import parallel_is_faster

SMALL, LARGE = 5, 320  # hypotheses of a batch


class Machine:
    """Replaces torch's number of threads and the clock, which `run` advances by the given duration of each batch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n_threads: int = 2) -> None:
        self.now, self.n_threads, self.is_idle = 0.0, n_threads, True
        monkeypatch.setattr("nmt.decode.engines.threads.parallel_is_faster", lambda _n: self.is_idle)
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(torch, "get_num_threads", lambda: self.n_threads)
        monkeypatch.setattr(torch, "set_num_threads", self.set_num_threads)

    def set_num_threads(self, n: int) -> None:
        self.n_threads = n

    def run(self, tuner: ThreadTuner, seconds: dict[int, float], n_batches: int, n_hypotheses: int) -> list[int]:
        """Run batches that take `seconds`, by number of threads. Returns the number of threads used for each."""
        used = []
        for _ in range(n_batches):
            with tuner.batch(n_hypotheses, n_tokens=10):
                used.append(self.n_threads)
                self.now += seconds[self.n_threads]
            assert self.n_threads == tuner.n_threads
        return used


def test_the_fastest_number_of_threads_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, tuner = Machine(monkeypatch, 16), ThreadTuner(1_000_000, 16)
    used = machine.run(tuner, {1: 3.0, 4: 1.0, 16: 2.0}, 3 * TRY_EVERY, LARGE)
    assert used[: FIRST_TRY + 2] == [16] * FIRST_TRY + [1, 16]
    assert used[TRY_EVERY + FIRST_TRY] == 4
    assert used.count(4) > TRY_EVERY


def test_when_the_load_changes_so_does_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, tuner = Machine(monkeypatch), ThreadTuner(1_000_000, 2)
    assert machine.run(tuner, {1: 2.0, 2: 1.0}, TRY_EVERY, LARGE)[-1] == 2
    used = machine.run(tuner, {1: 2.0, 2: 9.0}, 2 * TRY_EVERY, LARGE)
    assert used.count(2) <= 3
    assert machine.run(tuner, {1: 2.0, 2: 1.0}, 2 * TRY_EVERY, LARGE)[-1] == 2


def test_small_batches_begin_with_one_thread_and_have_times_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, tuner = Machine(monkeypatch), ThreadTuner(1_000_000, 2)
    assert machine.run(tuner, {1: 1.0, 2: 2.0}, 1, SMALL) == [1]
    assert machine.run(tuner, {1: 2.0, 2: 1.0}, 1, LARGE) == [2]
    assert machine.run(tuner, {1: 2.0, 2: 1.0}, TRY_EVERY, SMALL)[-1] == 2
    assert machine.run(tuner, {1: 1.0, 2: 2.0}, TRY_EVERY, LARGE)[-1] == 1


def test_a_busy_machine_begins_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, tuner = Machine(monkeypatch), ThreadTuner(1_000_000, 2)
    machine.is_idle = False
    assert machine.run(tuner, {1: 1.0, 2: 2.0}, 3, LARGE) == [1, 1, 1]


def test_timing_matmuls_says_yes_or_no() -> None:
    before = torch.get_num_threads()
    assert parallel_is_faster(2) in (True, False)
    assert torch.get_num_threads() == before


def test_one_thread_is_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, tuner = Machine(monkeypatch, 1), ThreadTuner(1_000_000, 1)
    assert machine.run(tuner, {1: 1.0}, 3, LARGE) == [1, 1, 1]


def test_an_interrupted_batch_restores_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, tuner = Machine(monkeypatch), ThreadTuner(1_000_000, 2)
    with pytest.raises(KeyboardInterrupt), tuner.batch(SMALL, n_tokens=1):
        raise KeyboardInterrupt
    assert machine.n_threads == 2
    assert not tuner.seconds[SMALL.bit_length()]
