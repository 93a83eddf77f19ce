"""Pruning the checkpoints of a training."""

import shutil
from pathlib import Path

import pytest
from small_run import config_of, final_hash, run_training, write_small_corpus

from nmt.config import Config
from nmt.errors import InputError, ModelError
from nmt.run.directory import RunDirectory
from nmt.train.upkeep import prune


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A run with four checkpoints."""
    corpus = write_small_corpus(tmp_path_factory.mktemp("corpus"))
    config = config_of(corpus, train__max_steps=20, train__keep=6, train__metric="loss")
    run_training(config)
    return config


@pytest.fixture
def run(whole: Config, tmp_path: Path) -> RunDirectory:
    """A copy, which a test may change."""
    return RunDirectory(shutil.copytree(whole.run, tmp_path / "run"))


def resumed(whole: Config, run: Path) -> str:
    """Train on; return the hash of the last checkpoint."""
    more = whole.train.model_copy(update={"max_steps": 25})
    config = whole.model_copy(update={"run": str(run), "train": more})
    run_training(config)
    return final_hash(config)


def test_all_checkpoints_but_the_newest_are_deleted(run: RunDirectory) -> None:
    (run.checkpoints / "step-3.damaged").write_bytes(b"x")
    sizes = {file: file.stat().st_size for file in run.checkpoints.iterdir()}
    pruned = prune(run.path)
    newest = run.checkpoint_file(20)
    assert list(run.checkpoints.iterdir()) == [newest]
    assert run.model_file.exists()
    del sizes[newest]
    assert set(pruned.files) == sizes.keys()
    assert pruned.n_bytes == sum(sizes.values())
    # Nothing is left to delete.
    assert prune(run.path).files == []


def test_a_pruned_run_goes_on_like_the_whole_one(whole: Config, run: RunDirectory, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run.path, tmp_path / "copy"))
    prune(run.path)
    result = resumed(whole, run.path)
    assert result == resumed(whole, copy)


def test_a_damaged_checkpoint_is_deleted_and_an_older_one_kept(run: RunDirectory) -> None:
    content = bytearray(run.checkpoint_file(20).read_bytes())
    content[-5] ^= 1  # a bit of a weight
    run.checkpoint_file(20).write_bytes(content)
    assert prune(run.path).kept == 15
    assert run.checkpoint_steps() == [15]


def test_a_run_in_use_is_not_pruned(run: RunDirectory) -> None:
    with run.lock(), pytest.raises(InputError, match="is in use"):
        prune(run.path)


def check_refused(run: RunDirectory, message: str) -> None:
    """Check that nothing is deleted."""
    steps = run.checkpoint_steps()
    with pytest.raises(ModelError, match=message):
        prune(run.path)
    assert run.checkpoint_steps() == steps


def test_nothing_is_deleted_if_the_model_file_is_damaged(run: RunDirectory) -> None:
    model = run.model_file.read_bytes()
    run.model_file.write_bytes(model[:-9])
    check_refused(run, "damaged")


def test_nothing_is_deleted_without_a_model_file(run: RunDirectory) -> None:
    run.model_file.unlink()
    check_refused(run, "has no model yet")


def test_nothing_is_deleted_if_all_checkpoints_are_damaged(run: RunDirectory) -> None:
    for step in run.checkpoint_steps():
        run.checkpoint_file(step).write_bytes(b"")
    check_refused(run, "step-5")


def test_a_run_without_checkpoints_is_refused(run: RunDirectory) -> None:
    run.prune_checkpoints([])
    check_refused(run, "has no checkpoint")
