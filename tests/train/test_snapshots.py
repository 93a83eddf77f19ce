"""Snapshots: their steps, their weights, and that a killed run writes the same ones."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import config_of, run_training

from nmt.config import Config
from nmt.errors import OutputError
from nmt.run.checkpoint import hash_tensors, read_checkpoint, save_checkpoint
from nmt.run.directory import RunDirectory
from nmt.train.checkpointer import Checkpointer
from nmt.train.upkeep import prune


def settings(**changes: Any) -> dict[str, Any]:
    return {"train__max_steps": 20, "train__validate_every": 8, "train__snapshots": 8, **changes}


def snapshots(config: Config) -> dict[int, str]:
    """The hash of the weights of each snapshot, by step."""
    run = RunDirectory(config.run)
    return {step: hash_tensors(read_checkpoint(run.snapshot_file(step)).tensors) for step in run.snapshot_steps()}


def test_they_are_bf16_copies_of_the_averaged_model_at_steps_spaced_by_their_logarithm(corpus: Path) -> None:
    config = config_of(corpus, **settings())
    run_training(config)
    run = RunDirectory(config.run)
    shares = [256 ** (-i / 7) for i in range(8)]
    expected = {next(step for step in range(1, 21) if step / 20 >= share) for share in shares}
    assert set(run.snapshot_steps()) == expected == {1, 2, 5, 10, 20}
    averaged = read_checkpoint(run.checkpoint_file(20)).part("average")
    last = read_checkpoint(run.snapshot_file(20)).part("model")
    assert averaged.keys() == last.keys()
    for name, x in last.items():
        assert x.dtype == torch.bfloat16
        assert torch.equal(x, averaged[name].bfloat16())
    model = read_checkpoint(run.snapshot_file(20)).model()
    assert all(torch.equal(p, last[name].float()) for name, p in model.named_parameters())


def test_without_the_setting_there_are_none_and_training_is_the_same(corpus: Path) -> None:
    without, config = config_of(corpus, "without", **settings(train__snapshots=0)), config_of(corpus, **settings())
    run_training(without)
    run_training(config)
    assert not snapshots(without)
    weights = [read_checkpoint(RunDirectory(one.run).checkpoint_file(20)).part("model") for one in (without, config)]
    assert hash_tensors(weights[0]) == hash_tensors(weights[1])


@pytest.mark.parametrize("last_step", [3, 12])  # before and after the first checkpoint
def test_a_killed_run_has_the_same_ones(corpus: Path, monkeypatch: pytest.MonkeyPatch, last_step: int) -> None:
    whole, config = config_of(corpus, "whole", **settings()), config_of(corpus, **settings())
    run_training(whole)
    append = Checkpointer.append_metrics

    def killed(self: Checkpointer, kind: Any, figures: dict[str, Any]) -> None:
        if figures["step"] == last_step:
            raise KeyboardInterrupt
        append(self, kind, figures)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "append_metrics", killed)
        with pytest.raises(KeyboardInterrupt):
            run_training(config)
    run = RunDirectory(config.run)
    lost = run.snapshot_steps()[-1]
    run.snapshot_file(lost).write_bytes(b"of steps that will be repeated")
    run.snapshot_file(last_step).write_bytes(b"of another time, as with train.max_minutes")
    run_training(config)
    assert snapshots(config) == snapshots(whole)
    assert [line["step"] for line in run.read_metrics() if "loss" in line] == list(range(1, 21))


@pytest.mark.parametrize("limit", [{"train__max_epochs": 2}, {"train__patience": 1, "train__max_steps": 1000}], ids=str)
def test_the_last_one_is_of_the_last_step_whatever_ends_the_training(corpus: Path, limit: dict[str, Any]) -> None:
    config = config_of(corpus, **settings(**{"train__max_steps": None, "train__lr": 1e-9, **limit}))
    progress = run_training(config)
    assert max(snapshots(config)) == progress.step


def test_a_raised_budget_adds_some(corpus: Path) -> None:
    run_training(config_of(corpus, **settings()))
    config = config_of(corpus, **settings(train__max_steps=50))
    run_training(config)
    assert list(snapshots(config)) == [1, 2, 5, 10, 20, 21, 23, 50]


def test_a_full_disk_costs_one(corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def failing(path: Path, *args: Any) -> None:
        if path.name == "snapshot-5.safetensors":
            raise OutputError("cannot write", hint="check the disk")
        save_checkpoint(path, *args)

    monkeypatch.setattr("nmt.train.checkpointer.save_checkpoint", failing)
    config = config_of(corpus, **settings())
    assert run_training(config).step == 20
    assert list(snapshots(config)) == [1, 2, 10, 20]
    assert "goes on without this snapshot" in caplog.text


def test_prune_counts_them_once_the_training_is_finished(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(corpus, **settings())
    with monkeypatch.context() as patch:
        patch.setattr("nmt.train.loop.Trainer.finish", lambda *_: None)
        run_training(config)
    run = RunDirectory(config.run)
    files = [run.snapshot_file(step) for step in run.snapshot_steps()]
    assert not {*prune(run.path).files} & {*files}
    run_training(config)  # repeats the end of the training
    found = prune(run.path, dry_run=True)
    files = [run.snapshot_file(step) for step in run.snapshot_steps()]
    assert files == found.files[-len(files) :]
    assert found.n_bytes == sum(file.stat().st_size for file in found.files)
    prune(run.path)
    assert not run.snapshot_steps()
