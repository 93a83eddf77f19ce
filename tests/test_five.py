"""The five pairs: the article's bug and its fix, models that memorize them, and the notebook of configs/lesson."""

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SOURCE, TARGET, FiveCorpus, out_lines, run_nmt, soak
from models import RNNS, RUNGS, name

from nmt.insight.explain import Explanation, explain
from nmt.translate.loading import load
from nmt.translate.translator import Translator

PROJECT = Path(__file__).parents[1]
FIVE = PROJECT / "data" / "five"
QUICKLY = ["train.report=false", "model.n_encoder_layers=1", "model.n_decoder_layers=1"]


def lines_of(side: str) -> list[str]:
    return (FIVE / f"train.{side}").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def five(folder: Path) -> Translator:
    """The model of the recipe, with one layer except under `make soak`."""
    settings = [f"run={folder}/five", "train.precision=fp32", "train.validate_every=150"]
    out_lines(run_nmt("train", PROJECT / "configs" / "five.yaml", *settings, *soak(QUICKLY, []), cwd=PROJECT))
    return load(folder / "five", engine="torch")


@pytest.mark.parametrize("beam", [1, 5])
def test_five_pairs_are_exact_word_by_word(five: Translator, beam: int) -> None:
    assert five.translate(lines_of("zh"), beam=beam) == lines_of("en")


def test_five_pairs_are_wrong_in_one_pass(five: Translator) -> None:
    """This is the bug of the article: it reads all outputs of one pass over BOS and padding."""
    guesses = [explain(five, text).one_pass.text for text in lines_of("zh")]
    n_wrong = sum(guess != reference for guess, reference in zip(guesses, lines_of("en"), strict=True))
    assert n_wrong >= 4


SIZES = {"d_model": 32, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.0}
TRAIN = {"max_steps": 100, "validate_every": 100, "lr": 0.01, "warmup": 20, "average": "none"}


@pytest.mark.parametrize("choices", [*RUNGS[:5], RUNGS[-1], RNNS[0], RNNS[3]], ids=name)
def test_it_learns_the_five_pairs(five_corpus: FiveCorpus, choices: dict[str, Any]) -> None:
    settings = [f"model.{key}={value}" for key, value in {**SIZES, **choices}.items()]
    settings += [f"train.{key}={value}" for key, value in TRAIN.items()]
    out_lines(run_nmt("train", five_corpus.config, *settings))
    translator = load(five_corpus.run, engine="torch")
    assert translator.translate(SOURCE, beam=1) == TARGET
    assert translator.translate(SOURCE, beam=5) == TARGET


# --- the notebook


@pytest.fixture(scope="module")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names that the cells define; `shown` is what the cell of `nmt.explain` shows."""
    home = tmp_path_factory.mktemp("lesson")
    names: dict[str, Any] = {}
    (home / "configs/lesson").mkdir(parents=True)
    shutil.copy(PROJECT / "configs/five.yaml", home / "configs")
    shutil.copytree(PROJECT / "data/five", home / "data/five")
    notebook = json.loads((PROJECT / "configs/lesson/lesson.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with pytest.MonkeyPatch.context() as patch, torch.set_grad_enabled(True):  # both are restored at the end
        patch.chdir(home / "configs/lesson")
        for code in cells:
            if code.startswith("!nmt "):
                words = shlex.split(code)[1:]
                if words[0] == "train":
                    words += [*QUICKLY, "train.optimizer=adamw"]
                with torch.enable_grad():  # a notebook runs the command in a process of its own
                    out_lines(run_nmt(*words, cwd=home))
            elif code.startswith("nmt."):
                names["shown"] = eval(code, names)
            else:
                exec(code, names)
        yield names


def test_a_head_by_hand_equals_attention(lesson: dict[str, Any]) -> None:
    torch.testing.assert_close(lesson["out"], lesson["all_out"][0, 0])
    torch.testing.assert_close(lesson["weights"], lesson["all_weights"][0, 0])


def test_the_mask_hides_padding(lesson: dict[str, Any]) -> None:
    n = len(lesson["weights"])  # the sentence without its padding
    assert lesson["unmasked"][:n, n:].sum() > 0
    assert lesson["masked"][:n, n:].sum() == 0


def test_the_loop_translates(lesson: dict[str, Any]) -> None:
    assert lesson["translator"].translate(lesson["sources"]) == lesson["references"]
    assert lesson["target_tokenizer"].decode(lesson["tokens"]) == lesson["references"][0]


def test_one_pass_does_not_translate(lesson: dict[str, Any]) -> None:
    tokenizer = lesson["target_tokenizer"]
    assert tokenizer.pieces(lesson["one_pass"])[0] == "▁I"
    assert tokenizer.decode(lesson["one_pass"]) != lesson["references"][0]
    assert lesson["unseen"] != "she is drinking tea today"


def test_greedy_search_loses_the_best_sentence_of_the_table(lesson: dict[str, Any]) -> None:
    counted = {"the cat": 0.24, "the dog": 0.21, "the": 0.15, "a dog": 0.36, "a": 0.04}
    assert lesson["counted"] == pytest.approx(counted)
    (greedy, greedy_p), (best, best_p) = lesson["found"].values()
    assert (greedy, greedy_p) == ("the cat", pytest.approx(0.24))
    assert (best, best_p) == ("a dog", pytest.approx(0.36))


def test_pairs_of_the_readers_own_are_learned(lesson: dict[str, Any]) -> None:
    sources, references = zip(*lesson["kept"], strict=True)
    assert not set(lesson["kept"]) & set(lesson["written"])
    assert lesson["mine"].translate(list(sources)) == list(references)
    assert isinstance(lesson["shown"], Explanation)
