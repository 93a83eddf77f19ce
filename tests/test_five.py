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
    done = run_nmt("train", "configs/five.yaml", *settings, *soak(QUICKLY, []), cwd=PROJECT)
    assert out_lines(done) == []
    return load(folder / "five", engine="torch")


@pytest.mark.parametrize("beam", [1, 5])
def test_five_pairs_are_exact_word_by_word(five: Translator, beam: int) -> None:
    translations = five.translate(lines_of("zh"), beam=beam)
    assert translations == lines_of("en")


def test_five_pairs_are_wrong_in_one_pass(five: Translator) -> None:
    """This is the bug of the article: it reads all outputs of one pass over BOS and padding."""
    n_wrong = 0
    for text, reference in zip(lines_of("zh"), lines_of("en"), strict=True):
        guess = explain(five, text).one_pass.text
        n_wrong += guess != reference
    assert n_wrong >= 4


def in_section(section: str, values: dict[str, Any]) -> list[str]:
    return [f"{section}.{key}={value}" for key, value in values.items()]


SIZES = {"d_model": 32, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.0}
TRAIN = {"max_steps": 100, "validate_every": 100, "lr": 0.01, "warmup": 20, "average": "none"}


LEARNED = [*RUNGS[:5], RUNGS[-1], RNNS[0], RNNS[3]]


@pytest.mark.parametrize("choices", LEARNED, ids=name)
def test_it_learns_the_five_pairs(five_corpus: FiveCorpus, choices: dict[str, Any]) -> None:
    settings = in_section("model", SIZES | choices)
    settings += in_section("train", TRAIN)
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
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with pytest.MonkeyPatch.context() as patch, torch.set_grad_enabled(True):  # both are restored at the end
        patch.chdir(home / "configs/lesson")
        for cell in cells:
            code = "".join(cell["source"])
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
    first_head = 0, 0  # of the first sentence
    expected = lesson["all_out"][first_head]
    torch.testing.assert_close(lesson["out"], expected)
    expected_weights = lesson["all_weights"][first_head]
    torch.testing.assert_close(lesson["weights"], expected_weights)


def test_the_mask_hides_padding(lesson: dict[str, Any]) -> None:
    n = len(lesson["weights"])  # the sentence without its padding
    assert lesson["unmasked"][:n, n:].sum() > 0
    result = lesson["masked"][:n, n:].sum()
    assert result == 0


def test_the_loop_translates(lesson: dict[str, Any]) -> None:
    references = lesson["references"]
    result = lesson["translator"].translate(lesson["sources"])
    assert result == references
    written = lesson["target_tokenizer"].decode(lesson["tokens"])
    assert written == references[0]


def test_one_pass_does_not_translate(lesson: dict[str, Any]) -> None:
    tokenizer = lesson["target_tokenizer"]
    tokens = lesson["one_pass"]
    assert tokenizer.pieces(tokens)[0] == "▁I"
    assert tokenizer.decode(tokens) != lesson["references"][0]
    assert lesson["unseen"] != "she is drinking tea today"


def test_greedy_search_loses_the_best_sentence_of_the_table(lesson: dict[str, Any]) -> None:
    counted = {"the cat": 0.24, "the dog": 0.21, "the": 0.15, "a dog": 0.36, "a": 0.04}
    assert lesson["counted"] == pytest.approx(counted)
    (greedy, greedy_p), (best, best_p) = lesson["found"].values()
    assert (greedy, greedy_p) == ("the cat", pytest.approx(0.24))
    assert (best, best_p) == ("a dog", pytest.approx(0.36))


def test_pairs_of_the_readers_own_are_learned(lesson: dict[str, Any]) -> None:
    kept = lesson["kept"]
    assert set(kept).isdisjoint(lesson["written"])
    for source, reference in kept:
        assert lesson["mine"].translate([source]) == [reference]
    assert isinstance(lesson["shown"], Explanation)
