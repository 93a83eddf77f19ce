"""The directories that are searched for `data.root`."""

from pathlib import Path

import pytest

from nmt.config import data_root


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
    found = []
    for place in (
        project.parent / "shared/data/corpus",
        project / "data/downloads/corpus",
        tmp_path / "data/corpus",
        project / "corpus",
    ):
        place.mkdir(parents=True)
        found.append(data_root("corpus").resolve() == place)
    assert found == [True] * 4


def test_places_are_not_searched_for_paths_that_lead_elsewhere(project: Path, tmp_path: Path) -> None:
    (project / "data/downloads/corpus").mkdir(parents=True)
    (project / "data/absolute").mkdir()
    assert data_root("../corpus") == Path("../corpus")
    assert data_root("/corpus") == Path("/corpus")
    assert data_root("") == Path()


def test_a_root_that_exists_stays_as_it_is_unless_it_is_a_file(project: Path) -> None:
    """The config.yaml of old runs has such paths, because corpora had no names."""
    for place in ("../shared/data/corpus", "data/downloads/corpus"):
        (project / place).mkdir(parents=True)
    assert data_root("../shared/data/corpus") == Path("../shared/data/corpus")
    (project / "corpus").write_text("")
    assert data_root("corpus") == Path("data/downloads/corpus")
