"""The rules of successive halving."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_run import config_of, write_small_corpus

from nmt.errors import ConfigError
from nmt.train.halving import MIN_STEPS, Budget, Candidate, check_candidates, first_rung
from nmt.train.progress import ranking


@pytest.mark.parametrize(("n", "sizes"), [(1, [1]), (2, [2, 1]), (7, [7, 3, 1]), (16, [16, 8, 4, 2, 1])])
def test_each_rung_keeps_half_until_one_is_left(n: int, sizes: list[int]) -> None:
    assert Budget(minutes=1, steps=None).n_survivors(n) == sizes


def test_the_rungs_take_the_time_that_is_given() -> None:
    budget = Budget(minutes=60, steps=None)
    sizes = budget.n_survivors(12)
    first, seconds = first_rung(budget, sizes, step_s=0.05, once_s=10.0)
    trained, total = [0] * 12, 0.0
    for k, n in enumerate(sizes):
        for i in range(n):
            total += 10.0 + 0.05 * (first * 2**k - trained[i])
            trained[i] = first * 2**k
    assert seconds == pytest.approx(total)
    assert 0.99 * 3600 < total <= 3600
    assert first_rung(replace(budget, minutes=None, steps=7), sizes, 1e6, 1e6)[0] == 7


def test_too_little_time_is_refused_with_the_least_that_works() -> None:
    budget = Budget(minutes=1, steps=None)
    with pytest.raises(ConfigError, match="1 minutes are too short for 4 candidates") as caught:
        first_rung(budget, [4, 2, 1], step_s=1.0, once_s=30.0)
    least = float(caught.value.hint.split("--minutes ")[1].split(",")[0])
    assert first_rung(replace(budget, minutes=least), [4, 2, 1], 1.0, 30.0)[0] >= MIN_STEPS


def test_ties_in_bleu_are_broken_by_the_loss_and_divergence_is_last() -> None:
    figures = [None, *({"dev_bleu": bleu, "dev_nll": nll} for bleu, nll in ((0.0, 9.0), (0.0, 3.0), (1.0, 4.0)))]
    assert sorted(figures, key=lambda one: ranking(one, "bleu", "dev_nll")) == figures
    assert [ranking(one, "loss", "dev_nll")[0] for one in figures[1:]] == [-9.0, -3.0, -4.0]


@pytest.mark.parametrize("key", ["run", "train.max_steps", "train.metric", "seed", "tokenizer.type"])
def test_settings_that_cannot_be_compared_are_refused(key: str, tmp_path: Path) -> None:
    config = config_of(write_small_corpus(tmp_path), train__metric="loss")
    with pytest.raises(ConfigError, match=key):
        check_candidates([Candidate({key: "1"}, config), Candidate({key: "2"}, config)])
