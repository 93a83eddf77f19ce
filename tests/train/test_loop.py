"""Training as a whole: resuming, budgets, the best model, divergence, changed settings."""

import dataclasses
import logging
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import MIX, SEVERAL, config_of, final_hash, run_training, trainer_of

from nmt.config import Config, TrainSettings
from nmt.decode.confidence import Calibration
from nmt.errors import ConfigError, DataError, DivergedError, ModelError, StoppedError
from nmt.evaluate import Score
from nmt.run.checkpoint import Checkpoint, hash_tensors, read_checkpoint, save_checkpoint
from nmt.run.directory import RunDirectory
from nmt.text.batches import Batch
from nmt.train import loop, session
from nmt.train.loop import Session
from nmt.train.loss import LossSum
from nmt.train.progress import ranking
from nmt.train.signals import stop_signals
from nmt.train.step import batch_loss, train_step
from nmt.train.validation import Validation, validate


@pytest.mark.parametrize(
    ("stop_at", "n_workers", "choices"),
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
    n_workers: int,
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
    run_training(whole, n_workers)
    parts = whole.model_copy(update={"run": str(corpus / "parts")})

    def stopping(*args: Any, **kwargs: Any) -> Any:
        steps.append(len(steps) + 1)
        if steps[-1] == stop_at:
            signal.raise_signal(signal.SIGTERM)
        return train_step(*args, **kwargs)

    steps: list[int] = []
    monkeypatch.setattr("nmt.train.loop.train_step", stopping)
    with pytest.raises(StoppedError) as caught:
        run_training(parts, n_workers)
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert RunDirectory(parts.run).newest_step() == stop_at
    assert run_training(parts, n_workers).step == 12
    assert "optimizer it was begun with" not in caplog.text
    assert_equal(parts, whole)
    for one in (whole, parts):
        assert steps_of(one, "loss") == list(range(1, 13))


def assert_equal(one: Config, other: Config) -> None:
    assert final_hash(one) == final_hash(other)
    models = [read_checkpoint(RunDirectory(config.run).model_file).tensors for config in (one, other)]
    assert hash_tensors(models[0]) == hash_tensors(models[1])


def steps_of(config: Config, figure: str) -> list[int]:
    return [line["step"] for line in RunDirectory(config.run).read_metrics() if figure in line]


def test_epochs_end_with_their_last_batch(corpus: Path) -> None:
    config = config_of(corpus, train__max_steps=None, train__max_epochs=2, train__validate_every=1)
    prepared = session.prepare(config)
    n_batches = [sum(1 for _ in prepared.data.batches(epoch)) for epoch in range(2)]
    progress = session.train(prepared, quiet=True)
    assert steps_of(config, "dev_bleu") == list(range(1, sum(n_batches) + 1))
    assert (progress.epoch, progress.batch, progress.step) == (2, 0, sum(n_batches))
    n_lines = sum(line.get("n_tokens", 0) for line in RunDirectory(config.run).read_metrics())
    assert n_lines == progress.n_tokens
    again = session.prepare(config)
    assert session.train(again, quiet=True).step == progress.step


def test_minutes_end_it(corpus: Path) -> None:
    config = config_of(corpus, train__max_steps=None, train__max_minutes=0.03)
    progress = run_training(config)
    steps = [line for line in RunDirectory(config.run).read_metrics() if line["kind"] == "step"]
    assert progress.elapsed_s >= 1.8
    assert all(line["elapsed_s"] < 1.8 for line in steps), "a step began after the limit"
    assert progress.step == len(steps) > 1
    assert RunDirectory(config.run).read_manifest()["reproducible"] is False


def test_patience_ends_it(corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    config = config_of(corpus, train__validate_every=2, train__patience=3)
    script(monkeypatch, (2.0, 5.0), (1.0, 4.0), (2.0, 6.0), (1.0, 1.0))
    progress = run_training(config)
    assert (progress.step, progress.best_step, progress.n_worse) == (8, 2, 3)
    assert "ended by train.patience=3 (train.max_steps: 8 of 12): raise train.patience to go on" in caplog.text
    caplog.clear()
    assert run_training(config).step == 8
    assert caplog.messages[-1].startswith(f"{config.run} is finished: 8 steps in ")
    assert "ended by train.patience=3" in caplog.messages[-1]
    script(monkeypatch, (1.0, 5.0))
    raised = config_of(corpus, train__validate_every=2, train__patience=4)
    assert run_training(raised).step == 10


@pytest.mark.parametrize("metric", ["bleu", "loss"])
def test_the_model_file_is_the_best_by_the_metric(corpus: Path, metric: str) -> None:
    config = config_of(corpus, train__max_steps=60, train__validate_every=10, train__metric=metric, train__lr=1e-2)
    progress = run_training(config)
    figures = [ranking(line, metric) for line in progress.history]
    assert progress.best == max(figures)[0]
    kept = read_checkpoint(RunDirectory(config.run).model_file)
    assert kept.progress["best_step"] == progress.best_step == progress.history[figures.index(max(figures))]["step"]


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
    assert [text.partition(" (lines ")[0] for text in told] == [
        f"step {step} skipped: the loss is nan, the gradient is not finite" for step in (5, 6)
    ]
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
    assert final_hash(parts) == final_hash(whole)


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


def test_a_validation_that_a_signal_breaks_off_is_the_first_thing_that_a_resumed_run_does(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert final_hash(parts) == final_hash(whole)
    assert steps_of(parts, "dev_bleu") == steps_of(whole, "dev_bleu")


def test_another_architecture_is_refused_another_schedule_told(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    config = config_of(corpus)
    run_training(config)
    session.prepare(config_of(corpus, decode={"beam": 2}))
    assert "goes on otherwise" not in caplog.text
    session.prepare(config_of(corpus, train__lr=1e-3, train__batch_tokens=200))
    changes = "train.batch_tokens was 300, is 200; train.lr was 0.003, is 0.001"
    assert f"{config.run} goes on otherwise than it was begun: {changes}" in caplog.text
    with pytest.raises(ConfigError, match=r"other settings: .*model.d_ff was 32, is 40") as caught:
        session.prepare(config_of(corpus, model__d_ff=40, seed=2))
    assert "seed was 1, is 2" in str(caught.value)
    with pytest.raises(ConfigError, match=r"other settings: train.metric was bleu, is loss"):
        session.prepare(config_of(corpus, train__metric="loss"))
    with pytest.raises(ConfigError, match=r"train\.freeze was -, is encoder"):
        session.prepare(config_of(corpus, train__freeze="encoder"))


@pytest.mark.parametrize(
    ("parts", "tied", "trained", "average"),
    [
        ("encoder", "all", {"source_embedding", "decoder", "decoder_norm"}, "none"),
        (["decoder", "output"], "none", {"source_embedding", "target_embedding", "encoder", "encoder_norm"}, "ema"),
    ],
)
def test_frozen_parts_stay_as_they_are_and_have_no_moments(
    corpus: Path, parts: str | list[str], tied: str, trained: set[str], average: str
) -> None:
    base = config_of(corpus, "base", model__tied_embeddings=tied, train__max_steps=1)
    run_training(base)
    tuned = config_of(corpus, "tuned", train__init_from=base.run, train__freeze=parts, train__average=average)
    session.train(session.prepare(tuned.model_copy(update={"model": base.model})), quiet=True, n_workers=2)
    before = read_checkpoint(RunDirectory(base.run).model_file).part("model")
    run = RunDirectory(tuned.run)
    last = read_checkpoint(run.checkpoint_file(12))
    files = [last.part("model"), read_checkpoint(run.model_file).part("model")]
    files += [last.part("average")] if average == "ema" else []
    for weights in files:
        changed = {name for name, x in weights.items() if not torch.equal(x, before[name])}
        assert {name.partition(".")[0] for name in changed} <= trained
        if weights is files[0]:
            assert {name.partition(".")[0] for name in changed} == trained
    assert {name.partition(".")[0] for name in last.part("optimizer")} == trained


def test_nothing_to_train_is_refused(corpus: Path) -> None:
    every = ["embeddings", "encoder", "decoder"]
    with pytest.raises(ConfigError, match=r"^train\.freeze leaves nothing to train$"):
        session.prepare(config_of(corpus, train__freeze=every))
    model = session.prepare(config_of(corpus, train__freeze=every, model__tied_embeddings="none")).model
    assert model.n_trainable == model.projection.weight.numel()


def test_a_mixture_that_has_changed_is_refused(corpus: Path) -> None:
    run_training(config_of(corpus, data__mix=MIX))
    (corpus / "other").mkdir()
    for side in ("zh", "en"):
        (corpus / f"more.{side}").rename(corpus / "other" / f"more.{side}")
    moved = {"more": {**MIX["more"], "root": str(corpus / "other")}}
    assert run_training(config_of(corpus, data__mix=moved, train__max_steps=13)).step == 13
    for mix, now in (({"more": {**moved["more"], "weight": 0.4}}, "0.4"), ({}, "-")):
        with pytest.raises(ConfigError, match=rf"data\.mix\.more\.weight was 0\.3, is {now}"):
            session.prepare(config_of(corpus, data__mix=mix))
    for side in ("zh", "en"):
        (corpus / "other" / f"more.{side}").write_text(f"{side}\n")
    with pytest.raises(DataError, match=r"the files of mix\.more\.source, mix\.more\.target are not those"):
        session.prepare(config_of(corpus, data__mix=moved))


def test_fine_tuning_starts_from_the_other_models_weights(corpus: Path) -> None:
    base = config_of(corpus, "base", train__max_steps=1)
    run_training(base)
    weights = read_checkpoint(RunDirectory(base.run).model_file).part("model")
    for init_from in (base.run, str(RunDirectory(base.run).model_file)):
        prepared = session.prepare(config_of(corpus, "tuned", train__init_from=init_from))
        assert all(torch.equal(x, weights[name]) for name, x in prepared.model.named_parameters())
    other = config_of(corpus, "other", tokenizer__type="bpe", train__init_from=base.run)
    with pytest.raises(ConfigError, match=r"not the one asked for: tokenizer\.type is unigram, not bpe$"):
        session.prepare(other)
    tree = {"run": str(corpus / "x"), "data": base.data.model_dump(), "train": {"init_from": base.run}}
    unlike = Config.model_validate({**tree, "model": {"architecture": "rnn", "n_encoder_layers": 3}})
    with pytest.raises(ConfigError, match=r"^the settings of .* and those changed do not fit: architecture rnn needs"):
        session.prepare(unlike)
    inherited = session.prepare(Config.model_validate(tree)).config  # unset sizes come from the other model
    assert (inherited.model, inherited.tokenizer) == (base.model, base.tokenizer)
    tuned = {"train__init_from": base.run}
    run_training(config_of(corpus, "tuned", **tuned))
    Path(base.run).rename(corpus / "gone")
    assert run_training(config_of(corpus, "tuned", **tuned, train__max_steps=14)).step == 14


def test_a_shallower_model_starts_from_the_first_layers_of_the_other(corpus: Path) -> None:
    base = config_of(corpus, "base", model__n_encoder_layers=2, model__n_decoder_layers=3, train__max_steps=1)
    run_training(base)
    weights = read_checkpoint(RunDirectory(base.run).model_file).part("model")

    def prepared(n_encoder_layers: int) -> Session:
        depths = {"model__n_encoder_layers": n_encoder_layers, "model__n_decoder_layers": 1}
        return session.prepare(config_of(corpus, "student", train__init_from=base.run, **depths))

    parameters = dict(prepared(2).model.named_parameters())
    assert all(torch.equal(x, weights[name]) for name, x in parameters.items())
    assert parameters.keys() == {name for name in weights if not name.startswith(("decoder.1.", "decoder.2."))}
    with pytest.raises(ModelError, match="the weights are not those of this model"):
        prepared(3)


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


def script(monkeypatch: pytest.MonkeyPatch, *figures: tuple[float, float]) -> None:
    """Replace the results of the next validations by these figures: (BLEU, loss)."""
    left = list(figures)

    def scripted(*args: Any, **kwargs: Any) -> Validation:
        bleu, loss = left.pop(0)
        score = Score("BLEU", bleu, None, None, "signature")
        return Validation(loss, loss, score, score, [], ("a", 0.01), Calibration())

    monkeypatch.setattr("nmt.train.loop.validate", scripted)


def best_of(config: Config) -> tuple[int, float | None]:
    """The step and the metric of the best model, read from the model file."""
    found = read_checkpoint(RunDirectory(config.run).model_file, prefixes=()).progress
    return found["best_step"], found["best"]


@pytest.mark.parametrize("loss", [2.4, 2.6])
def test_an_older_checkpoint_lacks_the_best_figures(corpus: Path, monkeypatch: pytest.MonkeyPatch, loss: float) -> None:
    script(monkeypatch, (8.0, 4.0), (10.0, 2.5))
    run_training(config_of(corpus, train__max_steps=10))
    file = RunDirectory(config_of(corpus).run).checkpoint_file(10)
    checkpoint = read_checkpoint(file)
    assert checkpoint.progress.pop("best_figures")["dev_loss"] == 2.5
    tensors = {name: x.bfloat16() if ".exp_avg" in name else x for name, x in checkpoint.tensors.items()}  # converted
    save_checkpoint(file, dataclasses.replace(checkpoint, tensors=tensors))
    config = config_of(corpus, train__max_steps=11)
    script(monkeypatch, (10.0, loss))
    run_training(config)
    assert best_of(config) == (11 if loss < 2.5 else 10, 10.0)


def test_of_equal_scores_the_lower_loss_is_better(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new model has BLEU 0.00 for many validations while its loss falls."""
    config = config_of(corpus, train__validate_every=2, train__patience=2)
    script(monkeypatch, (0.0, 6.0), (0.0, 5.0), (0.0, 5.5), (0.0, 4.0), (0.0, 4.0), (0.0, 4.1))
    progress = run_training(config)
    assert (progress.step, progress.best_step, progress.n_worse) == (12, 8, 2)
    assert best_of(config) == (8, 0.0)


@pytest.mark.parametrize("settings", [{"train__max_steps": 2}, {"train__average": "none"}], ids=str)
def test_a_kill_between_the_first_checkpoint_and_the_model_file_loses_nothing(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
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
    assert not run.model_file.exists()
    assert run.newest_step() in (2, 5)
    run_training(config)
    assert_equal(config, whole)


@pytest.mark.parametrize("max_steps", [12, 14])
def test_a_model_file_that_was_deleted_is_written_again(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, max_steps: int
) -> None:
    script(monkeypatch, (9.0, 1.0), (8.0, 2.0), (7.0, 3.0))
    config = config_of(corpus)
    assert run_training(config).step == 12
    RunDirectory(config.run).model_file.unlink()
    script(monkeypatch, (6.0, 4.0), (5.0, 5.0))
    more = config_of(corpus, train__max_steps=max_steps)
    assert run_training(more).step == max_steps
    assert best_of(config) == (max_steps, 6.0)
    assert f"{RunDirectory(config.run).model_file} lacks the best model" in caplog.text
    history = [line["step"] for line in trainer_of(more).progress.history]
    assert len(set(history)) == len(history)


@pytest.mark.parametrize(("batch_tokens", "accumulate", "expected"), [(450, 1, 2), (100, 4, 8), (300, 2, 4)])
def test_batches_of_another_size_go_on_at_about_the_same_part_of_the_epoch(
    corpus: Path, caplog: pytest.LogCaptureFixture, batch_tokens: int, accumulate: int, expected: int
) -> None:
    before = trainer_of(config_of(corpus))
    before.progress.step, before.progress.epoch, before.progress.batch = 8, 1, 3
    before.checkpointer.run.create()
    before.checkpointer.run.write_config(before.config)
    before.checkpointer.write_checkpoint()
    trainer = trainer_of(config_of(corpus, train__batch_tokens=batch_tokens, train__accumulate=accumulate))
    trainer.checkpointer.resume()
    assert (trainer.progress.epoch, trainer.progress.batch) == (1, expected)
    assert "train.batch_tokens or train.accumulate has changed within epoch 2: some of its pairs" in caplog.text
    trainer.checkpointer.write_checkpoint()
    trainer.checkpointer.resume()
    assert trainer.progress.batch == expected


def test_where_files_lie_and_what_is_tested_may_change(corpus: Path) -> None:
    run_training(config_of(corpus))
    moved = config_of(corpus, train__max_steps=13)
    data = moved.data.model_dump() | {
        "root": "",
        "test": {"source": str(corpus / "dev.zh"), "target": str(corpus / "dev.en")},
    }
    for part in ("train", "dev"):
        data[part] = {side: str(corpus / data[part][side][0]) for side in ("source", "target")}
    assert run_training(Config.model_validate(moved.model_dump() | {"data": data})).step == 13


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": -1}, "does not say where training stands"),
        ({"history": [{"step": 1}]}, "does not say where training stands"),
        ({}, r"lacks .+\.step"),
    ],
)
def test_checkpoint_without_progress_or_moments_is_refused(corpus: Path, changes: dict[str, Any], message: str) -> None:
    config = config_of(corpus, train__max_steps=2)
    run_training(config)
    file = RunDirectory(config.run).checkpoint_file(2)
    old = read_checkpoint(file)
    tensors = {name: x for name, x in old.tensors.items() if not name.startswith("optimizer.")}
    save_checkpoint(file, dataclasses.replace(old, tensors=tensors, progress={**old.progress, **changes}))
    with pytest.raises(ModelError, match=rf"step-2\.safetensors {message}") as caught:
        run_training(config)
    assert caught.value.hint


def test_a_return_to_a_checkpoint_of_step_0_clears_the_moments(corpus: Path) -> None:
    trainer = trainer_of(config_of(corpus, train__max_steps=2))
    trainer.checkpointer.run.create()
    trainer.checkpointer.write_checkpoint()
    trainer.train()
    assert all(optimizer.state for optimizer in trainer.state.optimizers)
    trainer.checkpointer.run.prune_checkpoints([0])
    trainer.checkpointer.resume()
    assert trainer.progress.step == 0
    assert not any(optimizer.state for optimizer in trainer.state.optimizers)


@pytest.mark.parametrize(("before", "after"), [("adamw", "muon"), ("muon", "adamw")])
def test_a_run_keeps_its_optimizer(corpus: Path, before: str, after: str, caplog: pytest.LogCaptureFixture) -> None:
    def run(name: str, optimizer: str, steps: int) -> Config:
        course = {"train__schedule": "constant", "train__cooldown": 0.0}
        config = config_of(corpus, name, train__optimizer=optimizer, train__max_steps=steps, **course)
        run_training(config)
        return config

    whole, _, resumed = run("whole", before, 12), run("parts", before, 7), run("parts", after, 12)
    assert f"{resumed.run} goes on with the optimizer it was begun with, {before}" in caplog.text
    assert final_hash(resumed) == final_hash(whole)  # with moments


def test_a_run_of_frozen_matrices_resumes_without_a_warning(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    for steps in (3, 4):
        run_training(config_of(corpus, train__freeze=["encoder", "decoder"], train__max_steps=steps))
    assert "optimizer it was begun with" not in caplog.text


def test_a_model_that_no_machine_can_hold_is_refused(corpus: Path) -> None:
    with pytest.raises(ConfigError, match=r"M parameters need [\d.]+ GB to train, cpu has"):
        session.prepare(config_of(corpus, model__d_model=16384, model__d_ff=65536, model__n_encoder_layers=100))


def test_signals_are_left_alone_outside_the_main_thread() -> None:
    with ThreadPoolExecutor() as pool:
        context = pool.submit(stop_signals).result()
        assert pool.submit(context.__enter__).result().number == 0
        pool.submit(context.__exit__, None, None, None).result()


def test_deterministic_is_torchs_deterministic_mode(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, this mode also raises errors for operations that are not deterministic."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    try:
        run_training(config_of(corpus, "run", train__max_steps=2, train__deterministic=True))
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"  # a value set by the user is kept


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_epochs": 1}, "ended by train.max_epochs=1: raise train.max_epochs to go on"),
        (
            {"max_minutes": 1e-9, "max_steps": 9000, "max_epochs": 40},
            "ended by train.max_minutes=1e-09 (train.max_steps: 0 of 9,000, train.max_epochs: 0.0 of 40): "
            "raise train.max_minutes to go on",
        ),
    ],
    ids=["epochs", "minutes"],
)
def test_the_last_lines_name_the_limit_and_how_far_training_came(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limits: Any, message: str
) -> None:
    caplog.set_level(logging.INFO, "nmt")
    script(monkeypatch, (1.0, 2.0))
    course: dict[str, Any] = {f"train__{key}": value for key, value in {"max_steps": None, **limits}.items()}
    config = config_of(corpus, **course)
    run_training(config)
    assert caplog.messages[-2] == message
    assert caplog.messages[-1].startswith("done: ")
    caplog.clear()
    run_training(config)
    assert caplog.messages[-1].endswith(f", {message}")
