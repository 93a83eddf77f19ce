"""The five pairs are memorized exactly, as configs/five.yaml trains them."""

from pathlib import Path

import pytest
from conftest import out_lines, run_nmt

PROJECT = Path(__file__).parents[1]
FOLDERS = [PROJECT / "data" / "five", PROJECT.parent / "shared" / "data" / "five"]


@pytest.mark.parametrize("folder", FOLDERS, ids=["ours", "the article's"])
def test_five_pairs_are_exact(folder: Path, tmp_path: Path) -> None:
    if not folder.exists():
        pytest.skip(f"{folder} is not here")
    files = [
        f"data.{part}.{side}={folder / name}"
        for part in ("train", "dev", "test")
        for side, name in (("source", "train.zh"), ("target", "train.en"))
    ]
    out_lines(run_nmt("train", PROJECT / "configs" / "five.yaml", f"run={tmp_path}/five", *files))
    for beam in (1, 5):
        options = ["-m", tmp_path / "five", "--beam", beam, "-i", folder / "train.zh"]
        found = out_lines(run_nmt("translate", *options))
        assert found == (folder / "train.en").read_text(encoding="utf-8").splitlines()
