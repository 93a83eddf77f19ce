"""Comparisons of systems: sacreBLEU's figures, wins, and the page."""

import json
from dataclasses import asdict

from conftest import data_of_page

from nmt.cli.tables import comparison_text as as_text
from nmt.evaluate import ScoreSettings, choose_settings
from nmt.insight.compare import EvaluationSet, Wins, as_page, compare

SOURCES = ["der Hund läuft", "er hat 3 Katzen", "2 mal 4", "das ist ein sehr langer Satz über Aardvarks", "ja"]
REFERENCES = ["the dog runs", "he has 3 cats", "2 times 4", "this is a very long sentence about aardvarks", "yes"]
BASELINE = ["the dog runs", "he has 5 cats", "2 times 4", "this is a very long sentence about animals", "no"]
OTHER = ["a hound runs", "he has 3 cats", "2 times 7", "this is a very long sentence about Aardvarks!", "no"]

TEST_SET = EvaluationSet("five lines", SOURCES, [REFERENCES], ScoreSettings())


def test_wins_are_counted_by_sentence_chrf_in_each_group() -> None:
    found = compare(["a", "b"], [BASELINE, OTHER], TEST_SET, n_trials=20)
    (groups,) = found.groups.values()
    assert list(found.groups) == ["words of the source"]
    assert {group.name: group.wins for group in groups} == {"1 to 5": [Wins(1, 1, 2)], "6 to 10": [Wins(1, 0, 0)]}
    assert [group.n_lines for group in groups] == [4, 1]


def test_the_lines_that_differ_most_come_first() -> None:
    (differing,) = compare(["a", "b"], [BASELINE, OTHER], TEST_SET, n_trials=20).differing
    assert {line.number for line in differing["better"]} == {2, 4}
    assert {line.number for line in differing["worse"]} == {1, 3}
    for line in (*differing["better"], *differing["worse"]):
        assert line.translations == [BASELINE[line.number - 1], OTHER[line.number - 1]]
    gains = [line.chrf[1] - line.chrf[0] for line in differing["better"]]
    assert gains == sorted(gains, reverse=True)


def test_sources_may_be_unknown() -> None:
    plain = EvaluationSet("lines", None, [["a b c", "d e"], ["a b", "d"]], ScoreSettings())
    found = compare(["a", "b", "c"], [["a b", "d e"], ["a c", "e"], ["", ""]], plain, n_trials=20)
    assert list(found.groups) == ["words of the reference"]
    assert len(found.differing) == 2
    assert "reference  a b c" in "\n".join(as_text(found))


def test_text_json_and_page_hold_the_same_figures() -> None:
    found = compare(["runs/<a>", "b"], [BASELINE, OTHER], TEST_SET, n_trials=20)
    tree = json.loads(json.dumps(asdict(found)))
    bleu = tree["scores"][0]["systems"][1]
    text = as_text(found)
    assert text[:3] == ["A  runs/<a>  (baseline)", "B  b", "5 lines of five lines"]
    row = next(line for line in text if line.startswith("BLEU   B"))
    assert row.split()[2] == f"{bleu['value']:.2f}"
    assert row.split()[-1] == f"{bleu['difference']['p_value']:.4f}"
    page = as_page(found)
    assert data_of_page(page) == tree
    assert "runs/<a>" not in page


def test_thai_is_compared_without_ter() -> None:
    lines = ["รถไฟออกเก้าโมง", "เธอมีสุนัขสองตัว"]
    test_set = EvaluationSet("Thai", None, [lines], choose_settings("", [lines]))
    found = compare(["a", "b"], [lines, lines[::-1]], test_set, n_trials=20)
    assert [score.name for score in found.scores] == ["BLEU", "chrF2"]
    assert "|tok:char|" in found.scores[0].signature
    assert any(line.startswith("TER is left out: ") for line in as_text(found))
    assert "TER is left out: " in as_page(found)
