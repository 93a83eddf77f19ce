"""Information about a run, a model file or an export."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import FiveRun, model_of

from nmt.decode.translator import load
from nmt.errors import ModelError
from nmt.files import hash_file
from nmt.insight.info import as_text, information
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.run.checkpoint import read_checkpoint, save_checkpoint
from nmt.run.directory import RunDirectory


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
    assert found["training"]["steps"] == 200
    assert found["training"]["checkpoints"] == [100, 200]
    assert "tok:13a" in found["training"]["best"]["bleu_signature"]
    text = "\n".join(as_text(found))
    for part in (
        "source zh, target en",
        "steps ",
        "sha256",
        "dev_bleu ",
        "nmt translate -m",
        "train 5, dev 5",
        "reproducible",
    ):
        assert part in text
    json.dumps(found, allow_nan=False)


def test_a_model_file_and_an_export_say_the_same_of_the_model(five_run: FiveRun, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    to_ctranslate2(load(five_run.run, "cpu"), tmp_path / "export", "float32")
    run, file, export = (information(path) for path in (five_run.run, five_run.model_file, tmp_path / "export"))
    for key in ("architecture", "parameters", "tokenizer", "languages"):
        assert run[key] == file[key] == export[key]
    assert [one["kind"] for one in (run, file, export)] == ["run", "model file", "CTranslate2 export"]
    assert export["compute_type"] == "float32"
    assert as_text(file)
    assert as_text(export)


def test_a_run_without_a_model_and_of_an_older_version(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    (run / "model.safetensors").unlink()
    (run / "metrics.jsonl").write_text('{"step": 3, "n_tokens": "x", "elapsed_s": 2.5}\n{"step": 4, "epoch": null}\n')
    (run / "manifest.json").unlink()
    found = information(run)
    assert found["training"]["steps"] == 4
    assert found["training"]["seconds"] == 2.5
    assert "none yet" in as_text(found)[1]


def test_odd_figures_in_a_model_file_do_no_harm(five_run: FiveRun, tmp_path: Path) -> None:
    found = read_checkpoint(five_run.model_file, prefixes=("model",))
    odd = {"step": "x", "n_tokens": float("nan"), "elapsed_s": float("inf"), "best_figures": {"step": []}}
    save_checkpoint(tmp_path / "odd.safetensors", replace(found, progress={**odd, "averaged_steps": 3}))
    training = information(tmp_path / "odd.safetensors")["training"]
    assert training == {"seed": 1, "averaged_steps": 3, "best": {"step": []}}
    assert "sha256" in "\n".join(as_text(information(tmp_path / "odd.safetensors")))


def test_damaged_and_foreign_files_are_refused(five_run: FiveRun, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.safetensors"
    for content in (b"", b"x" * 100, five_run.model_file.read_bytes()[:-1]):
        foreign.write_bytes(content)
        with pytest.raises(ModelError, match=r"not a model file|damaged"):
            information(foreign)
    with pytest.raises(ModelError, match="no model at"):
        information(tmp_path / "absent")
    run = five_run.copy_run(tmp_path / "run")
    damaged = bytearray(five_run.model_file.read_bytes())
    damaged[-9] ^= 4
    (run / "model.safetensors").write_bytes(damaged)
    with pytest.raises(ModelError, match="damaged"):
        information(run)
