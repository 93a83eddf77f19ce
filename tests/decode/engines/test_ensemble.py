"""Ensembles: the log of the mean probability, and which models form one; test_search_random.py has their search."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

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
    first = torch.tensor([[0.5, 0.25, 0.25]]).log()
    second = torch.tensor([[0.1, 0.9, 0.0]]).log()
    mean = log_mean_probs([first + 3, second + 3]).exp()  # logits need not be normalized
    assert mean[0].tolist() == pytest.approx([0.3, 0.575, 0.125])


def test_it_holds_what_all_can_hold() -> None:
    engine = TorchEngine(make(), make(max_positions=16))
    assert engine.max_length == 16


class Models(NamedTuple):
    """A run, and a model file with the same tokenizer and other weights."""

    run: Path
    file: Path


@pytest.fixture
def models(tmp_path: Path) -> Models:
    run = write_run(TRANSLATOR, tmp_path / "one")
    checkpoint = read_checkpoint(run.model_file)
    torch.manual_seed(5)
    tensors = {name: torch.randn_like(x) for name, x in checkpoint.tensors.items()}
    file = tmp_path / "two.safetensors"
    save_checkpoint(file, replace(checkpoint, tensors=tensors))
    return Models(run.path, file)


def test_runs_and_model_files_load_together(models: Models) -> None:
    together = load(models)
    assert together.translate(LINES) != TRANSLATOR.translate(LINES)


def test_a_model_with_itself_is_the_model(models: Models) -> None:
    twice = load([models.run, str(models.run)])
    once = load(models.run, engine="torch")
    assert twice.translate(LINES) == once.translate(LINES)


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
