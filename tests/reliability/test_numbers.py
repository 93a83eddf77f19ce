"""NaN or exploding losses, and batches too large for memory: they are reported, and no sentence is left out."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun
from models import batch_of, make
from small_run import config_of, run_training, write_small_corpus
from torch import Tensor

from nmt.config import TrainSettings
from nmt.decode.engines import torch_engine
from nmt.decode.search import search as search_batch
from nmt.errors import NmtError
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


def test_figures_on_dev_without_a_number_go_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if all gradients are finite, validation may find NaN or infinite logits or losses."""
    real, calls = validation.validate, itertools.count(1)

    def validate(model: Seq2Seq, *args: Any, **options: Any) -> Validation:
        if next(calls) == 2:
            model.projection.weight.data.fill_(math.inf)
        return real(model, *args, **options)

    monkeypatch.setattr(loop, "validate", validate)
    assert run_training(config_of(write_small_corpus(tmp_path), train__max_steps=15)).step == 15
    assert "back to step 5 with 0.5 of the rate" in caplog.text
    assert next(calls) == 5, "one of steps 5, 10 and 15 each, and again of step 10"


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


@pytest.mark.parametrize("place", ["forward", "backward"])
def test_out_of_memory_splits_the_batch_and_leaves_the_gradient_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    model, settings = make().train(), TrainSettings(clip_norm=0.0)
    batches, seen = [batch_of(0, 1, 2), batch_of(3), batch_of(2, 1, 3, 0)], list[int]()

    def gradient(most: int) -> tuple[dict[str, Tensor], int]:
        def once(parts: Sequence[Batch]) -> step.StepFigures:
            seen.clear()
            options = StepOptions(settings, lr=0.0, seed=1, bf16=False)
            return train_step(Replicas(model), make_optimizers(model, settings), parts, options)

        with monkeypatch.context() as patch:
            with_loss(patch, out_of_memory(place, most, seen))
            figures, fits = split_on_out_of_memory(once, batches, 0)
        assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert figures.n_tokens == sum(batch.n_target_tokens for batch in batches)
        assert figures.n_real == figures.n_tokens + sum(batch.n_source_tokens for batch in batches)
        assert figures.n_real <= figures.n_positions <= sum(batch.n_positions for batch in batches)  # less padding
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}, fits

    whole, fits = gradient(10**6)
    assert (fits, caplog.messages) == (0, [])
    for most in (40, 25, 12):
        parts, fits = gradient(most)
        assert 0 < fits <= most
        for name, x in whole.items():
            torch.testing.assert_close(parts[name], x)
    with pytest.raises(NmtError, match=r"^out of memory with 1 pairs of \d+ positions$") as caught:
        gradient(1)
    assert (caught.value.exit_code, "batch_tokens" in caught.value.hint) == (1, True)


def test_out_of_memory_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_small_corpus(tmp_path)
    settings: dict[str, Any] = {"model__dropout": 0.0}
    run_training(config_of(tmp_path, "whole", **settings, train__max_steps=10))
    seen: list[int] = []
    with_loss(monkeypatch, out_of_memory("backward", 250, seen))
    progress = run_training(config_of(tmp_path, **settings, train__max_steps=10))
    assert 0 < progress.max_positions <= 250
    assert set(seen) == set(range(1, 61))
    splits = [text for text in caplog.messages if "out of memory with a batch of" in text]
    assert 1 <= len(splits) <= 2  # each lowers the limit for later batches
    whole, split = (
        [line["loss"] for line in RunDirectory(tmp_path / run).read_metrics() if "loss" in line]
        for run in ("whole", "run")
    )
    assert split == pytest.approx(whole, rel=1e-4)
    caplog.clear()
    longer = config_of(tmp_path, **settings, train__max_steps=12)
    assert run_training(longer).max_positions == progress.max_positions
    assert "out of memory" not in caplog.text  # a resumed run knows the limit


def test_a_search_out_of_memory_halves_the_batch_and_leaves_no_line_out(
    five_run: FiveRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    translator, sizes = load(five_run.run, device="cpu", engine="torch"), []

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
    monkeypatch.setattr(torch_engine, "search", lambda *_, **__: (_ for _ in ()).throw(torch.OutOfMemoryError()))
    with pytest.raises(NmtError, match="out of memory with one sentence") as caught:
        translator.translate(lines)
    assert caught.value.exit_code == 1


def test_scoring_out_of_memory_halves_the_batch(five_run: FiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = load(five_run.run, device="cpu")
    expected, real = translator.reference_log_probs(SOURCE, TARGET), Transformer.forward

    def forward(self: Transformer, src: Tensor, *args: Any) -> Tensor:
        if len(src) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, src, *args)

    monkeypatch.setattr(Transformer, "forward", forward)
    for found, wanted in zip(translator.reference_log_probs(SOURCE, TARGET), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-5)
