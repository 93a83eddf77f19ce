"""Information about a run, a model file or an export."""

import json
from pathlib import Path

import pytest
import yaml
from conftest import FiveRun, model_of

from nmt.errors import ModelError
from nmt.files import hash_file
from nmt.insight.info import as_text, information
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.run.directory import RunDirectory
from nmt.translate.loading import load


def test_a_run(five_run: FiveRun) -> None:
    found = information(five_run.run)
    model = model_of(load(five_run.run, engine="torch"))
    parameters = found["parameters"]
    assert parameters.pop("total") == model.n_parameters == sum(parameters.values())
    assert set(parameters) == {"embeddings", "encoder", "decoder"}
    assert found["languages"] == {"source": "zh", "target": "en"}
    assert found["data"]["pairs"] == {"train": 5, "dev": 5}
    assert found["data"]["sha256"] == RunDirectory(five_run.run).read_manifest()["data"]
    assert found["file"]["sha256"] == hash_file(five_run.model_file)
    assert (found["training"]["steps"], found["training"]["checkpoints"]) == (200, [100, 200])
    assert "tok:13a" in found["training"]["best"]["bleu_signature"]
    assert json.loads(json.dumps(found, allow_nan=False)) == yaml.safe_load(as_text(found)) == found


def test_a_model_file_and_an_export_say_the_same_of_the_model(five_run: FiveRun, tmp_path: Path) -> None:
    to_ctranslate2(load(five_run.run, "cpu"), tmp_path / "export", "float32")
    run, file, export = (information(path) for path in (five_run.run, five_run.model_file, tmp_path / "export"))
    for key in ("architecture", "parameters", "tokenizer", "languages"):
        assert run[key] == file[key] == export[key]
    assert [one["kind"] for one in (run, file, export)] == ["run", "model file", "CTranslate2 export"]


def test_a_run_without_a_model_and_of_an_older_version(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    (run / "model.safetensors").unlink()
    (run / "metrics.jsonl").write_text('{"step": 3, "n_tokens": "x", "elapsed_s": 2.5}\n{"step": 4, "epoch": null}\n')
    (run / "manifest.json").unlink()
    found = information(run)
    assert found["training"]["steps"] == 4
    assert found["training"]["seconds"] == 2.5
    assert "file" not in found


def test_what_is_no_model_is_refused(five_run: FiveRun, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model at"):
        information(tmp_path / "absent")
    (tmp_path / "model.bin").touch()
    (tmp_path / "config.yaml").write_bytes((five_run.run / "config.yaml").read_bytes())
    with pytest.raises(ModelError, match="has no tokenizer"):
        information(tmp_path)
