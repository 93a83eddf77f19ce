"""A plain `nmt` prints its help and the command that fits the files of the folder."""

import os
from pathlib import Path

import pytest
from conftest import run_in

FOLDERS = {  # files, some with a number of lines -> how the suggestion begins
    "": "",
    "a.de a.en": "nmt check a.de a.en, then nmt init a.de a.en -o mine.yaml",
    "dev.de dev.en train.de:2 train.en:2": "nmt check train.de train.en, ",
    "text.de other.en": "",
    "text.de text.en:0": "",
    "text.de text.py:9": "",
    "a.de a.en mine.yaml": "nmt train mine.yaml",
    "settings.yaml:0": "",
    "a.yaml runs/a/model.safetensors": 'nmt translate "A sentence."  (with runs/a)',
}


def suggestion(folder: Path) -> str:
    done = run_in(folder, "")
    assert done.returncode == 2
    assert done.stdout == b""
    shown, _, suggested = done.stderr.decode().partition("\nNext: ")
    assert shown.startswith("Usage: nmt ")
    return suggested


@pytest.mark.parametrize("files", FOLDERS)
def test_a_plain_nmt_says_what_to_do_next(tmp_path: Path, files: str) -> None:
    for description in files.split():
        name, _, n_lines = description.partition(":")
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("run: mine\n" * int(n_lines or 1))
    suggested = suggestion(tmp_path)
    assert suggested.startswith(FOLDERS[files])
    assert bool(suggested) == bool(FOLDERS[files])


def test_names_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "a b.de").write_text("ja")
    (tmp_path / "a b.en").write_text("yes")
    assert suggestion(tmp_path).startswith("nmt check 'a b.de' 'a b.en', then nmt init 'a b.de' 'a b.en' -o ")


def test_files_that_are_not_text_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "page.png").write_text("\0")
    (tmp_path / "page.pdf").write_text("%PDF")
    assert suggestion(tmp_path) == ""


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "huge.yaml").touch()
    os.truncate(tmp_path / "huge.yaml", 10**12)
    assert suggestion(tmp_path) == ""
