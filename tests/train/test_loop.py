"""The loop: resuming, budgets, the best model, what is shown, steps without a gradient, signals."""

import dataclasses
import logging
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import MIX, SEVERAL, best_of, check_equal, config_of, run_training, script, steps_of

from nmt.config import Config
from nmt.errors import DivergedError, StoppedError
from nmt.run.checkpoint import read_checkpoint
from nmt.run.directory import RunDirectory
from nmt.text.batches import Batch
from nmt.train import loop, session
from nmt.train.loss import LossSum
from nmt.train.progress import ranking
from nmt.train.signals import stop_signals
from nmt.train.step import batch_loss, train_step
from nmt.train.validation import validate


def same_in(config: Config, run: Path) -> Config:
    """Return the config with another run directory."""
    return config.model_copy(update={"run": str(run)})


def stop_in_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Send SIGTERM in this step, steps counted from 1."""
    steps: list[int] = []

    def stopping(*args: Any, **kwargs: Any) -> Any:
        steps.append(len(steps) + 1)
        if steps[-1] == number:
            signal.raise_signal(signal.SIGTERM)
        return train_step(*args, **kwargs)

    monkeypatch.setattr(loop, "train_step", stopping)


def check_resumed(corpus: Path, monkeypatch: pytest.MonkeyPatch, config: Config, stop_at: int, n_replicas: int) -> None:
    """Check that a run that is stopped and resumed equals one that was never stopped."""
    whole = same_in(config, corpus / "whole")
    parts = same_in(config, corpus / "parts")
    run_training(whole, n_replicas)
    stop_in_step(monkeypatch, stop_at)
    with pytest.raises(StoppedError) as caught:
        run_training(parts, n_replicas)
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert RunDirectory(parts.run).newest_step() == stop_at
    # The same command goes on.
    assert run_training(parts, n_replicas).step == 12
    check_equal(parts, whole)
    result = steps_of(parts, "loss")
    assert result == list(range(1, 13))


SYMBOLS = {"data__placeholders": True, "data__glossary": True, "tokenizer__vocab_size": 360}
RESUMED: dict[str, dict[str, Any]] = {
    "average": {"train__average": "ema"},
    "no average": {"train__average": "none"},
    "bf16": {"train__precision": "bf16"},
    "adamw": {"train__optimizer": "adamw"},
    "sampled softmax": {"train__softmax_share": 0.2, "train__precision": "bf16"},
    "rnn": {"model__architecture": "rnn", "model__attention": "additive"},
    "no matrix for Muon": {"train__freeze": ["encoder", "decoder"], "model__tied_embeddings": "decoder"},
    "symbols": SYMBOLS,
    "several languages": SYMBOLS | SEVERAL,
}


@pytest.mark.parametrize("kind", RESUMED)
def test_resumed_equals_never_stopped_bit_for_bit(corpus: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    config = config_of(corpus, train__accumulate=2, train__schedule="constant", **RESUMED[kind])
    check_resumed(corpus, monkeypatch, config, stop_at=7, n_replicas=1)


@pytest.mark.parametrize("stop_at", [1, 5])
def test_a_run_that_is_stopped_early_is_resumed(corpus: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int) -> None:
    """At the first step, and at one with a validation."""
    check_resumed(corpus, monkeypatch, config_of(corpus), stop_at, n_replicas=1)


def test_a_fine_tuning_of_two_replicas_is_resumed(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = config_of(corpus, "base", train__max_steps=1)
    run_training(base)
    config = config_of(corpus, train__init_from=base.run, train__freeze=["encoder"], data__mix=MIX)
    check_resumed(corpus, monkeypatch, config, stop_at=7, n_replicas=2)


def test_epochs_end_with_their_last_batch(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    config = config_of(corpus, train__max_steps=None, train__max_epochs=2, train__validate_every=1)
    prepared = session.prepare(config)
    batches = [*prepared.data.batches(0), *prepared.data.batches(1)]
    progress = session.train(prepared)
    # One step, and one validation, for each batch.
    steps = list(range(1, len(batches) + 1))
    assert steps_of(config, "dev_bleu") == steps
    assert progress.step == len(batches)
    assert (progress.epoch, progress.batch) == (2, 0)
    assert progress.n_tokens == sum(batch.n_target_tokens for batch in batches)
    assert " on cpu, replicas: 1, threads of each: 1" in caplog.text
    # The same command has nothing to do.
    assert run_training(config).step == progress.step
    assert caplog.messages[-1].endswith(": ended by train.max_epochs=2: raise the value to go on")
    # With other settings, a warning names them, because they have no effect on a finished run.
    run_training(config_of(corpus, train__max_epochs=2, decode__beam=9))
    assert "changes have no effect" in caplog.messages[-1]
    assert caplog.messages[-1].endswith("decode.beam was 5, is 9")


def test_minutes_end_it(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    config = config_of(corpus, train__max_minutes=0.03, train__max_steps=9000, train__max_epochs=4000)
    progress = run_training(config)
    assert caplog.messages[-2] == "ended by train.max_minutes=0.03: raise the value to go on"
    run = RunDirectory(config.run)
    metrics = run.read_metrics()
    ends = [line["elapsed_s"] for line in metrics if line["kind"] == "step"]
    assert progress.elapsed_s >= 1.8
    # No step begins after the limit.
    assert max(ends[:-1]) < 1.8
    assert progress.step == len(ends) > 1


def test_patience_ends_it(corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Of equal BLEU scores, the one with the lower loss is better."""
    caplog.set_level(logging.INFO, "nmt")
    config = config_of(corpus, train__validate_every=2, train__patience=3)
    # Pairs of BLEU and loss.
    script(monkeypatch, (0.0, 6.0), (0.0, 5.0), (0.0, 5.5), (0.0, 5.0), (0.0, 6.0))
    progress = run_training(config)
    assert progress.step == 10
    assert progress.best_figures
    assert progress.best_figures["step"] == 4
    assert progress.n_worse == 3
    assert best_of(config) == (4, 0.0)
    assert "ended by train.patience=3: raise the value to go on" in caplog.text


