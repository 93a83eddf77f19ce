"""`nmt train`: a run from start to end, resuming, starting anew, signals, refused settings."""

import fcntl
import re
import shutil
from pathlib import Path

import pytest
from conftest import NO_PROCESS, TARGET, FiveCorpus, FiveRun, err_lines, file_bytes, out_lines, refused, run_in
from safetensors import safe_open

from nmt.config import load_config
from nmt.run.directory import RunDirectory

FILES = {
    "config.yaml",
    "manifest.json",
    "tokenizer.model",
    "model.safetensors",
    "checkpoints/step-100.safetensors",
    "checkpoints/step-200.safetensors",
    "metrics.jsonl",
    "train.log",
    "report.html",
    "lock",
}


def test_train_writes_the_files_of_a_run(five_run: FiveRun) -> None:
    files = set(file_bytes(five_run.run))
    files.discard("scores.jsonl")  # other tests may have evaluated the run
    assert files == FILES


def test_train_logs_what_it_does(five_run: FiveRun) -> None:
    assert five_run.training.stdout == b"", "stdout carries data only"
    log = five_run.training.stderr.decode()
    assert "tokenizer.vocab_size=600 was cut" in log
    assert "5 of 5 pairs of dev have a side that is also in train" in log
    assert "\nchosen for 5 pairs: tokenizer.vocab_size=600 model.n_heads=4 model.d_ff=256 " in f"\n{log}"
    assert "step 200: dev loss" in log
    assert f"reference    {TARGET[0]}" in log, "samples of dev are logged"
    assert re.search(rf"\ndone: 200 steps in .*; the model is {five_run.model_file}\n", log)


def test_the_config_of_a_run_has_the_fitted_values(five_run: FiveRun) -> None:
    result = load_config(five_run.run / "config.yaml").model.d_ff
    assert result == 256


def test_train_fresh_moves_the_old_run_aside_and_keeps_a_link(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "disk" / "run")
    before = file_bytes(run)
    link = tmp_path / "link"
    link.symlink_to(run)
    done = run_in(tmp_path, f"train {five_run.config} run={link} train.max_steps=2 seed=7 --fresh")
    aside = tmp_path / "disk" / "run.1"
    assert f"the old run is kept in {aside}" in err_lines(done)
    assert file_bytes(aside) == before
    assert link.is_symlink()
    result = RunDirectory(run).newest_step()
    assert result == 2
    assert RunDirectory(run).read_manifest()["seed"] == 7


def test_train_resumes_with_the_tokenizer_of_its_checkpoint(
    five_run: FiveRun, five_corpus: FiveCorpus, tmp_path: Path
) -> None:
    """Another file in its place is not used, and it may be absent."""
    run = five_run.copy_run(tmp_path / "run")
    file = run / "tokenizer.model"
    content = file.read_bytes()
    # 1. Another tokenizer.
    out_lines(run_in(tmp_path, "tokenize five.yaml tokenizer.vocab_size=400"))
    shutil.copy(five_corpus.run / "tokenizer.model", run)
    out_lines(run_in(tmp_path, f"train {five_run.config} run=run train.max_steps=201"))
    # 2. None.
    file.unlink()
    out_lines(run_in(tmp_path, f"train {five_run.config} run=run train.max_steps=202"))
    for step in (201, 202):
        with safe_open(run / "checkpoints" / f"step-{step}.safetensors", framework="numpy") as checkpoint:
            assert checkpoint.get_tensor("tokenizer.source").tobytes() == content


def test_train_dry_run_estimates_cost_and_writes_nothing(five_corpus: FiveCorpus) -> None:
    before = file_bytes(five_corpus.home)
    (line,) = out_lines(run_in(five_corpus.home, "train five.yaml model.d_model=32 --dry-run --replicas 1"))
    assert file_bytes(five_corpus.home) == before
    pattern = r"[\d,]+ parameters on cpu, replicas: 1; an epoch of 1 steps takes \d:\d\d:\d\d and \d+\.\d\d GB"
    assert re.fullmatch(pattern, line)


@pytest.mark.parametrize("command", ["train --fresh", "tokenize"])
def test_a_refused_command_leaves_a_training_unchanged(five_run: FiveRun, tmp_path: Path, command: str) -> None:
    run = five_run.copy_run(tmp_path / "run")
    (run / "checkpoints" / f"step-201.safetensors.tmp.{NO_PROCESS}").write_bytes(b"half of it")
    with (run / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = sorted(tmp_path.rglob("*"))
        command = f"{command} {five_run.config} run=run train.max_steps=300"
        refused(tmp_path, command, "run is in use by another training")
        assert sorted(tmp_path.rglob("*")) == before
