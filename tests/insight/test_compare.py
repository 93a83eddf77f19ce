"""Comparisons of systems: sacreBLEU's figures, wins, rare words, numbers, and the page."""

import json
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from nmt.errors import InputError
from nmt.insight import comet
from nmt.insight.compare import EvaluationSet, Wins, as_json, as_page, as_text, compare

SOURCES = ["der Hund läuft", "er hat 3 Katzen", "2 mal 4", "das ist ein sehr langer Satz über Aardvarks", "ja"]
REFERENCES = ["the dog runs", "he has 3 cats", "2 times 4", "this is a very long sentence about aardvarks", "yes"]
BASELINE = ["the dog runs", "he has 5 cats", "2 times 4", "this is a very long sentence about animals", "no"]
OTHER = ["a hound runs", "he has 3 cats", "2 times 7", "this is a very long sentence about Aardvarks!", "no"]
TRAINING = ["the dog is a dog", "a cat runs", "this is a very long sentence"] * 10 + ["about time"]

TEST_SET = EvaluationSet("five lines", SOURCES, [REFERENCES], "en", "13a")


def test_wins_are_counted_by_sentence_chrf_in_each_group() -> None:
    found = compare(["a", "b"], [BASELINE, OTHER], TEST_SET, n_trials=20)
    by_length, by_rarity, by_numbers = found.groups.values()
    assert {group.name: group.wins for group in by_length} == {"1 to 5": [Wins(1, 1, 2)], "6 to 10": [Wins(1, 0, 0)]}
    assert list(found.groups) == [
        "words of the source",
        "occurrences of the rarest word in the references",
        "numbers to copy",
    ]
    assert {group.name: group.n_lines for group in by_numbers} == {"none": 3, "one or more": 2}
    for groups in found.groups.values():
        assert sum(group.n_lines for group in groups) == 5
    assert by_length[0].bleu[0] != by_length[0].bleu[1]
    assert by_rarity[0].name == "1"


def test_words_are_rare_in_the_training_corpus_and_numbers_are_copied() -> None:
    found = compare(["a", "b"], [BASELINE, OTHER], TEST_SET, n_trials=20, training=("training", iter(TRAINING)))
    words, copied = found.recalls.values()
    by_name = {recall.name: recall for recall in words}
    assert sum(recall.n for recall in words) == sum(len(line.split()) for line in REFERENCES)
    never = ["he", "has", "3", "cats", "2", "times", "4", "aardvarks", "yes"]
    assert by_name["0"].n == len(never)
    assert by_name["0"].share == pytest.approx([6 / 9, 7 / 9])
    assert by_name["1"].share == [1.0, 1.0], "about"
    assert copied[0].n == 3
    assert copied[0].share == pytest.approx([2 / 3, 2 / 3])


def test_the_lines_that_differ_most_come_first() -> None:
    (differing,) = compare(["a", "b"], [BASELINE, OTHER], TEST_SET, n_trials=20).differing
    assert {line.number for line in differing.better} == {2, 4}
    assert {line.number for line in differing.worse} == {1, 3}
    for line in (*differing.better, *differing.worse):
        assert line.translations == [BASELINE[line.number - 1], OTHER[line.number - 1]]
    gains = [line.chrf[1] - line.chrf[0] for line in differing.better]
    assert gains == sorted(gains, reverse=True)


def test_a_system_equals_itself() -> None:
    found = compare(["a", "b"], [OTHER, OTHER], TEST_SET, n_trials=20)
    assert found.differing[0].better == found.differing[0].worse == []
    for score in found.scores:
        difference = score.systems[1].difference
        assert difference is not None
        assert (difference.value, difference.low, difference.high) == (0, 0, 0)


def test_sources_and_numbers_may_be_unknown() -> None:
    plain = EvaluationSet("lines", None, [["a b c", "d e"], ["a b", "d"]], "en", "13a")
    found = compare(["a", "b", "c"], [["a b", "d e"], ["a c", "e"], ["", ""]], plain, n_trials=20)
    assert list(found.groups) == ["words of the reference", "occurrences of the rarest word in the references"]
    assert len(found.differing) == 2
    assert len(found.recalls) == 1
    assert "reference  a b c" in "\n".join(as_text(found))


def test_chinese_words_are_characters() -> None:
    chinese = EvaluationSet("lines", None, [["我喜欢茶。"]], "zh", "zh")
    found = compare(["a", "b"], [["我喜欢。"], ["你好"]], chinese, n_trials=20, training=("training", ["我 喜欢"]))
    (words,) = found.recalls.values()
    assert {recall.name: recall.share for recall in words} == {"0": [0.0, 0.0], "1": [1.0, 0.0]}


def test_text_json_and_page_hold_the_same_figures() -> None:
    found = compare(["runs/<a>", "b"], [BASELINE, OTHER], TEST_SET, n_trials=20)
    tree = json.loads(as_json(found))
    bleu = tree["scores"][0]["systems"][1]
    text = as_text(found)
    assert text[:3] == ["A  runs/<a>  (baseline)", "B  b", "5 lines of five lines"]
    row = next(line for line in text if line.startswith("BLEU   B"))
    assert row.split()[2] == f"{bleu['value']:.2f}"
    assert row.split()[-1] == f"{bleu['difference']['p_value']:.4f}"
    page = as_page(found)
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(block) == tree
    assert "runs/<a>" not in page


# --- COMET ------------------------------------------------------------------------------------------------


class FakeModel:
    """Scores a translation 1 if it equals its reference, else 0."""

    def predict(self, samples: list[dict[str, str]], **_: Any) -> SimpleNamespace:
        assert all(set(sample) == {"src", "mt", "ref"} for sample in samples)
        return SimpleNamespace(scores=[float(sample["mt"] == sample["ref"]) for sample in samples])


def test_comet_goes_through_the_same_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(download_model=lambda name: f"{name}.ckpt", load_from_checkpoint=lambda _: FakeModel())
    monkeypatch.setitem(sys.modules, "comet", fake)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.2.0")
    metric = comet.Comet(SOURCES, REFERENCES, "Some/model")
    score = compare(["a", "b"], [BASELINE, OTHER], TEST_SET, n_trials=200, extra={"comet": metric}).scores[-1]
    assert score.name == "COMET"
    assert [system.value for system in score.systems] == [40.0, 20.0]
    assert score.systems[1].difference is not None
    assert score.systems[1].difference.value == -20.0
    assert score.systems[1].difference.p_value > 0.05
    assert score.signature.endswith("|model:Some/model|version:comet-2.2.0")


def test_comet_that_is_missing_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(InputError, match="COMET is not installed"):
        comet.Comet([], [], "x")

    def fail(_: str) -> None:
        raise KeyError("no such model\nanywhere")

    fake = SimpleNamespace(download_model=fail, load_from_checkpoint=fail)
    monkeypatch.setitem(sys.modules, "comet", fake)
    with pytest.raises(InputError, match="COMET cannot load x: 'no such model"):
        comet.Comet([], [], "x")
