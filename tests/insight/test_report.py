"""The report of a run: curves, faults, and the page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import SOURCE, TARGET, FiveRun

from nmt.evaluate import score
from nmt.insight.curves import CHARTS
from nmt.insight.report import Example, ReportReader, as_page, evaluated, find_faults, read_report
from nmt.run.directory import RunDirectory


def step(n: int, **figures: Any) -> dict[str, Any]:
    figures = {"loss": 2.0, "nll": 1.0, "lr": 0.1, "grad_norm": 1.0, "n_tokens": 10, **figures}
    return {"step": n, "n_real": 18, "n_positions": 20, **figures}


def test_a_report_that_is_read_while_a_run_trains_equals_one_read_at_its_end(five_run: FiveRun, tmp_path: Path) -> None:
    whole = RunDirectory(five_run.run)
    run = RunDirectory(tmp_path / "run")
    run.create()
    run.write_config(whole.read_config())
    reader = ReportReader(run.path)
    lines = whole.read_metrics()
    for i in range(0, len(lines), 50):
        run.append_metrics(*lines[i : i + 50])
        assert reader.read() == read_report(run.path)
    assert not reader.read().is_finished, "there is no checkpoint"
    run.cut_metrics(120)
    run.append_metrics(step(121, elapsed_s=50.0))
    assert reader.read() == read_report(run.path)
    assert reader.read().curves["step"][-1] == 121


def line(source: str, reference: str, translation: str) -> Example:
    return Example(source, reference, translation, 50.0)


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
def test_each_fault_is_found_and_usual_lines_are_not_accused(name: str, odd: Example) -> None:
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
    assert [one.name for one in found.scores] == ["BLEU", "chrF2", "TER"]
    assert found.scores[0].value == score(translations, [TARGET], ("bleu",))[0].value
    assert found.scores[0].low is not None
    assert found.worst[0].source == SOURCE[1]
    assert found.best[0].chrf == pytest.approx(100)
    assert sum(group.n_lines for group in found.lengths) == found.n_lines == 5
    assert [group.name for group in found.lengths] == ["6 to 10", "1 to 5"][::-1][-len(found.lengths) :]


def data_of(page: str) -> Any:
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(block)


def test_the_page_holds_one_or_several_runs(five_run: FiveRun) -> None:
    found = read_report(five_run.run)
    assert found.curves["step"] == list(range(1, 201))
    assert [one["step"] for one in found.validations] == [100, 200]
    assert found.is_finished
    page = as_page([found, found])
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)", page)
    data = data_of(page)
    assert [chart[0] for chart in data["charts"]] == list(CHARTS)
    runs = data["runs"]
    assert len(runs) == 2
    assert runs[0]["settings"]["model"]["d_model"] == 64
    assert runs[0]["manifest"]["seed"] == 1
