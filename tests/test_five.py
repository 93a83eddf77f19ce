"""The article's bug and its fix: the same model decoded in one pass, and word by word."""

from pathlib import Path

import pytest
import torch
from conftest import model_of, run_nmt

from nmt.decode.translator import Translator, load
from nmt.text import BOS, EOS, PAD
from nmt.text.batches import pad_source

PROJECT = Path(__file__).parents[1]


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def one_pass(translator: Translator, text: str, length: int) -> str:
    """Decode as the article does: one decoder pass over BOS and padding, the likeliest piece at every position."""
    src = pad_source([translator.tokenizers.source.encode(text)])
    tgt_in = torch.tensor([[BOS] + [PAD] * (length - 1)])
    with torch.no_grad():
        ids = model_of(translator)(src, tgt_in)[0].argmax(-1).tolist()
    return translator.tokenizers.target.decode(ids[: ids.index(EOS)] if EOS in ids else ids)


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
    trained = run_nmt("train", PROJECT / "configs" / "five.yaml", f"run={run}", *files)
    assert trained.returncode == 0, trained.stderr
    for beam in ("1", "5"):
        out = run_nmt("translate", "-m", run, "--beam", beam, input=("\n".join(sources) + "\n").encode())
        assert out.stdout.decode().splitlines() == references
    translator = load(run)
    lengths = [len(translator.tokenizers.target.encode(text)) + 1 for text in references]
    guesses = [one_pass(translator, text, n) for text, n in zip(sources, lengths, strict=True)]
    print("in one pass:", guesses)
    assert sum(guess != reference for guess, reference in zip(guesses, references, strict=True)) >= 4
