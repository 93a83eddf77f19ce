"""The report of a run: curves, evaluation, and the page."""

import pytest
from conftest import SOURCE, TARGET, FiveRun

from nmt.evaluate import score
from nmt.insight.report import evaluated
from nmt.run.directory import RunDirectory


def test_an_evaluation_has_scores_extremes_and_groups(five_run: FiveRun) -> None:
    config = RunDirectory(five_run.run).read_config()
    translations = [TARGET[0], "something else .", *TARGET[2:]]
    found = evaluated("test", SOURCE, TARGET, translations, config)
    assert [one.name for one in found["scores"]] == ["BLEU", "chrF2", "TER"]
    assert found["scores"][0].value == score(translations, [TARGET], ("bleu",))[0].value
    assert found["scores"][0].low is not None
    assert found["worst"][0].source == SOURCE[1]
    assert found["best"][0].chrf == [pytest.approx(100)]
    assert sum(group.n_lines for group in found["lengths"]) == found["n_lines"] == 5


def test_an_evaluation_without_spaces_has_no_ter(five_run: FiveRun) -> None:
    config = RunDirectory(five_run.run).read_config()
    lines = ["รถไฟออกเก้าโมง", "เธอมีสุนัขสองตัว"]
    found = evaluated("test", ["", ""], lines, lines, config)
    assert [score.name for score in found["scores"]] == ["BLEU", "chrF2"]
    assert found["left_out"].startswith("TER is left out: ")
    assert [group.bleu for group in found["lengths"]] == [[pytest.approx(100)]]
