"""Checkpoints of a training: what a changed or a killed run goes on from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_run import best_of, check_equal, config_of, run_training, script, trainer_of

from nmt.errors import ConfigError, ModelError
from nmt.run.checkpoint import Checkpoint, read_checkpoint, save_checkpoint
from nmt.run.directory import RunDirectory

AT_THE_END = pytest.param({"train__max_steps": 2}, 2, id="at the end")
AT_A_VALIDATION = pytest.param({"train__average": "none"}, 5, id="at a validation")


@pytest.mark.parametrize(("settings", "step"), [AT_THE_END, AT_A_VALIDATION])
def test_a_kill_between_the_first_checkpoint_and_the_model_file_loses_nothing(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], step: int
) -> None:
    whole, config = config_of(corpus, "whole", **settings), config_of(corpus, **settings)
    run_training(whole)
    run = RunDirectory(config.run)

    def killed(path: Path, checkpoint: Checkpoint) -> None:
        if path == run.model_file:
            raise KeyboardInterrupt
        save_checkpoint(path, checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr("nmt.train.checkpointer.save_checkpoint", killed)
        with pytest.raises(KeyboardInterrupt):
            run_training(config)
    # Of the first save, only the checkpoint was written.
    assert not run.model_file.exists()
    assert run.newest_step() == step
    run_training(config)
    check_equal(config, whole)


@pytest.mark.parametrize("max_steps", [12, 14])
def test_a_model_file_that_was_deleted_is_written_again(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, max_steps: int
) -> None:
    script(monkeypatch, (9.0, 1.0), (8.0, 2.0), (7.0, 3.0))
    config = config_of(corpus)
    run_training(config)
    model_file = RunDirectory(config.run).model_file
    model_file.unlink()
    # All later models are worse than those that are lost.
    script(monkeypatch, (6.0, 4.0), (5.0, 5.0))
    more = config_of(corpus, train__max_steps=max_steps)
    assert run_training(more).step == max_steps
    assert best_of(config) == (max_steps, 6.0)
    assert f"{model_file} lacks the best model" in caplog.text
    # No validation is in the history twice.
    history = trainer_of(more).progress.history
    steps = [figures["step"] for figures in history]
    result = len(set(steps))
    assert result == len(steps)


@pytest.mark.parametrize(("batch_tokens", "accumulate"), [(450, 1), (300, 2)])
def test_with_batches_of_another_size_the_epoch_begins_again(
    corpus: Path, caplog: pytest.LogCaptureFixture, batch_tokens: int, accumulate: int
) -> None:
    before = trainer_of(config_of(corpus))
    before.progress.step = 8
    before.progress.epoch = 1
    before.progress.batch = 3
    before.checkpointer.run.create()
    before.checkpointer.run.write_config(before.config)
    before.checkpointer.write_checkpoint()
    trainer = trainer_of(config_of(corpus, train__batch_tokens=batch_tokens, train__accumulate=accumulate))
    trainer.checkpointer.resume()
    assert (trainer.progress.epoch, trainer.progress.batch) == (1, 0)
    assert "train.batch_tokens or train.accumulate has changed: epoch 2 begins again" in caplog.text


def damage(corpus: Path, **progress: Any) -> None:
    """Train, then write the checkpoint without moments, and with other values of its progress."""
    config = config_of(corpus, train__max_steps=2)
    run_training(config)
    file = RunDirectory(config.run).checkpoint_file(2)
    checkpoint = read_checkpoint(file, prefixes=("model", "average"))
    save_checkpoint(file, replace(checkpoint, progress=checkpoint.progress | progress))


NO_PROGRESS = r"step-2\.safetensors does not say where training stands"
INCOMPLETE = [  # damaged progress, error; a damaged checkpoint has no moments
    ({"epoch": -1}, NO_PROGRESS),
    ({"history": [{"step": 1}]}, NO_PROGRESS),
    ({}, r"step-2\.safetensors lacks .+\.step"),
]


@pytest.mark.parametrize(("progress", "message"), INCOMPLETE)
def test_an_incomplete_checkpoint_is_refused(corpus: Path, progress: dict[str, Any], message: str) -> None:
    damage(corpus, **progress)
    with pytest.raises(ModelError, match=message) as caught:
        run_training(config_of(corpus))
    assert caught.value.hint


def test_a_return_to_a_checkpoint_of_step_0_clears_the_moments(corpus: Path) -> None:
    trainer = trainer_of(config_of(corpus, train__max_steps=2))
    trainer.checkpointer.run.create()
    trainer.checkpointer.write_checkpoint()
    trainer.train()
    assert all(optimizer.state for optimizer in trainer.state.optimizers)
    run = trainer.checkpointer.run
    for step in run.checkpoint_steps()[1:]:
        run.checkpoint_file(step).unlink()
    trainer.checkpointer.resume()
    assert trainer.progress.step == 0
    assert not any(optimizer.state for optimizer in trainer.state.optimizers)


@pytest.mark.parametrize(("before", "after"), [("adamw", "muon"), ("muon", "adamw")])
def test_a_run_keeps_its_optimizer(corpus: Path, before: str, after: str) -> None:
    run_training(config_of(corpus, train__optimizer=before, train__max_steps=2))
    with pytest.raises(ConfigError, match=f"train.optimizer was {before}, is {after}"):
        run_training(config_of(corpus, train__optimizer=after, train__max_steps=4))
