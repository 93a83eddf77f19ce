"""The small files of a run are read back as written, damaged files are errors, and no run is overwritten."""

import errno
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import small_run
from conftest import NO_PROCESS, file_bytes

from nmt.config import Config
from nmt.errors import ConfigError, InputError, ModelError, OutputError
from nmt.files import TEMP_MARK, atomic_writer
from nmt.run.directory import RunDirectory, hash_files, new_manifest
from nmt.text.tokenizer import Tokenizers
from nmt.text.tokenizer_training import train_tokenizer

LINES = ["the cat sat on the mat", "a dog runs through the park"]


def config_of(*, joint: bool = True, nfkc: bool = False) -> Config:
    tokenizer = {"joint": joint, "vocab_size": 290}
    return small_run.config_of(Path(), data__nfkc_source=nfkc, tokenizer=tokenizer, model__tied_embeddings="decoder")


@pytest.fixture(scope="module")
def models() -> list[bytes]:
    settings = config_of().tokenizer
    return [train_tokenizer(lines, settings) for lines in (LINES, LINES[1:])]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "runs" / "demo")
    run.create()
    return run


def test_locking_makes_the_directory(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "a" / "b")
    with run.lock():
        assert run.checkpoints.is_dir()


def test_locking_removes_unfinished_writes(run: RunDirectory) -> None:
    for name in ("config.yaml", "checkpoints/step-3.safetensors"):
        (run.path / f"{name}{TEMP_MARK}{NO_PROCESS}").write_bytes(b"half")
    with run.lock():
        assert file_bytes(run.path).keys() == {"lock"}


def test_locking_leaves_files_alone_that_others_are_writing(run: RunDirectory) -> None:
    with atomic_writer(run.path / "test.en") as out, run.lock():  # for example by `nmt translate -o run/test.en`
        out.write(b"all of it")
    assert (run.path / "test.en").read_bytes() == b"all of it"


def test_a_locked_run_can_be_neither_locked_nor_moved(run: RunDirectory) -> None:
    message = f"^{re.escape(str(run.path))} is in use by another training$"
    with run.lock():
        with pytest.raises(InputError, match=message), RunDirectory(run.path).lock():
            pytest.fail("two trainings hold the lock")
        with pytest.raises(InputError, match=message):
            run.move_aside()
    with run.lock():
        pass


def test_a_locked_run_is_not_cleaned(run: RunDirectory) -> None:
    with run.lock():
        unfinished = run.path / f"config.yaml{TEMP_MARK}{os.getpid()}"  # of the training that holds the lock
        unfinished.write_bytes(b"half")
        with pytest.raises(InputError), RunDirectory(run.path).lock():
            pass
        assert unfinished.exists()


# --- moved aside


def test_a_run_that_does_not_exist_is_not_moved(tmp_path: Path) -> None:
    assert RunDirectory(tmp_path / "demo").move_aside() is None


def test_a_run_is_moved_aside_with_all_of_its_files(run: RunDirectory) -> None:
    run.append_metrics({"n": 1})
    aside = run.move_aside()
    assert aside == run.path.with_name("demo.1")
    assert not run.path.exists()
    assert RunDirectory(aside).read_metrics() == [{"n": 1}]


def test_a_run_is_moved_aside_to_the_first_free_number(run: RunDirectory) -> None:
    run.path.with_name("demo.1").write_bytes(b"someone's file")
    run.path.with_name("demo.2").symlink_to("nowhere")  # does not exist, but takes the name
    assert run.move_aside() == run.path.with_name("demo.3")
    assert run.path.with_name("demo.1").read_bytes() == b"someone's file"


