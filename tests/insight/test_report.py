"""The report of a run: curves, evaluation, and the page."""

import pytest
from conftest import SOURCE, TARGET, FiveRun, data_of_page

from nmt.evaluate import score
from nmt.insight.curves import CHARTS
from nmt.insight.report import as_page, evaluated, read_report
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


def test_the_page_holds_one_or_several_runs(five_run: FiveRun) -> None:
    found = read_report(five_run.run)
    assert found["curves"]["step"] == list(range(1, 201))
    assert [one["step"] for one in found["validations"]] == [100, 200]
    page = as_page([found, found])
    data = data_of_page(page)
    assert [chart[0] for chart in data["charts"]] == list(CHARTS)
    assert [run["settings"]["model"]["d_model"] for run in data["runs"]] == [64, 64]
