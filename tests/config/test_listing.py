"""The settings as `nmt config` lists them, and the languages of a config."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from configs import MINIMAL, OTHER_CORPORA, cases, load
from nmt.config import Data, data_root, language, settings


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def test_the_listing_has_every_setting_with_type_and_help(folder: Path) -> None:
    config = load(folder, MINIMAL, *OTHER_CORPORA)
    keys = []
    for setting in settings():
        assert all(setting), setting.key
        keys.append(setting.key)
    assert keys == list(leaves(config.model_dump()))


def test_the_listed_defaults_are_the_defaults(folder: Path) -> None:
    defaults = []
    for setting in settings():
        if setting.default not in ("required", "-"):
            defaults.append(f"{setting.key}={setting.default}")
    assert len(defaults) > 30
    result = load(folder, MINIMAL, *defaults)
    assert result == load(folder, MINIMAL)


# The files of both sides, and their languages.
LANGUAGES = """
train.zh train.en → zh en
train.cmn.gz train.eng.gz → cmn en
x/train.txt train.en → ? en
train.source train.e → ? ?
zh train.zh.txt → ? zh
"""


@pytest.mark.parametrize(("files", "expected"), cases(LANGUAGES))
def test_a_language_is_the_suffix_of_the_first_file(files: str, expected: str) -> None:
    source, target = files.split()
    data = Data.model_validate({"train": {"source": [source, "other.xx"], "target": target}})
    languages = [language(data, side) or "?" for side in ("source", "target")]
    assert " ".join(languages) == expected


def test_a_language_may_be_set() -> None:
    data = Data.model_validate({"train": {"source": "x/train.zh", "target": "train.en"}, "source_lang": "de"})
    assert language(data, "source") == "de"
    assert language(data, "target") == "en"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory. NMT_DATA is another directory, `data` beside it."""
    path = tmp_path / "project"
    path.mkdir()
    monkeypatch.chdir(path)
    monkeypatch.setenv("NMT_DATA", str(tmp_path / "data"))
    return path


def test_the_first_place_that_exists(project: Path, tmp_path: Path) -> None:
    assert data_root("corpus") == Path("corpus"), "as it is, if there is none"
    for place in ("shared/data/corpus", "project/data/downloads/corpus", "data/corpus", "project/corpus"):
        (tmp_path / place).mkdir(parents=True)
        assert data_root("corpus").resolve() == tmp_path / place


def test_places_are_not_searched_for_paths_that_lead_elsewhere(project: Path, tmp_path: Path) -> None:
    (project / "data/downloads/corpus").mkdir(parents=True)
    (project / "data/absolute").mkdir()
    result = data_root("../corpus")
    assert result == Path("../corpus")
    assert data_root("/corpus") == Path("/corpus")
    assert data_root("") == Path()


def test_a_root_that_exists_stays_as_it_is_unless_it_is_a_file(project: Path) -> None:
    for place in ("../shared/data/corpus", "data/downloads/corpus"):
        (project / place).mkdir(parents=True)
    result = data_root("../shared/data/corpus")
    assert result == Path("../shared/data/corpus")
    (project / "corpus").write_text("")
    assert data_root("corpus") == Path("data/downloads/corpus")
