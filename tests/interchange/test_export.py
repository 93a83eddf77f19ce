"""Shared by all exports: what may be replaced, and the log-probabilities that engines are compared on."""

import sys
from pathlib import Path

import pytest
from conftest import FiveRun, one_clear_error, run_nmt

from nmt.errors import InputError
from nmt.interchange.export import check_replaceable


def test_only_an_export_or_an_empty_directory_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_replaceable(tmp_path / "new", {"a", "b"}, "a")
    check_replaceable(tmp_path, {"a", "b"}, "a")
    (tmp_path / "b").write_text("")
    with pytest.raises(InputError, match="is not an export"):
        check_replaceable(tmp_path, {"a", "b"}, "a")
    (tmp_path / "a").write_text("")
    check_replaceable(tmp_path, {"a", "b"}, "a")
    (tmp_path / "loop").symlink_to("loop")
    for taken in ("a", "loop", ""):
        with pytest.raises(InputError, match="is not an export"):
            check_replaceable(tmp_path / taken, {"a", "b"}, "a")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="it is in use"):
        check_replaceable(Path(), {"a", "b"}, "a")


@pytest.mark.parametrize(
    ("to", "library", "install"),
    [("argos", "langcodes", "langcodes[data]"), ("ctranslate2", "CTranslate2", "ctranslate2>=4.8.5'")],
)
def test_an_export_without_its_package_is_one_clear_error(
    five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, library: str, install: str
) -> None:
    monkeypatch.setitem(sys.modules, library.lower(), None)
    done = run_nmt("export", "-m", five_run.run, "--to", to, "-o", tmp_path / "out")
    assert f"hint: pip install '{install}" in one_clear_error(done, 2, f"{library} is not installed")
    assert not (tmp_path / "out").exists()
