"""The report of a run: curves, faults, and the page."""

import pytest
from conftest import SOURCE, TARGET, FiveRun, data_of_page

from nmt.evaluate import score
from nmt.insight.compare import ComparedLine
from nmt.insight.curves import CHARTS
from nmt.insight.report import as_page, evaluated, find_faults, read_report
from nmt.run.directory import RunDirectory


def line(source: str, reference: str, translation: str) -> ComparedLine:
    return ComparedLine(1, source, reference, [translation], [50.0])


USUAL = [line("ein kleiner Satz mit Wörtern", "a small sentence with words", "a short sentence with words")] * 20


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("empty", line("ein Satz", "a sentence", "")),
        ("repetition", line("ein Satz mit Wörtern", "a sentence with words", "a sentence a sentence a sentence")),
        ("source copied", line("ein kleiner Satz da", "a small sentence there", "ein kleiner Satz da")),
        ("much too short", line("ein kleiner Satz mit vielen Wörtern", "a small sentence with many words", "a")),
        ("much too long", line("ein Satz", "a sentence", "a sentence that goes on with words that nobody wrote here")),
        ("other numbers", line("er hat 1.234 Euro", "he has 1,234 euros", "he has 1,235 euros")),
    ],
)
def test_each_fault_is_found_and_usual_lines_are_not_accused(name: str, odd: ComparedLine) -> None:
    found = {fault.name: fault for fault in find_faults([*USUAL, odd])}
    assert found[name].n_lines == 1
    assert found[name].share == pytest.approx(1 / 21)
    assert found[name].examples == [odd]


def test_usual_lines_and_what_the_reference_does_too_are_no_faults() -> None:
    alike = [line("er hat zwei", "he has 2", "he has 2"), line("ja ja ja ja", "yes yes yes yes", "yes yes yes yes")]
    assert find_faults([*USUAL, *alike]) == []
    assert find_faults([line("我们 好", "我们好", "我们好")] * 3) == []


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
