"""A plain `nmt` prints its help and the command that fits the files of the folder."""

import os
from pathlib import Path

import pytest
from conftest import run_nmt


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"a.de": "ja\n", "a.en": "yes\n"}, "nmt check a.de a.en, then nmt init a.de a.en -o mine.yaml"),
        ({"a b.de": "ja\n", "a b.en": "yes\n"}, "nmt check 'a b.de' 'a b.en', then nmt init 'a b.de' 'a b.en' -o "),
        ({"dev.de": "a", "dev.en": "b", "train.de": "a a a", "train.en": "b b b"}, "nmt check train.de train.en, "),
        ({"text.de": "ja\n", "other.en": "yes\n"}, None),
        ({"text.de": "ja\n", "text.en": ""}, None),
        ({"text.de": "ja\n", "text.py": "yes\n" * 9}, None),
        ({"page.png": "\0", "page.pdf": "%PDF"}, None),
        ({"text.de": "ja\n", "text.en": "yes\n", "mine.yaml": "# mine\nrun: runs/mine\n"}, "nmt train mine.yaml"),
        ({"settings.yaml": "train: 1\n"}, None),
        ({"a.yaml": "run: runs/a\n", "runs/a/model.safetensors": "?"}, 'nmt translate "A sentence."  (with runs/a)'),
    ],
)
def test_a_plain_nmt_says_what_to_do_next(tmp_path: Path, files: dict[str, str], expected: str | None) -> None:
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "huge.yaml").touch()
    os.truncate(tmp_path / "huge.yaml", 10**12)  # is not read
    done = run_nmt(cwd=tmp_path)
    shown, _, suggestion = done.stderr.decode().partition("\nNext: ")
    assert (done.returncode, done.stdout) == (2, b"")
    assert shown.startswith("Usage: nmt ")
    assert suggestion.startswith(expected or "")
    assert bool(suggestion) == (expected is not None)
