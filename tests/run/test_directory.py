"""The small files of a run are read back as written, damaged files are errors, and no run is overwritten."""

import errno
import os
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import small_run
from conftest import NO_PROCESS

from nmt.config import Config
from nmt.errors import ConfigError, InputError, ModelError, OutputError
from nmt.files import TEMP_MARK, atomic_writer, sha256
from nmt.run.directory import RunDirectory, hash_files, new_manifest
from nmt.text.tokenizer import Tokenizers
from nmt.text.tokenizer_training import train_tokenizer

LINES = ["the cat sat on the mat", "a dog runs through the park"]


def config_of(*, joint: bool = True, nfkc: bool = False) -> Config:
    tokenizer = {"joint": joint, "vocab_size": 290}
    return small_run.config_of(Path(), data__nfkc_source=nfkc, tokenizer=tokenizer, model__tied_embeddings="decoder")


@pytest.fixture(scope="module")
def models() -> list[bytes]:
    return [train_tokenizer(lines, config_of().tokenizer).model for lines in (LINES, LINES[1:])]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    found = RunDirectory(tmp_path / "runs" / "demo")
    found.create()
    return found


def test_locking_makes_the_directory_and_removes_unfinished_writes(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "a" / "b")
    with run.lock():
        assert run.checkpoints.is_dir()
    for name in ("config.yaml", "checkpoints/step-3.safetensors"):
        (run.path / f"{name}{TEMP_MARK}{NO_PROCESS}").write_bytes(b"half")
    with atomic_writer(run.path / "test.en") as out:  # for example by `nmt translate -o run/test.en`
        out.write(b"all of it")
        with run.lock():
            pass
    assert sorted(file.name for file in run.path.rglob("*")) == ["checkpoints", "lock", "test.en"]
    assert (run.path / "test.en").read_bytes() == b"all of it"


def test_a_locked_run_can_neither_be_locked_nor_moved_nor_cleaned_until_released(run: RunDirectory) -> None:
    with run.lock():
        unfinished = run.path / f"config.yaml{TEMP_MARK}{os.getpid()}"  # of the training that holds the lock
        unfinished.write_bytes(b"half")
        for entry in (RunDirectory(run.path).lock().__enter__, RunDirectory(run.path).move_aside):
            with pytest.raises(InputError, match=rf"^{re.escape(str(run.path))} is in use by another training$"):
                entry()
        assert unfinished.exists()
    with run.lock():
        pass


def test_a_run_is_moved_aside_to_the_first_free_number(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "demo")
    assert run.move_aside() is None
    (tmp_path / "demo.2").write_bytes(b"someone's file")
    (tmp_path / "demo.4").symlink_to("nowhere")
    for n in (1, 3, 5):
        run.create()
        run.append_metrics({"n": n})
        assert run.move_aside() == tmp_path / f"demo.{n}"
        assert not run.path.exists()
        assert RunDirectory(tmp_path / f"demo.{n}").read_metrics() == [{"n": n}]
    assert (tmp_path / "demo.2").read_bytes() == b"someone's file"


