"""Snapshots: their steps, their weights, and that a killed run writes the same ones."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import config_of, run_training, steps_of

from nmt.config import Config
from nmt.errors import OutputError
from nmt.run.checkpoint import hash_tensors, read_checkpoint, save_checkpoint
from nmt.run.directory import RunDirectory
from nmt.train.checkpointer import Checkpointer
from nmt.train.upkeep import prune

SETTINGS: dict[str, Any] = {"train__max_steps": 20, "train__validate_every": 8, "train__snapshots": 8}
STEPS = [1, 2, 5, 10, 20]  # the first after 1/256 of the budget, the others spaced by their logarithm


def hashes(config: Config) -> dict[int, str]:
    """Return the hash of the weights of each snapshot, by step."""
    run = RunDirectory(config.run)
    found = {}
    for step in run.snapshot_steps():
        found[step] = hash_tensors(read_checkpoint(run.snapshot_file(step)).tensors)
    return found


def test_they_are_bf16_copies_of_the_averaged_model(corpus: Path) -> None:
    config = config_of(corpus, **SETTINGS)
    run_training(config)
    run = RunDirectory(config.run)
    assert run.snapshot_steps() == STEPS
    averaged = read_checkpoint(run.checkpoint_file(20)).part("average")
    snapshot = read_checkpoint(run.snapshot_file(20))
    for name, x in snapshot.part("model").items():
        assert x.dtype == torch.bfloat16
        assert torch.equal(x, averaged.pop(name).bfloat16())
    assert not averaged
    # A model of one is in fp32.
    for name, p in snapshot.model().named_parameters():
        assert torch.equal(p, snapshot.part("model")[name].float())


def test_without_the_setting_there_are_none_and_training_is_the_same(corpus: Path) -> None:
    weights = []
    for n_snapshots in (0, 8):
        config = config_of(corpus, f"run{n_snapshots}", **{**SETTINGS, "train__snapshots": n_snapshots})
        run_training(config)
        assert bool(hashes(config)) == bool(n_snapshots)
        checkpoint = read_checkpoint(RunDirectory(config.run).checkpoint_file(20))
        weights.append(hash_tensors(checkpoint.part("model")))
    assert weights[0] == weights[1]


@pytest.mark.parametrize("last_step", [3, 12])  # before and after the first checkpoint
def test_a_killed_run_has_the_same_ones(corpus: Path, monkeypatch: pytest.MonkeyPatch, last_step: int) -> None:
    whole, config = config_of(corpus, "whole", **SETTINGS), config_of(corpus, **SETTINGS)
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
    # Those of steps that will be repeated are written again; train.max_minutes may have left others.
    run = RunDirectory(config.run)
    newest = run.snapshot_steps()[-1]
    run.snapshot_file(newest).write_bytes(b"of steps that will be repeated")
    run.snapshot_file(last_step).write_bytes(b"of another time")
    run_training(config)
    assert hashes(config) == hashes(whole)
    result = steps_of(config, "loss")
    assert result == list(range(1, 21))


@pytest.mark.parametrize("limit", [{"train__max_epochs": 2}, {"train__patience": 1, "train__max_steps": 1000}], ids=str)
def test_the_last_one_is_of_the_last_step_whatever_ends_the_training(corpus: Path, limit: dict[str, Any]) -> None:
    without_steps = {**SETTINGS, "train__max_steps": None, "train__lr": 1e-9}
    config = config_of(corpus, **{**without_steps, **limit})
    progress = run_training(config)
    assert max(hashes(config)) == progress.step


def test_a_raised_budget_adds_some(corpus: Path) -> None:
    run_training(config_of(corpus, **SETTINGS))
    config = config_of(corpus, **{**SETTINGS, "train__max_steps": 50})
    run_training(config)
    result = list(hashes(config))
    assert result == [*STEPS, 21, 23, 50]


def test_a_full_disk_costs_one(corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def failing(path: Path, *args: Any) -> None:
        if path.name == "snapshot-5.safetensors":
            raise OutputError("cannot write", hint="check the disk")
        save_checkpoint(path, *args)

    monkeypatch.setattr("nmt.train.checkpointer.save_checkpoint", failing)
    config = config_of(corpus, **SETTINGS)
    assert run_training(config).step == 20
    result = list(hashes(config))
    assert result == [1, 2, 10, 20]
    assert "goes on without this snapshot" in caplog.text


def test_those_of_an_unfinished_training_are_not_pruned(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.train.loop.Trainer.finish", lambda *_: None)
    config = config_of(corpus, **SETTINGS)
    run_training(config)
    prune(Path(config.run))
    assert RunDirectory(config.run).snapshot_steps() == STEPS


def test_those_of_a_finished_training_are_pruned(corpus: Path) -> None:
    config = config_of(corpus, **SETTINGS)
    run_training(config)
    run = RunDirectory(config.run)
    pruned = prune(run.path)
    assert pruned.files[-5:] == [run.snapshot_file(step) for step in STEPS]
    assert not run.snapshot_steps()
