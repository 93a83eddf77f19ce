"""NaN or exploding losses, and batches too large for memory: they are reported, and no sentence is left out."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun
from models import batch_of, make
from small_run import config_of, run_training
from torch import Tensor

from nmt.config import Config, TrainSettings
from nmt.decode.engines import torch_engine
from nmt.decode.search import search as search_batch
from nmt.errors import DivergedError, NmtError
from nmt.model.base import Seq2Seq
from nmt.model.transformer import Transformer
from nmt.run.directory import RunDirectory
from nmt.text.batches import Batch
from nmt.train import loop, step, validation
from nmt.train.loss import LossSum
from nmt.train.memory import split_on_out_of_memory
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, train_step
from nmt.train.validation import Validation
from nmt.translate.loading import load


def with_loss(monkeypatch: pytest.MonkeyPatch, change: Callable[[Batch, LossSum], LossSum]) -> None:
    """Replace the training loss by `change(batch, loss)`."""
    real = step.batch_loss
    monkeypatch.setattr(step, "batch_loss", lambda model, batch, *args: change(batch, real(model, batch, *args)))


def test_figures_on_dev_without_a_number_end_training(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if all gradients are finite, validation may find NaN or infinite logits or losses."""
    calls = []

    def validate(model: Seq2Seq, *args: Any, **options: Any) -> Validation:
        calls.append(model)
        if len(calls) == 2:
            model.projection.weight.data.fill_(math.inf)
        return validation.validate(model, *args, **options)

    monkeypatch.setattr(loop, "validate", validate)
    config = config_of(corpus, train__max_steps=15)
    with pytest.raises(DivergedError, match=r"^on dev the loss is"):
        run_training(config)
    assert RunDirectory(config.run).newest_step() == 5


class FailingGradient(torch.autograd.Function):
    """The identity; its backward pass runs out of memory."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(*_: Any) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")


def out_of_memory(place: str, most: int, seen: list[int]) -> Callable[[Batch, LossSum], LossSum]:
    """A `change` for `with_loss`: batches over `most` positions run out of memory; lines of others go to `seen`."""

    def change(batch: Batch, sums: LossSum) -> LossSum:
        if batch.n_positions <= most:
            seen.extend(batch.lines)
            return sums
        if place == "forward":
            raise torch.OutOfMemoryError("CUDA out of memory")
        loss: Tensor = FailingGradient.apply(sums.loss)  # type: ignore[no-untyped-call]
        return dataclasses.replace(sums, loss=loss)

    return change


BATCHES = [batch_of(0, 1, 2), batch_of(3), batch_of(2, 1, 3, 0)]


def gradient(model: Seq2Seq) -> tuple[dict[str, Tensor], int]:
    """The gradient of `BATCHES`, and how many positions fit into memory (0: all)."""
    settings = TrainSettings(clip_norm=0.0)
    options = StepOptions(settings, lr=0.0, seed=1, bf16=False)

    def once(parts: Sequence[Batch]) -> step.StepFigures:
        return train_step(Replicas(model), make_optimizers(model, settings), parts, options)

    figures, fits = split_on_out_of_memory(once, BATCHES, 0)
    assert figures.n_tokens == sum(batch.n_target_tokens for batch in BATCHES)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return gradients, fits


@pytest.mark.parametrize("place", ["forward", "backward"])
@pytest.mark.parametrize("most", [40, 25, 12])
def test_out_of_memory_splits_the_batch_and_leaves_the_gradient_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str, most: int
) -> None:
    model = make().train()
    seen = list[int]()
    whole, fits = gradient(model)
    assert (fits, caplog.messages) == (0, [])
    with_loss(monkeypatch, out_of_memory(place, most, seen))
    parts, fits = gradient(model)
    assert 0 < fits <= most
    assert sorted(seen[-8:]) == [0, 0, 1, 1, 2, 2, 3, 3]
    torch.testing.assert_close(parts, whole)


def test_a_pair_that_is_too_large_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with_loss(monkeypatch, out_of_memory("forward", 1, []))
    with pytest.raises(NmtError, match=r"^out of memory with 1 pairs of \d+ positions$") as caught:
        gradient(make().train())
    assert caught.value.exit_code == 1
    assert "batch_tokens" in caught.value.hint


def test_out_of_memory_goes_on(corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    whole = config_of(corpus, "whole", model__dropout=0.0, train__max_steps=10)
    run_training(whole)
    seen = list[int]()
    with_loss(monkeypatch, out_of_memory("backward", 250, seen))
    split = config_of(corpus, model__dropout=0.0, train__max_steps=10)
    progress = run_training(split)
    assert 0 < progress.max_positions <= 250
    assert set(seen) == set(range(1, 61))
    assert 1 <= caplog.text.count("out of memory with a batch of") <= 2  # each lowers the limit for later batches
    assert losses(split) == pytest.approx(losses(whole), rel=1e-4)
    caplog.clear()
    longer = config_of(corpus, model__dropout=0.0, train__max_steps=12)
    assert run_training(longer).max_positions == progress.max_positions
    assert "out of memory" not in caplog.text  # a resumed run knows the limit


def losses(config: Config) -> list[float]:
    lines = RunDirectory(config.run).read_metrics()
    return [line["loss"] for line in lines if "loss" in line]


def test_a_search_out_of_memory_halves_the_batch_and_leaves_no_line_out(
    five_run: FiveRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    translator = load(five_run.run, device="cpu", engine="torch")
    sizes = []

    def search(model: Any, src: Tensor, *args: Any, **kwargs: Any) -> Any:
        sizes.append(len(src))
        if len(src) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return search_batch(model, src, *args, **kwargs)

    monkeypatch.setattr(torch_engine, "search", search)
    lines = SOURCE * 5
    assert translator.translate(lines) == TARGET * 5
    assert caplog.text.count("out of memory with 25 sentences: continuing with 13 at a time") == 1
    sizes.clear()
    assert translator.translate(lines) == TARGET * 5
    assert max(sizes) <= 4  # later batches stay small
    monkeypatch.setattr(torch_engine, "search", mock.Mock(side_effect=torch.OutOfMemoryError()))
    with pytest.raises(NmtError, match="out of memory with one sentence") as caught:
        translator.translate(lines)
    assert caught.value.exit_code == 1


def test_scoring_out_of_memory_halves_the_batch(five_run: FiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = load(five_run.run, device="cpu")
    forward = Transformer.forward
    expected = translator.reference_log_probs(SOURCE, TARGET)

    def forward_if_small(self: Transformer, src: Tensor, *args: Any) -> Tensor:
        if len(src) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, src, *args)

    monkeypatch.setattr(Transformer, "forward", forward_if_small)
    for log_probs, whole in zip(translator.reference_log_probs(SOURCE, TARGET), expected, strict=True):
        assert log_probs == pytest.approx(whole, abs=1e-5)