@pytest.mark.parametrize("name", [".", "..", "../link/here"])
def test_the_working_directory_is_not_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The process and the shell would stay in the moved directory, under its new name."""
    (tmp_path / "up" / "here" / "sub").mkdir(parents=True)
    (tmp_path / "up" / "link").symlink_to(tmp_path / "up")
    monkeypatch.chdir(tmp_path / "up" / "here")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=f"^run={re.escape(str(Path(name)))} cannot be moved aside: it is the"):
        RunDirectory(name).move_aside()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_cannot_be_renamed_is_an_error(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = OSError(errno.EBUSY, os.strerror(errno.EBUSY))  # as for a mount point
    monkeypatch.setattr(os, "rename", mock.Mock(side_effect=busy))
    with pytest.raises(OutputError, match=f"cannot move {run.path} aside: Device or resource busy") as caught:
        run.move_aside()
    assert "run=PATH" in caught.value.hint


@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl", f"checkpoints/x.tmp.{NO_PROCESS}"])
def test_a_run_with_a_link_that_leads_out_or_a_pipe_is_refused(run: RunDirectory, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"a.tmp.{NO_PROCESS}").write_text("mine")
    if name == "checkpoints":
        run.checkpoints.rmdir()
    (run.path / name).symlink_to(elsewhere if name == "checkpoints" else elsewhere / "new")
    for entry in (run.lock().__enter__, run.move_aside):
        with pytest.raises(ModelError, match="is a link that leads out of the run"):
            entry()
    assert [file.name for file in elsewhere.iterdir()] == [f"a.tmp.{NO_PROCESS}"]
    (run.path / name).unlink()
    os.mkfifo(run.path / name)  # opening it would block
    with pytest.raises(ModelError, match="is neither a file nor a directory"):
        run.move_aside()


def test_settings_are_read_back_as_written(run: RunDirectory) -> None:
    with pytest.raises(ModelError) as caught:
        run.read_config()
    assert str(caught.value) == f"{run.path} is not a run: it has no config.yaml"
    assert (caught.value.exit_code, caught.value.hint) == (2, "train one with `nmt train`")
    run.write_config(config_of(nfkc=True))
    assert run.read_config() == config_of(nfkc=True)
    run.config_file.write_text(run.config_file.read_text(encoding="utf-8").replace("seed: 1", "seed: x"))
    with pytest.raises(ConfigError, match=r"config\.yaml:2: 'seed'"):
        run.read_config()


def test_the_manifest_records_data_seed_command_and_versions(run: RunDirectory) -> None:
    assert run.read_manifest() == {}
    run.write_manifest(new_manifest({"train.source": "abc"}, {"train": 5}, seed=7, reproducible=True))
    found = run.read_manifest()
    assert (found["data"], found["seed"], found["command"]) == ({"train.source": "abc"}, 7, sys.argv)
    assert set(found["versions"]) == {"nmt", "torch", "sentencepiece", "sacrebleu", "safetensors"}
    assert re.match(r"2\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\d", found["started"])
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["reproducible"] is True
    assert re.fullmatch(r"([0-9a-f]{40})?", found["git_commit"])


@pytest.mark.parametrize("content", ["{", "[1]", '{"data": []}'])
def test_a_damaged_manifest_is_an_error(run: RunDirectory, content: str) -> None:
    run.manifest_file.write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=r"manifest\.json is damaged$"):
        run.read_manifest()


@pytest.mark.parametrize("joint", [True, False])
def test_tokenizers_are_read_back(run: RunDirectory, models: list[bytes], joint: bool) -> None:
    config = config_of(joint=joint, nfkc=True)
    assert run.read_tokenizers(config) is None
    written = Tokenizers.from_models(models[0], models[0 if joint else 1], nfkc_source=True)
    run.write_tokenizers(written, joint)
    found = run.read_tokenizers(config)
    assert found is not None
    assert (found.source.model, found.target.model) == (written.source.model, written.target.model)
    assert (found.source.nfkc, found.target.nfkc, found.joint) == (True, False, joint)
    names = ["tokenizer.model"] if joint else ["tokenizer.src.model", "tokenizer.tgt.model"]
    assert sorted(file.name for file in run.path.glob("tokenizer*")) == names
    (run.path / names[-1]).unlink()
    assert run.read_tokenizers(config) is None


@pytest.mark.parametrize(("joint", "side"), [(True, 0), (False, 1)])
def test_a_damaged_tokenizer_is_an_error(run: RunDirectory, models: list[bytes], joint: bool, side: int) -> None:
    run.write_tokenizers(Tokenizers.from_models(models[0], models[1 - joint], nfkc_source=False), joint)
    damaged = run.tokenizer_files(joint)[side]
    damaged.write_bytes(damaged.read_bytes()[:-5])
    with pytest.raises(ModelError) as caught:
        run.read_tokenizers(config_of(joint=joint))
    assert str(caught.value) == f"{damaged}: the tokenizer is damaged or not in the format of sentencepiece"
    assert "delete it and run `nmt tokenize" in caught.value.hint


def test_checkpoints_are_listed_in_order_pruned_and_set_aside(run: RunDirectory) -> None:
    assert run.newest_step() is None
    for step in (100, 20, 3, 1000):
        run.checkpoint_file(step).write_bytes(b"%d" % step)
    others = ["step-x.safetensors", "step-.safetensors", "step-²5.safetensors", "step-٣.safetensors"]
    others += ["step-007.safetensors", "step-5.txt", "notes"]
    for other in others:
        (run.checkpoints / other).write_bytes(b"")
    assert run.checkpoint_steps() == [3, 20, 100, 1000]
    run.prune_checkpoints([20, 1000, 7])
    assert run.checkpoint_steps() == [20, 1000]
    aside = run.set_aside(1000)
    assert run.newest_step() == 20
    run.prune_checkpoints([])
    assert sorted(file.name for file in run.checkpoints.iterdir()) == sorted([*others, aside.name])
    assert aside.read_bytes() == b"1000"
    assert RunDirectory(run.path / "none").checkpoint_steps() == []


def test_metrics_are_read_without_the_line_that_is_being_written_and_are_cut(run: RunDirectory) -> None:
    assert run.cut_metrics(5) == []
    assert run.read_metrics() == []
    run.append_metrics({"step": 1}, {"step": 2})
    with run.metrics_file.open("ab") as file:
        file.write(b'{"step": 3, "lo')
    assert run.read_metrics() == [{"step": 1}, {"step": 2}]
    with run.metrics_file.open("ab") as file:
        file.write(b'ss": 1.0}\n')
    assert run.read_metrics() == [{"step": 1}, {"step": 2}, {"step": 3, "loss": 1.0}]
    run.cut_metrics(1)
    lines: list[dict[str, Any]] = [{"step": 2, "text": "\u2028\x85"}, {"step": 3, "loss": 2.0}]
    run.append_metrics(*lines)
    assert run.read_metrics() == [{"step": 1}, *lines]


@pytest.mark.parametrize("last", ["[1]\n", '{"step": "x"}\n', "[" * 100_000 + "\n", '{"step": 2, "l'])
def test_invalid_and_incomplete_lines_are_ignored_and_removed(run: RunDirectory, last: str) -> None:
    run.append_metrics({"step": 1})
    with run.metrics_file.open("a") as file:
        file.write(last)
    assert run.read_metrics() == [{"step": 1}]
    run.cut_metrics(1)
    run.append_metrics({"step": 2})
    assert run.metrics_file.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_hash_files_depends_on_content_order_and_file_boundaries(tmp_path: Path) -> None:
    contents = {"a": b"1\n2\n", "b": b"3\n", "c": b"1\n", "d": b"2\n3\n", "copy": b"1\n2\n"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = {names: hash_files([tmp_path / name for name in names]) for names in ("ab", "ba", "cd", "a", "b")}
    assert len(set(found.values())) == 5
    assert hash_files([tmp_path / "copy"]) == found["a"]
    assert hash_files([]) == sha256(b"")
