"""Pruning the checkpoints of a training."""

import shutil
from pathlib import Path

import pytest
from small_run import config_of, final_hash, run_training, write_small_corpus

from nmt.config import Config
from nmt.errors import InputError, ModelError
from nmt.run.directory import RunDirectory
from nmt.train.upkeep import prune
from nmt.translate.loading import load


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def trained(corpus: Path, tmp_path: Path) -> Config:
    """A copy of a run with four checkpoints, which a test may change."""
    config = config_of(corpus, "whole", train__max_steps=20, train__keep=6, train__metric="loss")
    if not Path(config.run).exists():
        run_training(config)
    return config.model_copy(update={"run": str(shutil.copytree(config.run, tmp_path / "run"))})


def resumed(config: Config) -> str:
    more = config.train.model_copy(update={"max_steps": 25})
    run_training(config.model_copy(update={"train": more}))
    return final_hash(config)


def test_a_pruned_run_translates_and_goes_on_like_the_whole_one(trained: Config, tmp_path: Path) -> None:
    whole = trained.model_copy(update={"run": str(shutil.copytree(trained.run, tmp_path / "whole"))})
    run = RunDirectory(trained.run)
    (run.checkpoints / "step-3.damaged").write_bytes(b"x")
    before = {file: file.stat().st_size for file in run.checkpoints.iterdir()}
    assert prune(run.path, dry_run=True) == (found := prune(run.path))
    left = set(run.checkpoints.iterdir())
    assert left == {run.checkpoint_file(20)}
    assert set(found.files) == before.keys() - left
    assert found.n_bytes == sum(before[file] for file in found.files)
    assert prune(run.path).files == []
    one, other = (load(path, engine="torch").translate(["狗今天跑。"], beam=1) for path in (run.path, whole.run))
    assert one == other
    assert resumed(trained) == resumed(whole)


def test_a_damaged_checkpoint_is_deleted_and_an_older_one_kept(trained: Config) -> None:
    run = RunDirectory(trained.run)
    content = bytearray(run.checkpoint_file(20).read_bytes())
    content[-5] ^= 1
    run.checkpoint_file(20).write_bytes(content)
    assert [prune(run.path).kept] == run.checkpoint_steps() == [15]


def test_nothing_is_deleted_if_model_or_checkpoints_are_damaged_or_the_run_is_in_use(trained: Config) -> None:
    run = RunDirectory(trained.run)
    with run.lock(), pytest.raises(InputError, match="is in use"):
        prune(run.path)
    model = run.model_file.read_bytes()
    run.model_file.write_bytes(model[:-9])
    with pytest.raises(ModelError, match="damaged"):
        prune(run.path)
    run.model_file.unlink()
    with pytest.raises(ModelError, match="has no model yet"):
        prune(run.path)
    run.model_file.write_bytes(model)
    for step in run.checkpoint_steps():
        run.checkpoint_file(step).write_bytes(b"")
    with pytest.raises(ModelError, match="step-5"):
        prune(run.path)
    assert run.checkpoint_steps() == [5, 10, 15, 20]
    run.prune_checkpoints([])
    with pytest.raises(ModelError, match="has no checkpoint"):
        prune(run.path)