def test_more_patience_lets_it_go_on(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, (0.0, 5.0), (0.0, 6.0), (0.0, 7.0))
    config = config_of(corpus, train__validate_every=2, train__patience=1)
    assert run_training(config).step == run_training(config).step == 4
    raised = config_of(corpus, train__validate_every=2, train__patience=2, train__max_steps=20)
    assert run_training(raised).step == 6


@pytest.mark.parametrize("metric", ["bleu", "loss"])
def test_the_model_file_is_the_best_by_the_metric(corpus: Path, metric: str) -> None:
    config = config_of(corpus, train__max_steps=60, train__validate_every=10, train__metric=metric, train__lr=1e-2)
    progress = run_training(config)
    best = max(progress.history, key=lambda figures: ranking(figures, metric))
    result = best_of(config)
    assert result == (best["step"], ranking(best, metric)[0])


def test_steps_are_reported(corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("nmt.train.report.LINE_EVERY_S", 0.0)
    caplog.set_level(logging.INFO, "nmt")
    run_training(config_of(corpus, train__max_steps=3))
    assert caplog.text.count(" tok/s") == 3


def test_the_time_of_a_step_is_that_of_its_end(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the first step would have taken no time."""

    def slow_step(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.05)
        return train_step(*args, **kwargs)

    monkeypatch.setattr(loop, "train_step", slow_step)
    config = config_of(corpus, train__max_steps=2)
    run_training(config)
    first, second, validation = RunDirectory(config.run).read_metrics()
    assert first["elapsed_s"] >= 0.05
    assert second["elapsed_s"] >= 0.1
    assert validation["elapsed_s"] > second["elapsed_s"]


def spoil(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[int, float], bool]) -> list[float]:
    """Make the loss of steps NaN if `is_bad(step, lr)`, steps counted from 1; return a list that collects all rates."""
    rates: list[float] = []

    def spoiled_loss(model: torch.nn.Module, batch: Batch, *args: Any) -> LossSum:
        sums = batch_loss(model, batch, *args)
        if model.training and is_bad(len(rates), rates[-1]):
            return dataclasses.replace(sums, loss=sums.loss * float("nan"))
        return sums

    def counted_step(*args: Any, **kwargs: Any) -> Any:
        rates.append(kwargs["options"].lr)
        return train_step(*args, **kwargs)

    monkeypatch.setattr("nmt.train.step.batch_loss", spoiled_loss)
    monkeypatch.setattr(loop, "train_step", counted_step)
    return rates


def test_a_step_without_a_gradient_is_skipped_and_a_validation_due_at_it_follows_the_next_step(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(corpus, train__keep=4)
    spoil(monkeypatch, lambda step, _: step in (5, 6))
    run_training(config)
    fault = "skipped: the loss is nan, the gradient is not finite (lines "
    assert f"step 5 {fault}" in caplog.text
    assert f"step 6 {fault}" in caplog.text
    assert caplog.text.count("skipped") == 2
    # A validation, and with it a checkpoint, was due at step 5.
    run = RunDirectory(config.run)
    assert run.checkpoint_steps() == [7, 10, 12]
    result = steps_of(config, "loss")
    assert result == [1, 2, 3, 4, *range(7, 13)]
    assert steps_of(config, "dev_bleu") == [7, 10, 12]
    for tensor in read_checkpoint(run.model_file).tensors.values():
        assert tensor.isfinite().all()


@pytest.mark.parametrize("stop_at", [5, 6])
def test_a_run_that_is_stopped_at_a_skipped_step_does_the_same(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    whole, parts = config_of(corpus, "whole"), config_of(corpus, "parts")
    spoil(monkeypatch, lambda step, _: step in (5, 6))
    run_training(whole)

    def stopping(step: int, _: float) -> bool:
        if step == stop_at:
            signal.raise_signal(signal.SIGTERM)
        return step in (5, 6)

    rates = spoil(monkeypatch, stopping)
    with pytest.raises(StoppedError, match=f"stopped at step {stop_at}"):
        run_training(parts)
    run_training(parts)
    # No step was done twice.
    assert len(rates) == 12
    check_equal(parts, whole)


@pytest.mark.parametrize(("first_bad", "saved"), [(7, 5), (1, None)])
def test_steps_running_without_a_gradient_end_training_and_keep_the_checkpoint(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, first_bad: int, saved: int | None
) -> None:
    config = config_of(corpus)
    rates = spoil(monkeypatch, lambda step, _: step >= first_bad)
    with pytest.raises(DivergedError, match="the gradient was not finite in 5 steps in a row"):
        run_training(config)
    assert len(rates) == first_bad + 4
    assert RunDirectory(config.run).newest_step() == saved


def test_a_diverged_training_goes_on_with_a_lower_rate(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, Any] = {"train__schedule": "constant", "train__warmup": 1, "train__max_steps": 20}
    spoil(monkeypatch, lambda step, lr: step > 7 and lr > 1e-3)
    with pytest.raises(DivergedError):
        run_training(config_of(corpus, **limits))
    lower = config_of(corpus, **limits, train__lr=1e-3)
    assert run_training(lower).step == 20
    result = steps_of(lower, "loss")
    assert result == list(range(1, 21))


def test_a_resumed_run_repeats_the_validation_that_was_stopped(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A validation may take minutes, but a machine that is about to be switched off leaves only seconds."""
    whole, parts = config_of(corpus, "whole"), config_of(corpus, "parts")
    run_training(whole)
    validations: list[str] = []  # what happens in the next ones

    def breaking_off(*args: Any, **kwargs: Any) -> Any:
        if validations.pop(0) == "stop":
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("it went on")
        return validate(*args, **kwargs)

    def stop_at(step: int, *kinds: str) -> None:
        validations[:] = kinds
        with pytest.raises(StoppedError, match=f"stopped at step {step}, all saved"):
            run_training(parts)

    monkeypatch.setattr(loop, "validate", breaking_off)
    # At the first one, twice; at the second and at the last, after the one before was repeated.
    stop_at(5, "stop")
    stop_at(5, "stop")
    stop_at(10, "pass", "stop")
    stop_at(12, "pass", "stop")
    validations[:] = ["pass"]
    run_training(parts)
    check_equal(parts, whole)
    result = steps_of(parts, "dev_bleu")
    assert result == steps_of(whole, "dev_bleu")


@pytest.mark.parametrize(("name", "step"), [("batches", 0), ("train_step", 1)])  # before the first step, and in it
def test_a_stop_leaves_the_rest_for_later(corpus: Path, monkeypatch: pytest.MonkeyPatch, name: str, step: int) -> None:
    prepared = session.prepare(config_of(corpus, train__max_steps=1))
    target: Any = loop if step else prepared.data
    real = getattr(target, name)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(target, name, interrupted)
        with pytest.raises(StoppedError) as caught:
            session.train(prepared)
    assert caught.value.exit_code == 130
    # Without a validation, there is no model file yet.
    assert prepared.run.newest_step() == step
    assert not prepared.run.model_file.exists()
    assert run_training(prepared.config).step == 1
    assert prepared.run.model_file.exists()


def test_signals_are_left_alone_outside_the_main_thread() -> None:
    def run() -> int:
        with stop_signals() as request:
            return request.number

    with ThreadPoolExecutor() as pool:
        assert pool.submit(run).result() == 0
