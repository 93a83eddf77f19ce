"""Ensembles: the log of the mean probability, and which models form one; test_search_random.py has their search."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from models import LINES, fresh_translator, make, small_translator, write_run

from nmt.decode.engines.torch_engine import TorchEngine, log_mean_probs
from nmt.errors import InputError, ModelError
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.run.checkpoint import read_checkpoint, save_checkpoint
from nmt.run.directory import model_file
from nmt.translate.loading import load

TRANSLATOR = small_translator()


def test_the_mean_is_that_of_probabilities() -> None:
    first = torch.tensor([[0.5, 0.25, 0.25]]).log()
    second = torch.tensor([[0.1, 0.9, 0.0]]).log()
    mean = log_mean_probs([first + 3, second + 3]).exp()  # logits need not be normalized
    result = mean[0].tolist()
    assert result == pytest.approx([0.3, 0.575, 0.125])


def test_it_holds_what_all_can_hold() -> None:
    engine = TorchEngine(make(), make(max_positions=16))
    assert engine.max_length == 16


class Models(NamedTuple):
    """A run, and a model file with the same tokenizer, other weights and a lower `data.max_length`."""

    run: Path
    file: Path

    def change(self, path: Path, **changes: Any) -> None:
        """Change fields of the checkpoint of a model."""
        file = model_file(path)
        save_checkpoint(file, replace(read_checkpoint(file), **changes))


@pytest.fixture
def models(tmp_path: Path) -> Models:
    run = write_run(TRANSLATOR, tmp_path / "one")
    checkpoint = read_checkpoint(run.model_file)
    torch.manual_seed(5)
    tensors = {name: torch.randn_like(x) for name, x in checkpoint.tensors.items()}
    data = checkpoint.config.data.model_copy(update={"max_length": 9})
    config = checkpoint.config.model_copy(update={"data": data})
    file = tmp_path / "two.safetensors"
    save_checkpoint(file, replace(checkpoint, config=config, tensors=tensors))
    return Models(run.path, file)


def test_runs_and_model_files_load_together(models: Models) -> None:
    together = load(models)
    assert together.config.data.max_length == 9
    assert together.translate(LINES) != TRANSLATOR.translate(LINES)


def test_a_model_with_itself_is_the_model(models: Models) -> None:
    twice = load([models.run, str(models.run)])
    once = load(models.run, engine="torch")
    result = twice.translate(LINES)
    assert result == once.translate(LINES)


@pytest.mark.parametrize("order", [1, -1])
def test_the_largest_length_limit_holds_in_any_order(models: Models, order: int) -> None:
    for path, a, b in [(models.run, 1.0, 70), (models.file, 2.0, 10)]:
        config = read_checkpoint(model_file(path)).config
        decode = config.decode.model_copy(update={"max_length_a": a, "max_length_b": b})
        models.change(path, config=config.model_copy(update={"decode": decode}))
    options = load(models[::order]).options
    assert options.max_length_a == 2.0
    assert options.max_length_b == 70


@pytest.mark.parametrize("order", [1, -1])
def test_a_character_that_one_model_has_not_learned_is_unknown(models: Models, order: int) -> None:
    for path, learned in [(models.run, "ж€"), (models.file, "€ə")]:
        tokenizers = read_checkpoint(model_file(path)).tokenizers
        models.change(path, tokenizers=tokenizers.with_learned(learned))
    assert load(models[::order]).unknown("ж€ə") == {"ж", "ə"}


def test_different_tokenizers_are_refused_by_name(models: Models, tmp_path: Path) -> None:
    foreign = write_run(fresh_translator(), tmp_path / "foreign")
    with pytest.raises(ModelError, match=r"one and .*foreign have different tokenizers"):
        load([models.run, foreign.path])


def test_an_export_is_refused(models: Models, tmp_path: Path) -> None:
    export = tmp_path / "export"
    export.mkdir()
    (export / "model.bin").touch()
    with pytest.raises(ModelError, match="export is a CTranslate2 export"):
        load([models.run, export])


def test_it_cannot_be_exported(models: Models, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="an ensemble cannot be exported as one model"):
        to_ctranslate2(load(models), tmp_path / "new", "float32")
