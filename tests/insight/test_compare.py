"""Comparisons of systems: sacreBLEU's figures, the lines that differ, and the page."""

import json
from dataclasses import asdict

import pytest
from conftest import data_of_page

from nmt.cli.tables import comparison_text
from nmt.evaluate import ScoreSettings, choose_settings
from nmt.insight.compare import Comparison, EvaluationSet, as_page, compare

# By sentence chrF, OTHER is better in lines 2 and 4, and worse in lines 1 and 3.
SOURCES = ["der Hund läuft", "er hat 3 Katzen", "2 mal 4", "das ist ein sehr langer Satz über Aardvarks", "ja"]
REFERENCES = ["the dog runs", "he has 3 cats", "2 times 4", "this is a very long sentence about aardvarks", "yes"]
BASELINE = ["the dog runs", "he has 5 cats", "2 times 4", "this is a very long sentence about animals", "no"]
OTHER = ["a hound runs", "he has 3 cats", "2 times 7", "this is a very long sentence about Aardvarks!", "no"]
THAI = ["รถไฟออกเก้าโมง", "เธอมีสุนัขสองตัว"]


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    test_set = EvaluationSet("five lines", SOURCES, [REFERENCES], ScoreSettings())
    return compare(["runs/<a>", "b"], [BASELINE, OTHER], test_set, n_trials=20)


def test_the_lines_that_differ_most_come_first(comparison: Comparison) -> None:
    (differing,) = comparison.differing
    result = {line.number for line in differing["worse"]}
    assert result == {1, 3}
    found = {line.number for line in differing["better"]}
    assert found == {2, 4}
    gains = []
    for line in differing["better"]:
        before, after = line.chrf
        gains.append(after - before)
    assert gains == sorted(gains, reverse=True)


def test_sources_may_be_unknown() -> None:
    # Two references for each line.
    references = [["a b c", "d e"], ["a b", "d"]]
    test_set = EvaluationSet("lines", [], references, ScoreSettings())
    systems = [["a b", "d e"], ["a c", "e"], ["", ""]]
    found = compare(["a", "b", "c"], systems, test_set, n_trials=20)
    assert len(found.differing) == 2
    (first, *_) = found.differing[0]["worse"]
    assert first.reference == "a b c"


def test_the_text_has_the_figures(comparison: Comparison) -> None:
    lines = comparison_text(comparison)
    assert lines[:3] == ["A  runs/<a>  (baseline)", "B  b", "5 lines of five lines"]
    bleu = comparison.scores[0].systems[1]
    assert bleu.difference
    # The last column is the p-value.
    (row,) = [line.split() for line in lines if line.startswith("BLEU   B")]
    assert row[2] == f"{bleu.value:.2f}"
    assert row[-1] == f"{bleu.difference.p_value:.4f}"


def test_the_page_has_the_figures(comparison: Comparison) -> None:
    page = as_page(comparison)
    fields = json.dumps(asdict(comparison))
    assert data_of_page(page) == json.loads(fields)
    assert "runs/<a>" not in page


def test_thai_is_compared_without_ter() -> None:
    test_set = EvaluationSet("Thai", [], [THAI], choose_settings("", [THAI]))
    found = compare(["a", "b"], [THAI, THAI[::-1]], test_set, n_trials=20)
    result = [score.name for score in found.scores]
    assert result == ["BLEU", "chrF2"]
    assert "|tok:char|" in found.scores[0].signature
    assert "TER is left out: " in "\n".join(comparison_text(found))
    assert "TER is left out: " in as_page(found)
