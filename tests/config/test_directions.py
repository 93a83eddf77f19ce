"""Lists of corpora in a config, and the directions that they name."""

from pathlib import Path

import pytest

from configs import cases, fault, load
from nmt.config import chosen_direction, dump_config, language
from nmt.errors import ConfigError

SEVERAL = """run: r
data:
  root: /c
  train:
    - {source: a.de, target: a.en, languages: de-en}
    - {source: a.en, target: a.de, languages: en-de, root: /x}
    - {source: a.fr, target: a.en, languages: fr-en}
  dev: [{source: d.de, target: d.en, languages: de-en}]
"""


# By an override: what is said about it.
MISFITS = """
data.train=[] → demo.yaml:2: train needs corpora that have languages
data.train=[{source: a, target: b}] → demo.yaml:2: dev must be a corpus, as train is
data.train=[{source: a, target: b, languages: de}] → 'data.train.0.languages': input should be two
data.dev=null → dev needs corpora that have languages, such as de-en
data.dev={source: a, target: b} → dev needs corpora that have languages, such as de-en
data.dev=[{source: a, target: b, languages: en-fr}] → dev has en-fr, but train has no corpus into that
data.concatenate=0.5 → concatenate needs a corpus of one direction in train
data.mix={x: {source: a, target: b, weight: 0.1}} → mix and target_tag do not go with a list of corpora
data.train=3 → 'data.train': input should be a valid dictionary or instance of Files, got 3
"""


@pytest.mark.parametrize(("override", "message"), cases(MISFITS))
def test_a_list_of_corpora_that_does_not_fit_is_named(folder: Path, override: str, message: str) -> None:
    assert message in fault(folder, SEVERAL, override)


def test_the_line_of_a_fault_in_a_list_is_named(folder: Path) -> None:
    faulty = SEVERAL.replace("root: /x", "sorce: x")
    expected = "demo.yaml:6: unknown key 'data.train.1.sorce' (did you mean 'data.train.source'?)"
    assert fault(folder, faulty) == expected


def test_a_list_of_corpora_has_several_directions_and_languages(folder: Path) -> None:
    data = load(folder, SEVERAL).data
    assert data.directions == ["de-en", "en-de", "fr-en"]
    assert data.targets == ["en", "de"]
    assert language(data, "source") == language(data, "target") == ""


def test_the_config_of_a_direction_has_its_corpora(folder: Path) -> None:
    config = load(folder, SEVERAL, "data.temperature=5")
    data = config.direction("en-de").data
    assert language(data, "source") == "en"
    assert language(data, "target") == "de"
    assert data.target_tag == "de"
    assert data.train == config.data.train[1:2]
    assert data.dev == ()
    assert data.directions == []
    result = config.direction("de-en").data.dev
    assert result == config.data.dev


@pytest.mark.parametrize("languages", ["", "en-de", "en"])
def test_a_config_of_several_directions_and_of_one_are_read_back_as_written(folder: Path, languages: str) -> None:
    config = load(folder, SEVERAL, "data.temperature=5")
    if languages:
        config = config.direction(languages)
    result = load(folder, dump_config(config))
    assert result == config


def test_a_direction_is_meant_by_its_target_if_no_other_has_it(folder: Path) -> None:
    data = load(folder, SEVERAL).data
    result = chosen_direction(data, ["en", "de"], "de")
    assert result == "en-de"
    assert chosen_direction(data, ["en", "de"], "en") == "en"


@pytest.mark.parametrize("direction", ["de-en", "fr-de"])
def test_a_direction_may_be_one_without_training_pairs(folder: Path, direction: str) -> None:
    # Both languages of fr-de have some.
    data = load(folder, SEVERAL).data
    result = chosen_direction(data, ["en", "de"], direction)
    assert result == direction


@pytest.mark.parametrize("asked", ["", "fr", "de-fr", "xx-de"])
def test_a_direction_that_a_model_does_not_have_is_refused(folder: Path, asked: str) -> None:
    data = load(folder, SEVERAL).data
    with pytest.raises(ConfigError, match=r"the model (does not translate|translates de-en, en-de, fr-en)"):
        chosen_direction(data, ["en", "de"], asked)


def test_a_model_of_several_that_was_fine_tuned_in_one_direction_takes_it(folder: Path) -> None:
    # The tags of the model are those of its first training.
    config = load(folder, SEVERAL, "data.train=[{source: b.de, target: b.en, languages: de-en}]")
    result = chosen_direction(config.data, ["en", "de"], "")
    assert result == "de-en"
