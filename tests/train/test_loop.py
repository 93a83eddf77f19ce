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
from small_run import MIX, SEVERAL, best_of, check_equal, config_of, run_training, script, steps_of, trainer_of

from nmt.config import TrainSettings
from nmt.errors import DivergedError, StoppedError
from nmt.run.checkpoint import read_checkpoint
from nmt.run.directory import RunDirectory
from nmt.text.batches import Batch
from nmt.train import loop, session
from nmt.train.loop import Trainer
from nmt.train.loss import LossSum
from nmt.train.progress import ranking
from nmt.train.signals import stop_signals
from nmt.train.step import batch_loss, train_step
from nmt.train.validation import validate


@pytest.mark.parametrize(
    ("stop_at", "n_replicas", "choices"),
    [
        (1, 1, {"average": "ema"}),
        (5, 1, {"average": "none"}),
        (7, 2, {"precision": "bf16"}),
        (7, 1, {"optimizer": "adamw", "decoder_input": "scheduled_sampling", "sampling_rate": 0.9}),
        (7, 1, {"average": "ema", "model__architecture": "rnn", "model__attention": "additive"}),
        (7, 1, {"freeze": ["encoder", "decoder"], "model__tied_embeddings": "decoder"}),  # no matrix for Muon
        (7, 2, {"init_from": "base", "freeze": ["encoder"], "data__mix": MIX}),
        (7, 1, {"data__placeholders": True, "data__glossary": True, "tokenizer__vocab_size": 360}),
        (7, 1, {**SEVERAL, "data__placeholders": True, "tokenizer__vocab_size": 360}),
    ],
)
def test_resumed_equals_never_stopped_bit_for_bit(
    corpus: Path,
    stop_at: int,
    n_replicas: int,
    choices: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if "init_from" in choices:
        base = config_of(corpus, "base", train__max_steps=1)
        run_training(base)
        choices = {**choices, "init_from": base.run}
    named = {key if "__" in key else f"train__{key}": value for key, value in choices.items()}
    whole = config_of(corpus, "whole", **{"train__accumulate": 2, "train__schedule": "constant", **named})
    run_training(whole, n_replicas)
    parts = whole.model_copy(update={"run": str(corpus / "parts")})

    def stopping(*args: Any, **kwargs: Any) -> Any:
        steps.append(len(steps) + 1)
        if steps[-1] == stop_at:
            signal.raise_signal(signal.SIGTERM)
        return train_step(*args, **kwargs)

    steps: list[int] = []
    monkeypatch.setattr("nmt.train.loop.train_step", stopping)
    with pytest.raises(StoppedError) as caught:
        run_training(parts, n_replicas)
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert RunDirectory(parts.run).newest_step() == stop_at
    assert run_training(parts, n_replicas).step == 12
    assert "optimizer it was begun with" not in caplog.text
    check_equal(parts, whole)
    for one in (whole, parts):
        assert steps_of(one, "loss") == list(range(1, 13))


def test_epochs_end_with_their_last_batch(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    config = config_of(corpus, train__max_steps=None, train__max_epochs=2, train__validate_every=1)
    prepared = session.prepare(config)
    n_batches = [sum(1 for _ in prepared.data.batches(epoch)) for epoch in range(2)]
    progress = session.train(prepared, quiet=True)
    assert steps_of(config, "dev_bleu") == list(range(1, sum(n_batches) + 1))
    assert (progress.epoch, progress.batch, progress.step) == (2, 0, sum(n_batches))
    n_lines = sum(line.get("n_tokens", 0) for line in RunDirectory(config.run).read_metrics())
    assert n_lines == progress.n_tokens
    assert run_training(config).step == progress.step
    assert caplog.messages[-1].endswith(", ended by train.max_epochs=2: raise train.max_epochs to go on")


def test_minutes_end_it(corpus: Path) -> None:
    config = config_of(corpus, train__max_steps=None, train__max_minutes=0.03)
    progress = run_training(config)
    steps = [line for line in RunDirectory(config.run).read_metrics() if line["kind"] == "step"]
    assert progress.elapsed_s >= 1.8
    assert all(line["elapsed_s"] < 1.8 for line in steps[:-1]), "a step began after the limit"
    assert progress.step == len(steps) > 1
    assert RunDirectory(config.run).read_manifest()["reproducible"] is False


def test_patience_ends_it(corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Of equal BLEU scores, the one with the lower loss is better."""
    caplog.set_level(logging.INFO, "nmt")
    config = config_of(corpus, train__validate_every=2, train__patience=3)
    script(monkeypatch, (0.0, 6.0), (0.0, 5.0), (0.0, 5.5), (0.0, 5.0), (0.0, 6.0))
    progress = run_training(config)
    assert (progress.step, progress.best_step, progress.n_worse) == (10, 4, 3)
    assert best_of(config) == (4, 0.0)
    assert "ended by train.patience=3 (train.max_steps: 10 of 12): raise train.patience to go on" in caplog.text
    caplog.clear()
    assert run_training(config).step == 10
    assert caplog.messages[-1].startswith(f"{config.run} is finished: 10 steps in ")
    assert "ended by train.patience=3" in caplog.messages[-1]
    script(monkeypatch, (0.0, 7.0))
    raised = config_of(corpus, train__validate_every=2, train__patience=4, train__max_steps=20)
    assert run_training(raised).step == 12


def test_the_last_lines_name_the_limit_and_how_far_training_came(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nmt")
    script(monkeypatch, (1.0, 2.0))
    config = config_of(corpus, train__max_minutes=1e-9, train__max_steps=9000, train__max_epochs=40)
    run_training(config)
    limit, done = caplog.messages[-2:]
    others = "train.max_steps: 0 of 9,000, train.max_epochs: 0.0 of 40"
    assert limit == f"ended by train.max_minutes=1e-09 ({others}): raise train.max_minutes to go on"
    assert done.startswith("done: ")
    run_training(config)
    assert caplog.messages[-1].endswith(f", {limit}")


@pytest.mark.parametrize("metric", ["bleu", "loss"])
def test_the_model_file_is_the_best_by_the_metric(corpus: Path, metric: str) -> None:
    config = config_of(corpus, train__max_steps=60, train__validate_every=10, train__metric=metric, train__lr=1e-2)
    progress = run_training(config)
    figures = [ranking(line, metric) for line in progress.history]
    assert progress.best == max(figures)[0]
    kept = read_checkpoint(RunDirectory(config.run).model_file)
    assert kept.progress["best_step"] == progress.best_step == progress.history[figures.index(max(figures))]["step"]


def test_quiet_hides_the_steps(corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("nmt.train.report.LINE_EVERY_S", 0.0)
    caplog.set_level(logging.INFO, "nmt")
    for n_shown, options in ((3, {}), (0, {"quiet": True})):
        trainer = Trainer(session.prepare(config_of(corpus, f"run{n_shown}", train__max_steps=3)), **options)
        trainer.checkpointer.run.create()
        trainer.train()
        assert caplog.text.count(" tok/s") == n_shown
        caplog.clear()


@pytest.mark.parametrize("quiet", [False, True])
def test_tokenized_dev_references_are_warned_of_once(
    corpus: Path, caplog: pytest.LogCaptureFixture, quiet: bool
) -> None:
    """Not at each validation, and not by sacreBLEU."""
    for side, word in (("zh", "今天"), ("en", "today")):
        (corpus / f"tokenized.{side}").write_text("".join(f"{n} {word} .\n" for n in range(110)))
    dev = {"source": "tokenized.zh", "target": "tokenized.en"}
    config = config_of(corpus, data__dev=dev, train__max_steps=3, train__validate_every=1)
    trainer = Trainer(session.prepare(config), quiet=quiet)
    trainer.checkpointer.run.create()
    caplog.clear()
    trainer.train()
    warnings = [message for message in caplog.messages if "tokenize" in message]
    assert len(warnings) == (not quiet)
    assert all(message.startswith("110 of 110 dev references end in ' .'") for message in warnings)


def test_the_time_of_a_step_is_that_of_its_end(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the first step would have taken no time."""

    def slow_step(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.05)
        return train_step(*args, **kwargs)

    monkeypatch.setattr(loop, "train_step", slow_step)
    config = config_of(corpus, train__max_steps=3)
    run_training(config)
    elapsed_s = [line["elapsed_s"] for line in RunDirectory(config.run).read_metrics() if "grad_norm" in line]
    assert all(seconds >= 0.05 * n for n, seconds in enumerate(elapsed_s, 1))


def test_another_number_of_replicas_than_before_is_told(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    for steps, n_replicas in ((2, 2), (3, 2), (4, 1)):
        assert "so dropout is drawn anew" not in caplog.text
        run_training(config_of(corpus, train__max_steps=steps), n_replicas)
    assert "replicas: 1 instead of 2, so dropout is drawn anew" in caplog.messages


def spoil(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[int, float], bool]) -> list[tuple[int, float]]:
    """Make the loss of steps NaN if `is_bad(call, lr)`, calls counted from 1; return a list that collects all calls."""
    calls: list[tuple[int, float]] = []

    def loss_of(model: torch.nn.Module, batch: Batch, settings: TrainSettings) -> LossSum:
        sums = batch_loss(model, batch, settings)
        bad = model.training and is_bad(*calls[-1])
        return dataclasses.replace(sums, loss=sums.loss * float("nan")) if bad else sums

    def noted(*args: Any, **kwargs: Any) -> Any:
        calls.append((len(calls) + 1, kwargs["options"].lr))
        return train_step(*args, **kwargs)

    monkeypatch.setattr("nmt.train.step.batch_loss", loss_of)
    monkeypatch.setattr("nmt.train.loop.train_step", noted)
    return calls


@pytest.mark.parametrize("stop_at", [5, 6])
def test_a_step_without_a_gradient_is_skipped_and_a_validation_due_at_it_follows_the_next_step(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stop_at: int
) -> None:
    """Skipped steps change no weights, so nothing is lost. A run that is stopped at a skipped step does the same."""
    whole = config_of(corpus, "whole", train__keep=4)
    parts = whole.model_copy(update={"run": str(corpus / "parts")})
    spoil(monkeypatch, lambda call, _: call in (5, 6))
    run_training(whole)
    told = [text for text in caplog.messages if "skipped" in text]
    fault = "skipped: the loss is nan, the gradient is not finite (lines "
    assert [text.partition(fault)[0] for text in told] == ["step 5 ", "step 6 "]
    assert RunDirectory(whole.run).checkpoint_steps() == [7, 10, 12]
    assert all(x.isfinite().all() for x in read_checkpoint(RunDirectory(whole.run).model_file).tensors.values())

    def stopping(call: int, _: float) -> bool:
        if call == stop_at:
            signal.raise_signal(signal.SIGTERM)
        return call in (5, 6)

    calls = spoil(monkeypatch, stopping)
    with pytest.raises(StoppedError, match=f"stopped at step {stop_at}"):
        run_training(parts)
    run_training(parts)
    assert len(calls) == 12
    for one in (whole, parts):
        assert steps_of(one, "loss") == [1, 2, 3, 4, *range(7, 13)]
        assert steps_of(one, "dev_bleu") == [7, 10, 12]
    check_equal(parts, whole)


def test_steps_running_without_a_gradient_go_back_to_the_checkpoint_with_half_the_rate(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(corpus, train__schedule="constant", train__warmup=1, train__cooldown=0.0)
    calls = spoil(monkeypatch, lambda call, lr: call > 7 and lr > 1e-3)  # 3e-3 is too high, and so is half of it
    assert run_training(config).step == 12
    assert [call[1] for call in calls] == [3e-3] * 12 + [1.5e-3] * 5 + [0.75e-3] * 7
    assert "back to step 5 with 0.25 of the rate" in caplog.text
    assert steps_of(config, "loss") == list(range(1, 13))


@pytest.mark.parametrize(("from_call", "n_calls"), [(1, 5), (7, 6 + 4 * 5)])
def test_if_no_rate_helps_it_ends(corpus: Path, monkeypatch: pytest.MonkeyPatch, from_call: int, n_calls: int) -> None:
    config = config_of(corpus)
    calls = spoil(monkeypatch, lambda call, _: call >= from_call)
    with pytest.raises(DivergedError, match="the gradient was not finite in 5 steps in a row"):
        run_training(config)
    assert len(calls) == n_calls
    assert RunDirectory(config.run).newest_step() == (None if from_call == 1 else 5)


@pytest.mark.parametrize(("rank", "order"), [(0, ["read", "wait"]), (1, ["wait", "read"])])
def test_in_a_rollback_the_first_rank_reads_the_checkpoint_before_the_others(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, rank: int, order: list[str]
) -> None:
    trainer, calls = trainer_of(config_of(corpus)), list[str]()
    trainer.checkpointer.run.create()
    trainer.checkpointer.write_checkpoint()
    monkeypatch.setattr(loop, "rank", lambda: rank)
    monkeypatch.setattr(loop, "barrier", lambda: calls.append("wait"))
    monkeypatch.setattr(trainer.checkpointer, "resume", lambda: calls.append("read"))
    trainer.roll_back(DivergedError("the loss is nan"))
    assert calls == order


def test_a_resumed_run_repeats_the_validation_that_was_stopped(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A validation may take minutes, but a machine that is about to be switched off leaves only seconds."""
    whole = config_of(corpus, "whole")
    run_training(whole)
    parts = whole.model_copy(update={"run": str(corpus / "parts")})
    left: list[str] = []

    def breaking_off(*args: Any, **kwargs: Any) -> Any:
        if left.pop() == "stop":
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("it went on")
        return validate(*args, **kwargs)

    monkeypatch.setattr("nmt.train.loop.validate", breaking_off)
    for n_passed, stopped_at in ((0, 5), (0, 5), (1, 10), (1, 12)):
        left[:] = ["stop", *["pass"] * n_passed]
        with pytest.raises(StoppedError, match=f"stopped at step {stopped_at}, all saved"):
            run_training(parts)
    left[:] = ["pass"]
    run_training(parts)
    check_equal(parts, whole)
    assert steps_of(parts, "dev_bleu") == steps_of(whole, "dev_bleu")


@pytest.mark.parametrize("place", ["before the first step", "in the last step"])
def test_a_stop_at_an_end_leaves_the_rest_for_later(corpus: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    config = config_of(corpus, train__max_steps=1)
    prepared = session.prepare(config)
    target, name = (prepared.data, "batches") if place == "before the first step" else (loop, "train_step")
    real = getattr(target, name)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(target, name, interrupted)
        with pytest.raises(StoppedError) as caught:
            session.train(prepared, quiet=True)
    assert caught.value.exit_code == 130
    assert RunDirectory(config.run).newest_step() == (0 if place == "before the first step" else 1)
    assert not RunDirectory(config.run).model_file.exists()
    assert run_training(config).step == 1
    assert RunDirectory(config.run).model_file.exists()


def test_signals_are_left_alone_outside_the_main_thread() -> None:
    with ThreadPoolExecutor() as pool:
        context = pool.submit(stop_signals).result()
        assert pool.submit(context.__enter__).result().number == 0
        pool.submit(context.__exit__, None, None, None).result()
