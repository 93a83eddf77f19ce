"""Ensembles: the log of the mean probability, and which models form one; test_search_random.py has their search."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from models import LINES, fresh_translator, make, small_translator, write_run

from nmt.decode.engines.torch_engine import TorchEngine, log_mean_probs
from nmt.errors import InputError, ModelError
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.run.checkpoint import read_checkpoint, save_checkpoint
from nmt.translate.loading import load

TRANSLATOR = small_translator()


def test_the_mean_is_that_of_probabilities() -> None:
    probabilities = [[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]]
    logits = [torch.tensor([p], dtype=torch.float64).log() + 3 for p in probabilities]
    mean = log_mean_probs(logits).exp()[0].tolist()
    assert mean == pytest.approx([0.3, 0.575, 0.125])


def test_it_holds_what_all_can_hold() -> None:
    assert TorchEngine(make(), make(max_positions=16)).max_length == 16


def write_models(home: Path) -> list[Path]:
    """Write a run, and a model file with the same tokenizer, other weights and a lower `data.max_length`."""
    run = write_run(TRANSLATOR, home / "one")
    checkpoint = read_checkpoint(run.model_file)
    torch.manual_seed(5)
    tensors = {name: torch.randn_like(x) for name, x in checkpoint.tensors.items()}
    data = checkpoint.config.data.model_copy(update={"max_length": 9})
    config = checkpoint.config.model_copy(update={"data": data})
    save_checkpoint(home / "two.safetensors", replace(checkpoint, config=config, tensors=tensors))
    return [run.path, home / "two.safetensors"]


def test_runs_and_model_files_load_together(tmp_path: Path) -> None:
    paths = write_models(tmp_path)
    together = load(paths)
    assert together.config.data.max_length == 9
    found = list(together.translate_lines(LINES, together.with_options(beam=3)))
    assert [one.text for one in found] != TRANSLATOR.translate(LINES, beam=3)
    twice = load([paths[0], str(paths[0])])
    assert twice.translate(LINES) == load(paths[0], engine="torch").translate(LINES)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_largest_length_limit_holds_in_any_order(tmp_path: Path, order: tuple[int, int]) -> None:
    paths = write_models(tmp_path)
    for path, a, b in [(paths[0] / "model.safetensors", 1.0, 70), (paths[1], 2.0, 10)]:
        checkpoint = read_checkpoint(path)
        decode = checkpoint.config.decode.model_copy(update={"max_length_a": a, "max_length_b": b})
        save_checkpoint(path, replace(checkpoint, config=checkpoint.config.model_copy(update={"decode": decode})))
    options = load([paths[i] for i in order]).options
    assert (options.max_length_a, options.max_length_b) == (2.0, 70)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_character_that_one_model_has_not_learned_is_unknown(tmp_path: Path, order: tuple[int, int]) -> None:
    paths = write_models(tmp_path)
    for path, learned in [(paths[0] / "model.safetensors", "ж€"), (paths[1], "€ə")]:
        checkpoint = read_checkpoint(path)
        save_checkpoint(path, replace(checkpoint, tokenizers=checkpoint.tokenizers.with_learned(learned)))
    assert load([paths[i] for i in order]).unknown("ж€ə") == {"ж", "ə"}


def test_different_tokenizers_are_refused_by_name(tmp_path: Path) -> None:
    first, _ = write_models(tmp_path)
    other = write_run(fresh_translator(), tmp_path / "foreign")
    with pytest.raises(ModelError, match=r"one and .*foreign have different tokenizers"):
        load([first, other.path])


def test_exports_are_refused(tmp_path: Path) -> None:
    paths = write_models(tmp_path)
    export = tmp_path / "export"
    export.mkdir()
    (export / "model.bin").touch()
    with pytest.raises(ModelError, match="export is a CTranslate2 export"):
        load([paths[0], export])
    with pytest.raises(InputError, match="an ensemble cannot be exported as one model"):
        to_ctranslate2(load(paths), tmp_path / "new", "float32")
