"""The five pairs: the article's bug and its fix, models that memorize them, and the notebook of configs/lesson."""

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TARGET, FiveCorpus, out_lines, run_nmt, soak
from models import RNNS, RUNGS, name

from nmt.insight.explain import Explanation, explain
from nmt.translate.loading import load

PROJECT = Path(__file__).parents[1]


FOLDERS = [PROJECT / "data" / "five", PROJECT.parent / "shared" / "data" / "five"]


@pytest.mark.parametrize("folder", FOLDERS, ids=["ours", "the article's"])
def test_five_pairs_are_exact_word_by_word_and_wrong_in_one_pass(folder: Path, tmp_path: Path) -> None:
    if not folder.exists():
        pytest.skip(f"{folder} is not here")
    sources, references = ((folder / f"train.{side}").read_text("utf-8").splitlines() for side in ("zh", "en"))
    pair = f"{{source: {folder}/train.zh, target: {folder}/train.en}}"
    files = [f"data.{part}={pair}" for part in ("train", "dev", "test")]
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


QUICKLY = ["train.optimizer=adamw", "train.report=false", "model.n_encoder_layers=1", "model.n_decoder_layers=1"]


@pytest.fixture(scope="module")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names that the cells define; `shown` is what the cell of `nmt.explain` shows."""
    home, names = tmp_path_factory.mktemp("lesson"), dict[str, Any]()
    (home / "configs/lesson").mkdir(parents=True)
    shutil.copy(PROJECT / "configs/five.yaml", home / "configs")
    shutil.copytree(PROJECT / "data/five", home / "data/five")
    cells = json.loads((PROJECT / "configs/lesson/lesson.ipynb").read_text(encoding="utf-8"))["cells"]
    with pytest.MonkeyPatch.context() as patch, torch.set_grad_enabled(True):  # both are restored at the end
        patch.chdir(home / "configs/lesson")
        for code in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
            if code.startswith("!nmt "):
                words = shlex.split(code)[1:]
                with torch.enable_grad():  # a notebook runs the command in a process of its own
                    done = run_nmt(*words, *(QUICKLY if words[0] == "train" else []), cwd=home)
                assert done.returncode == 0, done.stderr.decode()
            elif code.startswith("nmt."):
                names["shown"] = eval(code, names)
            else:
                exec(code, names)
        yield names


def test_a_head_by_hand_equals_attention_and_the_mask_hides_padding(lesson: dict[str, Any]) -> None:
    torch.testing.assert_close(lesson["out"], lesson["all_out"][0, 0])
    torch.testing.assert_close(lesson["weights"], lesson["all_weights"][0, 0])
    size = len(lesson["weights"])
    assert lesson["unmasked"][:size, size:].sum() > 0 == lesson["masked"][:size, size:].sum()


def test_the_loop_translates_and_one_pass_does_not(lesson: dict[str, Any]) -> None:
    tokenizer, references = lesson["target_tokenizer"], lesson["references"]
    assert lesson["translator"].translate(lesson["sources"]) == references
    assert tokenizer.decode(lesson["tokens"]) == references[0]
    assert tokenizer.pieces(lesson["one_pass"])[0] == "▁I"
    assert tokenizer.decode(lesson["one_pass"]) != references[0]
    assert lesson["unseen"] != "she is drinking tea today"


def test_greedy_search_loses_the_best_sentence_of_the_table(lesson: dict[str, Any]) -> None:
    counted = {"the cat": 0.24, "the dog": 0.21, "the": 0.15, "a dog": 0.36, "a": 0.04}
    assert lesson["counted"] == pytest.approx(counted)
    assert [text for text, _ in lesson["found"].values()] == ["the cat", "a dog"]
    assert all(p == pytest.approx(counted[text]) for text, p in lesson["found"].values())


def test_pairs_of_the_readers_own_are_learned(lesson: dict[str, Any]) -> None:
    sources, references = zip(*lesson["kept"], strict=True)
    assert not set(lesson["kept"]) & set(lesson["written"])
    assert lesson["mine"].translate(list(sources)) == list(references)
    assert isinstance(lesson["shown"], Explanation)
