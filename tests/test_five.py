"""The five pairs: the article's bug and its fix, and models of both architectures that memorize them."""

from pathlib import Path
from typing import Any

import pytest
from conftest import TARGET, FiveCorpus, out_lines, run_nmt, soak
from models import RNNS, RUNGS, name

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
    quickly = ["train.validate_every=150", "train.report=false", "model.n_encoder_layers=1", "model.n_decoder_layers=1"]
    words = [PROJECT / "configs" / "five.yaml", f"run={run}", *files, "train.precision=fp32", *soak(quickly, [])]
    trained = run_nmt("train", *words)
    assert trained.returncode == 0, trained.stderr
    translator = load(run, engine="torch")
    for beam in (1, 5):
        assert translator.translate(sources, beam=beam) == references
    guesses = [explain(translator, text).one_pass.text for text in sources]
    print("in one pass:", guesses)
    assert sum(guess != reference for guess, reference in zip(guesses, references, strict=True)) >= 4


SIZES = {"d_model": 32, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.0}
TRAIN = {"max_steps": 100, "validate_every": 100, "lr": 0.01, "warmup": 20, "average": "none"}


@pytest.mark.parametrize("choices", [*RUNGS[:5], *RNNS[:4:3]], ids=name)
def test_it_learns_the_five_pairs(five_corpus: FiveCorpus, choices: dict[str, Any]) -> None:
    settings = [f"model.{key}={value}" for key, value in {**SIZES, **choices}.items()]
    settings += [f"train.{key}={value}" for key, value in TRAIN.items()]
    out_lines(run_nmt("train", five_corpus.config, *settings))
    for beam in (1, 5):
        options = ["-m", five_corpus.run, "--beam", beam, "--engine", "torch", "-i", five_corpus.source_file]
        assert out_lines(run_nmt("translate", *options)) == TARGET
