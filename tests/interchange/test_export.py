"""Shared by all exports: what may be replaced, and the log-probabilities that engines are compared on."""

import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import FiveRun, file_bytes, one_clear_error, run_nmt
from models import random_translator

from nmt.errors import InputError
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.interchange.export import check_replaceable
from nmt.interchange.huggingface import to_huggingface


def check(path: Path) -> None:
    """Check that an export with three files, two of them needed, may replace what is at a path."""
    check_replaceable(path, {"a", "b", "c"}, ["a", "b"], "ours")


def check_refused(path: Path) -> None:
    with pytest.raises(InputError, match="is not an export"):
        check(path)


def test_nothing_and_an_empty_directory_are_replaced(tmp_path: Path) -> None:
    check(tmp_path / "new")
    check(tmp_path)


def test_an_export_of_ours_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    check_refused(tmp_path)
    (tmp_path / "a").write_text("of another")
    check_refused(tmp_path)
    (tmp_path / "a").write_text("it is ours")
    check(tmp_path)
    # A file that is not of an export.
    (tmp_path / "mine").touch()
    check_refused(tmp_path)


def test_a_file_and_a_loop_of_links_are_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_refused(tmp_path / "file")
    (tmp_path / "loop").symlink_to("loop")
    check_refused(tmp_path / "loop")


def test_the_working_directory_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="it is in use"):
        check(Path())


@pytest.mark.parametrize(("to", "mark"), [(to_ctranslate2, "config.yaml"), (to_huggingface, "README.md")])
def test_a_downloaded_model_with_the_same_file_names_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: Any, mark: str
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    translator = random_translator(d_model=8, d_ff=8, n_heads=2, norm="post")
    to(translator, tmp_path / "out")
    (tmp_path / "out" / mark).write_text("of another tool")
    before = file_bytes(tmp_path)
    with pytest.raises(InputError, match="out exists and is not an export"):
        to(translator, tmp_path / "out")
    assert file_bytes(tmp_path) == before


def test_without_transformers_a_warning_says_that_nothing_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    to_huggingface(random_translator(), tmp_path / "out")
    assert "because transformers is not installed" in caplog.text


@pytest.mark.parametrize(
    ("to", "library", "install"),
    [("argos", "langcodes", "langcodes[data]"), ("ctranslate2", "CTranslate2", "ctranslate2>=4.8.5'")],
)
def test_an_export_without_its_package_is_one_clear_error(
    five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, library: str, install: str
) -> None:
    monkeypatch.setitem(sys.modules, library.lower(), None)
    done = run_nmt("export", "-m", five_run.run, "--to", to, "-o", tmp_path / "out")
    message = one_clear_error(done, 2, f"{library} is not installed")
    assert f"hint: pip install '{install}" in message
    assert not (tmp_path / "out").exists()
