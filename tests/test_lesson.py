"""The notebook of configs/lesson runs from its first to its last cell, and its assertions hold."""

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import run_nmt

from nmt.insight.explain import Explanation

ROOT = Path(__file__).parents[1]
QUICKLY = ["train.optimizer=adamw", "train.report=false", "model.n_encoder_layers=1", "model.n_decoder_layers=1"]


@pytest.fixture(scope="module")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names that the cells define; `shown` is what the cell of `nmt.explain` shows."""
    home, names = tmp_path_factory.mktemp("lesson"), dict[str, Any]()
    (home / "configs/lesson").mkdir(parents=True)
    shutil.copy(ROOT / "configs/five.yaml", home / "configs")
    shutil.copytree(ROOT / "data/five", home / "data/five")
    cells = json.loads((ROOT / "configs/lesson/lesson.ipynb").read_text(encoding="utf-8"))["cells"]
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