@pytest.mark.parametrize("name", [".", "..", "../link/here"])
def test_the_working_directory_is_not_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The process and the shell would stay in the moved directory, under its new name."""
    (tmp_path / "up" / "here" / "sub").mkdir(parents=True)
    (tmp_path / "up" / "link").symlink_to(tmp_path / "up")
    monkeypatch.chdir(tmp_path / "up" / "here")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=f"^run={re.escape(name)} cannot be moved aside: it is the"):
        RunDirectory(name).move_aside()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_cannot_be_renamed_is_an_error(run: RunDirectory) -> None:
    busy = OSError(errno.EBUSY, os.strerror(errno.EBUSY))  # as for a mount point
    with mock.patch.object(os, "rename", side_effect=busy), pytest.raises(OutputError) as caught:
        run.move_aside()
    assert str(caught.value) == f"cannot move {run.path} aside: Device or resource busy"
    assert "run=PATH" in caught.value.hint


# --- links


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory outside of the run, with a file that sweeping would remove."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / f"a.tmp.{NO_PROCESS}").write_text("mine")
    return tmp_path / "elsewhere"


def check_refused(run: RunDirectory, message: str) -> None:
    with pytest.raises(ModelError, match=message), run.lock():
        pass
    with pytest.raises(ModelError, match=message):
        run.move_aside()


def test_a_directory_that_is_a_link_out_of_the_run_is_refused(run: RunDirectory, elsewhere: Path) -> None:
    run.checkpoints.rmdir()
    run.checkpoints.symlink_to(elsewhere)
    check_refused(run, "checkpoints is a link that leads out of the run")
    assert file_bytes(elsewhere) == {f"a.tmp.{NO_PROCESS}": b"mine"}


@pytest.mark.parametrize("name", ["metrics.jsonl", f"checkpoints/x.tmp.{NO_PROCESS}"])
def test_a_file_that_is_a_link_out_of_the_run_is_refused(run: RunDirectory, elsewhere: Path, name: str) -> None:
    (run.path / name).symlink_to(elsewhere / "new")
    check_refused(run, "is a link that leads out of the run")
    assert file_bytes(elsewhere) == {f"a.tmp.{NO_PROCESS}": b"mine"}


@pytest.mark.parametrize("name", ["metrics.jsonl", f"checkpoints/x.tmp.{NO_PROCESS}"])
def test_a_pipe_in_a_run_is_refused(run: RunDirectory, name: str) -> None:
    os.mkfifo(run.path / name)  # opening it would block
    check_refused(run, "is neither a file nor a directory")


# --- settings and manifest


def test_settings_are_read_back_as_written(run: RunDirectory) -> None:
    run.write_config(config_of(nfkc=True))
    assert run.read_config() == config_of(nfkc=True)


def test_a_directory_without_settings_is_no_run(run: RunDirectory) -> None:
    with pytest.raises(ModelError) as caught:
        run.read_config()
    assert str(caught.value) == f"{run.path} is not a run: it has no config.yaml"
    assert caught.value.hint == "train one with `nmt train`"
    assert caught.value.exit_code == 2


def test_an_invalid_setting_of_a_run_is_named_with_its_line(run: RunDirectory) -> None:
    run.write_config(config_of())
    text = run.config_file.read_text(encoding="utf-8")
    run.config_file.write_text(text.replace("seed: 1", "seed: x"))
    with pytest.raises(ConfigError, match=r"config\.yaml:2: 'seed'"):
        run.read_config()


def test_a_new_run_has_an_empty_manifest(run: RunDirectory) -> None:
    assert run.read_manifest() == {}


def test_the_manifest_records_data_seed_command_and_versions(run: RunDirectory) -> None:
    run.write_manifest(new_manifest({"train.source": "abc"}, {"train": 5}, seed=7))
    manifest = run.read_manifest()
    assert manifest["data"] == {"train.source": "abc"}
    assert manifest["n_pairs"] == {"train": 5}
    assert manifest["seed"] == 7
    assert manifest["command"] == sys.argv
    assert manifest["python"] == platform.python_version()
    assert manifest["versions"].keys() == {"nmt-trainer", "torch", "sentencepiece", "sacrebleu", "safetensors"}
    assert re.match(r"2\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\d", manifest["started"])


@pytest.mark.parametrize("content", ["{", "[1]", '{"data": []}'])
def test_a_damaged_manifest_is_an_error(run: RunDirectory, content: str) -> None:
    run.manifest_file.write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=r"manifest\.json is damaged$"):
        run.read_manifest()


# --- tokenizers


def test_a_joint_tokenizer_is_one_file(run: RunDirectory, models: list[bytes]) -> None:
    model, _ = models
    run.write_tokenizers(Tokenizers.from_models(model, model, nfkc_source=True), joint=True)
    assert file_bytes(run.path) == {"tokenizer.model": model}
    tokenizers = run.read_tokenizers(config_of(nfkc=True))
    assert tokenizers is not None
    assert tokenizers.joint
    assert tokenizers.source.nfkc
    assert not tokenizers.target.nfkc


def test_two_tokenizers_are_two_files(run: RunDirectory, models: list[bytes]) -> None:
    source, target = models
    run.write_tokenizers(Tokenizers.from_models(source, target, nfkc_source=False), joint=False)
    assert file_bytes(run.path) == {"tokenizer.src.model": source, "tokenizer.tgt.model": target}
    tokenizers = run.read_tokenizers(config_of(joint=False))
    assert tokenizers is not None
    assert not tokenizers.joint


@pytest.mark.parametrize("joint", [True, False])
def test_a_run_without_tokenizers_has_none(run: RunDirectory, joint: bool) -> None:
    assert run.read_tokenizers(config_of(joint=joint)) is None


def test_a_run_with_one_of_two_tokenizers_has_none(run: RunDirectory, models: list[bytes]) -> None:
    (run.path / "tokenizer.src.model").write_bytes(models[0])
    assert run.read_tokenizers(config_of(joint=False)) is None


@pytest.mark.parametrize("joint", [True, False])
def test_a_damaged_tokenizer_is_an_error(run: RunDirectory, models: list[bytes], joint: bool) -> None:
    model, _ = models
    run.write_tokenizers(Tokenizers.from_models(model, model, nfkc_source=False), joint)
    damaged = run.path / ("tokenizer.model" if joint else "tokenizer.tgt.model")
    damaged.write_bytes(model[:-5])
    with pytest.raises(ModelError) as caught:
        run.read_tokenizers(config_of(joint=joint))
    assert str(caught.value) == f"{damaged}: the tokenizer is damaged or not in the format of sentencepiece"
    assert "delete it and run `nmt tokenize" in caught.value.hint


# --- checkpoints


@pytest.fixture
def run_with_checkpoints(run: RunDirectory) -> RunDirectory:
    for step in (100, 20, 3, 1000):
        run.checkpoint_file(step).write_bytes(b"%d" % step)
    return run


def test_checkpoints_are_listed_by_their_steps(run_with_checkpoints: RunDirectory) -> None:
    assert run_with_checkpoints.checkpoint_steps() == [3, 20, 100, 1000]
    assert run_with_checkpoints.newest_step() == 1000


def test_a_run_without_checkpoints_has_no_newest(run: RunDirectory, tmp_path: Path) -> None:
    assert run.newest_step() is None
    assert RunDirectory(tmp_path / "none").checkpoint_steps() == []


def test_checkpoints_that_are_not_kept_are_deleted(run_with_checkpoints: RunDirectory) -> None:
    run_with_checkpoints.prune_checkpoints(2)
    assert run_with_checkpoints.checkpoint_steps() == [100, 1000]


def test_other_files_are_neither_listed_nor_deleted(run: RunDirectory) -> None:
    names = ["step-x.safetensors", "step-.safetensors", "step-²5.safetensors", "step-٣.safetensors"]
    names += ["step-007.safetensors", "step-5.txt", "notes"]
    for name in names:
        (run.checkpoints / name).write_bytes(b"")
    assert run.checkpoint_steps() == []
    run.prune_checkpoints(1)
    result = file_bytes(run.checkpoints).keys()
    assert result == set(names)


def test_a_checkpoint_that_is_set_aside_is_neither_listed_nor_deleted(run_with_checkpoints: RunDirectory) -> None:
    aside = run_with_checkpoints.set_aside(1000)
    assert run_with_checkpoints.newest_step() == 100
    run_with_checkpoints.prune_checkpoints(1)
    assert aside.read_bytes() == b"1000"


# --- metrics


def test_a_run_without_metrics_has_none(run: RunDirectory) -> None:
    assert run.read_metrics() == []
    assert run.cut_metrics(5) == []


def test_metrics_are_read_back_as_written(run: RunDirectory) -> None:
    first: dict[str, Any] = {"step": 1, "text": "\u2028\x85"}
    second: dict[str, Any] = {"step": 2, "loss": 2.0}
    run.append_metrics(first, second)
    assert run.read_metrics() == [first, second]


def test_the_line_that_is_being_written_is_not_read(run: RunDirectory) -> None:
    run.append_metrics({"step": 1})
    with run.metrics_file.open("ab", buffering=0) as file:
        file.write(b'{"step": 2, "lo')
        assert run.read_metrics() == [{"step": 1}]
        file.write(b'ss": 1.0}\n')
    assert run.read_metrics() == [{"step": 1}, {"step": 2, "loss": 1.0}]


def test_metrics_are_cut_after_a_step(run: RunDirectory) -> None:
    run.append_metrics({"step": 1}, {"step": 2}, {"step": 3})
    assert run.cut_metrics(2) == [{"step": 1}, {"step": 2}]
    assert run.read_metrics() == [{"step": 1}, {"step": 2}]


INVALID_LINES = ["[1]\n", '{"step": "x"}\n', "[" * 100_000 + "\n", '{"step": 2, "l']


@pytest.mark.parametrize("last", INVALID_LINES, ids=len)
def test_invalid_and_incomplete_lines_are_ignored_and_removed(run: RunDirectory, last: str) -> None:
    run.append_metrics({"step": 1})
    with run.metrics_file.open("a") as file:
        file.write(last)
    assert run.read_metrics() == [{"step": 1}]
    run.cut_metrics(1)
    assert run.metrics_file.read_bytes() == b'{"step": 1}\n'


# --- hashes


def test_the_hash_of_files_depends_on_content_order_and_boundaries(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    hashes = set()
    for parts in ("1\n2\n|3\n", "3\n|1\n2\n", "1\n|2\n3\n", "1\n2\n3\n|"):
        before, after = parts.split("|")
        first.write_text(before)
        second.write_text(after)
        hashes.add(hash_files([first, second]))
    assert len(hashes) == 4


def test_the_hash_of_files_does_not_depend_on_their_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"1")
    assert hash_files([tmp_path / "a"]) == hash_files([tmp_path / "b"])
