"""`nmt train`: a run from start to end, resuming, starting anew, signals, refused settings."""

import fcntl
import json
import re
import shutil
from pathlib import Path

import pytest
from conftest import NO_PROCESS, TARGET, FiveCorpus, FiveRun, err_lines, file_bytes, one_clear_error, out_lines, run_nmt
from safetensors import safe_open

import nmt
from nmt.config import load_config
from nmt.run.directory import RunDirectory


def test_train_writes_the_files_of_a_run(five_run: FiveRun) -> None:
    run, done = five_run.run, five_run.training
    assert done.stdout == b"", "stdout carries data only"
    log = done.stderr.decode()
    assert "tokenizer.vocab_size=600 was cut" in log
    assert "5 of 5 pairs of dev have a side that is also in train" in log
    assert "\nchosen for 5 pairs: tokenizer.vocab_size=600 model.n_heads=4 model.d_ff=256 " in f"\n{log}"
    assert "step 200: dev loss" in log
    assert f"reference    {TARGET[0]}" in log, "samples of dev are logged"
    assert re.search(rf"\ndone: 200 steps in .*; the model is {five_run.model_file}\n", log)

    files = {
        "config.yaml",
        "manifest.json",
        "tokenizer.model",
        "model.safetensors",
        "metrics.jsonl",
        "train.log",
        "lock",
    }
    files |= {"report.html", *(f"checkpoints/step-{step}.safetensors" for step in (100, 200))}
    assert set(file_bytes(run)) - {"scores.jsonl"} == files, "other tests may have evaluated the run"
    assert load_config(run / "config.yaml").model.d_ff == 256, "fitted values are filled in"
    manifest = json.loads((run / "manifest.json").read_text())
    assert set(manifest["data"]) == {f"{c}.{s}" for c in ("train", "dev", "test") for s in ("source", "target")}
    assert manifest["command"][-1] == str(five_run.config)
    assert manifest["versions"]["nmt"] == nmt.__version__
    metrics = RunDirectory(run).read_metrics()
    assert [line["step"] for line in metrics if "lr" in line] == list(range(1, 201))
    validations = [line for line in metrics if "dev_bleu" in line]
    assert [line["step"] for line in validations] == [100, 200]
    assert all("tok:13a" in line["bleu_signature"] for line in validations)
    assert metrics[0]["loss"] > 4 > 2 > validations[-1]["dev_loss"]


def test_train_fresh_moves_the_old_run_aside_and_keeps_a_link(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "disk" / "run")
    before, named = file_bytes(run), tmp_path / "link"
    named.symlink_to(run)
    done = run_nmt("train", five_run.config, f"run={named}", "train.max_steps=2", "seed=7", "--fresh")
    aside = tmp_path / "disk" / "run.1"
    assert f"the old run is kept in {aside}" in err_lines(done)
    assert file_bytes(aside) == before
    assert named.is_symlink()
    assert RunDirectory(run).newest_step() == 2
    assert json.loads((run / "manifest.json").read_text())["seed"] == 7


def test_train_resumes_with_its_own_tokenizer(five_run: FiveRun, five_corpus: FiveCorpus) -> None:
    """Another file in its place is not used, and it may be absent; the checkpoint contains the tokenizer."""
    run = five_run.copy_run(five_corpus.home / "run")
    file = run / "tokenizer.model"
    assert out_lines(run_nmt("tokenize", five_corpus.config, "tokenizer.vocab_size=400")) == []
    own = file.read_bytes()
    shutil.copy(five_corpus.run / "tokenizer.model", run)
    assert out_lines(run_nmt("train", five_run.config, f"run={run}", "train.max_steps=201")) == []
    file.unlink()
    assert out_lines(run_nmt("train", five_run.config, f"run={run}", "train.max_steps=202")) == []
    for step in (201, 202):
        with safe_open(run / "checkpoints" / f"step-{step}.safetensors", framework="numpy") as last:
            assert last.get_tensor("tokenizer.source").tobytes() == own


def test_train_dry_run_estimates_cost_and_writes_nothing(five_corpus: FiveCorpus) -> None:
    before = file_bytes(five_corpus.home)
    words = ["train", five_corpus.config, "model.d_model=32", "--dry-run", "--replicas"]
    assert "--replicas 99 on" in one_clear_error(run_nmt(*words, 99, cwd=five_corpus.home), 2)
    done = run_nmt(*words, 1, cwd=five_corpus.home)
    assert file_bytes(five_corpus.home) == before
    assert not five_corpus.run.parent.exists()

    lines = out_lines(done)
    printed = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    assert set(printed) >= {"parameters", "batches", "speed", "memory", "time"}
    assert int(printed["parameters"].replace(",", "")) > 10_000
    assert printed["batches"].startswith("1 an epoch, ")
    assert re.search(r"target tokens a second, fp32 on .*, replicas: 1$", printed["speed"])
    assert 0 < float(printed["memory"].removesuffix(" GB")) < 100
    assert printed["time"].endswith(" in all without validations")


@pytest.mark.parametrize("command", [["train", "--fresh"], ["tokenize"]], ids=" ".join)
def test_a_refused_command_leaves_a_training_unchanged(five_run: FiveRun, tmp_path: Path, command: list[str]) -> None:
    run = five_run.copy_run(tmp_path / "run")
    (run / "checkpoints" / f"step-201.safetensors.tmp.{NO_PROCESS}").write_bytes(b"half of it")
    with (run / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = sorted(tmp_path.rglob("*"))
        done = run_nmt(*command, five_run.config, f"run={run}", "train.max_steps=300")
        one_clear_error(done, 2, f"{run} is in use by another training")
        assert sorted(tmp_path.rglob("*")) == before
