"""Information about a run, a model file or an export."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import FiveRun, model_of

from nmt.errors import ModelError
from nmt.files import hash_file
from nmt.insight.info import information
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.run.directory import RunDirectory
from nmt.translate.loading import load


@pytest.fixture(scope="module")
def facts(five_run: FiveRun) -> dict[str, Any]:
    return information(five_run.run)


def test_the_parameters_of_a_run_are_those_of_its_model(five_run: FiveRun, facts: dict[str, Any]) -> None:
    model = model_of(load(five_run.run, engine="torch"))
    # Each belongs to one module.
    modules = dict(facts["parameters"])
    total = modules.pop("total")
    assert total == model.n_parameters == sum(modules.values())
    assert {"source_embedding", "encoder", "decoder"} <= set(modules)


def test_a_run_tells_its_data_and_training(five_run: FiveRun, facts: dict[str, Any]) -> None:
    assert facts["languages"] == {"source": "zh", "target": "en"}
    assert facts["manifest"] == RunDirectory(five_run.run).read_manifest()
    result = facts["config"]["data"]["train"]["source"]
    assert result == ["train.zh"]
    assert facts["file"]["sha256"] == hash_file(five_run.model_file)
    assert facts["training"]["step"] == 200
    assert facts["checkpoints"] == [100, 200]
    assert "tok:13a" in facts["training"]["best_figures"]["bleu_signature"]


def test_a_model_file_and_an_export_say_the_same_of_the_model(
    five_run: FiveRun, facts: dict[str, Any], tmp_path: Path
) -> None:
    to_ctranslate2(load(five_run.run, "cpu"), tmp_path / "export", "float32")
    file = information(five_run.model_file)
    export = information(tmp_path / "export")
    assert facts["kind"] == "run"
    assert file["kind"] == "model file"
    assert export["kind"] == "CTranslate2 export"
    for key in ("languages", "parameters", "pieces"):
        assert facts[key] == file[key] == export[key]
    for section in ("model", "tokenizer", "decode"):
        assert facts["config"][section] == file["config"][section] == export["config"][section]


def test_a_run_without_a_model_tells_what_its_files_have(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    (run / "model.safetensors").unlink()
    (run / "manifest.json").unlink()
    facts = information(run)
    assert facts["checkpoints"] == [100, 200]
    assert facts["pieces"]
    assert "file" not in facts


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model at"):
        information(tmp_path / "absent")


def test_an_export_without_a_tokenizer_is_refused(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "model.bin").touch()
    shutil.copy(five_run.run / "config.yaml", tmp_path)
    with pytest.raises(ModelError, match="has no tokenizer"):
        information(tmp_path)
