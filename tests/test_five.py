"""The article's bug and its fix: the same model decoded in one pass, and word by word."""

from pathlib import Path

import pytest
from conftest import run_nmt

from nmt.decode.translator import load
from nmt.insight.explain import explain

PROJECT = Path(__file__).parents[1]


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


FOLDERS = [PROJECT / "data" / "five", PROJECT.parent / "shared" / "data" / "five"]


@pytest.mark.parametrize("folder", FOLDERS, ids=["ours", "the article's"])
def test_five_pairs_are_exact_word_by_word_and_wrong_in_one_pass(folder: Path, tmp_path: Path) -> None:
    if not folder.exists():
        pytest.skip(f"{folder} is not here")
    sources, references = read(folder / "train.zh"), read(folder / "train.en")
    files = [
        f"data.{part}.{side}={folder / name}"
        for part in ("train", "dev", "test")
        for side, name in (("source", "train.zh"), ("target", "train.en"))
    ]
    run = tmp_path / "five"
    trained = run_nmt("train", PROJECT / "configs" / "five.yaml", f"run={run}", *files, "train.precision=fp32")
    assert trained.returncode == 0, trained.stderr
    translator = load(run, engine="torch")
    for beam in (1, 5):
        assert translator.translate(sources, beam=beam) == references
    guesses = [explain(translator, text).one_pass.text for text in sources]
    print("in one pass:", guesses)
    assert sum(guess != reference for guess, reference in zip(guesses, references, strict=True)) >= 4
