"""The settings as `nmt config` lists them, and the languages of a config."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from configs import MINIMAL, OTHER_CORPORA, load
from nmt.config import Data, data_root, language, settings


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def test_the_listing_has_every_setting_with_type_and_help(folder: Path) -> None:
    config = load(folder, MINIMAL, *OTHER_CORPORA)
    rows = list(settings())
    assert [setting.key for setting in rows] == list(leaves(config.model_dump()))
    for setting in rows:
        assert all(setting), setting.key


def test_the_listed_defaults_are_the_defaults(folder: Path) -> None:
    defaults = [f"{key}={default}" for key, _, default, _ in settings() if default not in ("required", "-")]
    assert len(defaults) > 30
    assert load(folder, MINIMAL, *defaults) == load(folder, MINIMAL)


LANGUAGES = [
    # source, target, data.source_lang, both languages
    ("train.zh", "train.en", "", ("zh", "en")),
    ("train.cmn.gz", "train.eng.gz", "", ("cmn", "eng")),
    ("x/train.zh", "train.en", "de", ("de", "en")),
    ("train.txt", "train", "", ("", "")),
    ("train.source", "train.e", "", ("", "")),
    ("zh", "train.zh.txt", "", ("", "")),
]


@pytest.mark.parametrize(("source", "target", "source_lang", "expected"), LANGUAGES)
def test_a_language_is_set_or_the_suffix(source: str, target: str, source_lang: str, expected: tuple[str, str]) -> None:
    files = {"source": [source, "other.xx"], "target": target}
    data = Data.model_validate({"train": files, "source_lang": source_lang})
    assert (language(data, "source"), language(data, "target")) == expected


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
    assert data_root("../corpus") == Path("../corpus")
    assert data_root("/corpus") == Path("/corpus")
    assert data_root("") == Path()


def test_a_root_that_exists_stays_as_it_is_unless_it_is_a_file(project: Path) -> None:
    for place in ("../shared/data/corpus", "data/downloads/corpus"):
        (project / place).mkdir(parents=True)
    assert data_root("../shared/data/corpus") == Path("../shared/data/corpus")
    (project / "corpus").write_text("")
    assert data_root("corpus") == Path("data/downloads/corpus")
