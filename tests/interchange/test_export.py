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


def test_only_an_export_or_an_empty_directory_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(path: Path) -> None:
        check_replaceable(path, {"a", "b", "c"}, ["a", "b"], "ours")

    def check_refused(path: Path) -> None:
        with pytest.raises(InputError, match="is not an export"):
            check(path)

    check(tmp_path / "new")
    check(tmp_path)
    (tmp_path / "b").write_text("")
    check_refused(tmp_path)
    (tmp_path / "a").write_text("of another")
    check_refused(tmp_path)
    (tmp_path / "a").write_text("it is ours")
    check(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    for taken in ("a", "loop", ""):
        check_refused(tmp_path / taken)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="it is in use"):
        check(Path())


@pytest.mark.parametrize(("to", "mark"), [(to_ctranslate2, "config.yaml"), (to_huggingface, "README.md")])
def test_a_downloaded_model_with_the_same_file_names_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, to: Any, mark: str
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    translator = random_translator(d_model=8, d_ff=8, n_heads=2, norm="post")
    for _ in range(2):
        to(translator, tmp_path / "out")
    assert ("because transformers is not installed" in caplog.text) == (to is to_huggingface)
    for write in ((tmp_path / "out" / mark).write_text, lambda _: (tmp_path / "out" / mark).unlink()):
        write("of another tool")
        before = file_bytes(tmp_path / "out")
        with pytest.raises(InputError, match="out exists and is not an export"):
            to(translator, tmp_path / "out")
        assert file_bytes(tmp_path / "out") == before


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
