"""A plain `nmt` prints its help and the command that fits the files of the folder."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import run_in


class Folder(NamedTuple):
    files: dict[str, str]
    suggestion: str  # its beginning


FOLDERS = {
    "nothing": Folder({}, ""),
    "texts": Folder({"a.de": "ja", "a.en": "yes"}, "nmt check a.de a.en, then nmt init a.de a.en -o mine.yaml"),
    "spaces": Folder({"a b.de": "ja", "a b.en": "yes"}, "nmt check 'a b.de' 'a b.en', then nmt init 'a b.de' "),
    "largest": Folder(
        {"dev.de": "a", "dev.en": "b", "train.de": "a a", "train.en": "b b"}, "nmt check train.de train.en, "
    ),
    "other names": Folder({"text.de": "ja", "other.en": "yes"}, ""),
    "empty": Folder({"text.de": "ja", "text.en": ""}, ""),
    "other sizes": Folder({"text.de": "ja", "text.py": "yes" * 9}, ""),
    "binary": Folder({"page.png": "\0", "page.pdf": "%PDF"}, ""),
    "config": Folder({"a.de": "ja", "a.en": "yes", "mine.yaml": "# mine\nrun: runs/mine\n"}, "nmt train mine.yaml"),
    "other yaml": Folder({"settings.yaml": "train: 1\n"}, ""),
    "run": Folder({"a.yaml": "run: runs/a\n", "runs/a/model.safetensors": "?"}, 'nmt translate "A sentence."'),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_plain_nmt_says_what_to_do_next(tmp_path: Path, name: str) -> None:
    files, suggestion = FOLDERS[name]
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    done = run_in(tmp_path, "")
    shown, _, said = done.stderr.decode().partition("\nNext: ")
    assert done.returncode == 2
    assert done.stdout == b""
    assert shown.startswith("Usage: nmt ")
    assert said.startswith(suggestion)
    assert bool(said) == bool(suggestion)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.yaml").open("w") as file:
        os.truncate(file.fileno(), 10**12)
    assert run_in(tmp_path, "").stderr.startswith(b"Usage: nmt ")
