"""Shared by all exports: what may be replaced, and the log-probabilities that engines are compared on."""

from pathlib import Path

import pytest

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
