"""The report of a run: curves, evaluation, and the page."""

import pytest
from conftest import SOURCE, TARGET, FiveRun

from nmt.config import Config
from nmt.evaluate import score
from nmt.insight.report import evaluated
from nmt.run.directory import RunDirectory


@pytest.fixture
def config(five_run: FiveRun) -> Config:
    return RunDirectory(five_run.run).read_config()


def test_an_evaluation_has_scores_with_intervals(config: Config) -> None:
    translations = [TARGET[0], "something else .", *TARGET[2:]]
    evaluation = evaluated("test", SOURCE, TARGET, translations, config)
    bleu, chrf, ter = evaluation["scores"]
    assert [bleu.name, chrf.name, ter.name] == ["BLEU", "chrF2", "TER"]
    (expected,) = score(translations, [TARGET], ("bleu",))
    assert bleu.value == expected.value
    assert bleu.low is not None


def test_an_evaluation_has_extremes_and_groups(config: Config) -> None:
    translations = [TARGET[0], "something else .", *TARGET[2:]]
    evaluation = evaluated("test", SOURCE, TARGET, translations, config)
    # The second translation is wrong, the others are the references.
    assert evaluation["worst"][0].source == SOURCE[1]
    assert evaluation["best"][0].chrf == [pytest.approx(100)]
    n_lines = sum(group.n_lines for group in evaluation["lengths"])
    assert n_lines == evaluation["n_lines"] == 5
