"""The rules of successive halving."""

from pathlib import Path

import pytest
from small_run import config_of, write_small_corpus

from nmt.errors import ConfigError
from nmt.train.halving import MIN_STEPS, Budget, Candidate, check_candidates, first_rung
from nmt.train.progress import ranking


@pytest.mark.parametrize("sizes", [[1], [7, 3, 1], [16, 8, 4, 2, 1]], ids=str)
def test_each_rung_keeps_half_until_one_is_left(sizes: list[int]) -> None:
    budget = Budget(minutes=1, steps=None)
    assert budget.n_survivors(sizes[0]) == sizes


def test_the_rungs_take_the_time_that_is_given() -> None:
    sizes = [12, 6, 3, 1]
    first, seconds = first_rung(Budget(minutes=60, steps=None), sizes, step_s=0.05, once_s=10.0)
    total = 0.0
    steps_before = 0
    for rung, n_candidates in enumerate(sizes):
        n_steps = first * 2**rung
        total += n_candidates * (10.0 + 0.05 * (n_steps - steps_before))
        steps_before = n_steps
    # Each training goes on from the rung before.
    assert seconds == pytest.approx(total)
    assert 0.99 * 3600 < total <= 3600


def test_steps_that_are_given_are_those_of_the_first_rung() -> None:
    budget = Budget(minutes=None, steps=7)
    first, _ = first_rung(budget, [2, 1], step_s=1e6, once_s=1e6)
    assert first == 7


def test_too_little_time_is_refused_with_the_least_that_works() -> None:
    with pytest.raises(ConfigError, match="1 minutes are too short for 4 candidates") as caught:
        first_rung(Budget(minutes=1, steps=None), [4, 2, 1], step_s=1.0, once_s=30.0)
    assert caught.value.hint == "give at least --minutes 5, or fewer values"
    enough = Budget(minutes=5, steps=None)
    first, _ = first_rung(enough, [4, 2, 1], step_s=1.0, once_s=30.0)
    assert first >= MIN_STEPS


# Figures of candidates.
DIVERGED = None
FIGURES = {"dev_bleu": 0.0, "dev_nll": 9.0}
LOWER_LOSS = {"dev_bleu": 0.0, "dev_nll": 3.0}
HIGHER_BLEU = {"dev_bleu": 1.0, "dev_nll": 4.0}


def test_ties_in_bleu_are_broken_by_the_loss_and_divergence_is_last() -> None:
    worst_first = [DIVERGED, FIGURES, LOWER_LOSS, HIGHER_BLEU]
    shuffled = [HIGHER_BLEU, FIGURES, DIVERGED, LOWER_LOSS]
    assert sorted(shuffled, key=lambda figures: ranking(figures, "bleu", "dev_nll")) == worst_first


def test_of_losses_the_lower_one_is_better() -> None:
    assert ranking(LOWER_LOSS, "loss", "dev_nll") > ranking(HIGHER_BLEU, "loss", "dev_nll")
    assert ranking(FIGURES, "loss", "dev_nll") > ranking(DIVERGED, "loss", "dev_nll")


@pytest.mark.parametrize("key", ["run", "train.max_steps", "train.metric", "seed", "tokenizer.type"])
def test_settings_that_cannot_be_compared_are_refused(key: str, tmp_path: Path) -> None:
    config = config_of(write_small_corpus(tmp_path), train__metric="loss")
    with pytest.raises(ConfigError, match=key):
        check_candidates([Candidate({key: "1"}, config)])
