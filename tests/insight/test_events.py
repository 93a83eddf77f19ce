"""TensorBoard events of a run: each value appears once, also after training resumed from an earlier step."""

import sys
from pathlib import Path

import pytest
from conftest import FiveCorpus, run_nmt
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt.errors import InputError
from nmt.insight.events import EventWriter
from nmt.run.directory import RunDirectory


def figures(run: Path, tag: str) -> list[tuple[int, float]]:
    """The pairs (step, value) of a tag, as TensorBoard shows them."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_a_training_writes_its_figures(five_corpus: FiveCorpus) -> None:
    done = run_nmt("train", five_corpus.config, "train.tensorboard=true", "train.max_steps=20")
    assert done.returncode == 0, done.stderr.decode()
    lines = RunDirectory(five_corpus.run).read_metrics()
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    assert dict(figures(five_corpus.run, "train/loss")) == pytest.approx(losses)
    assert dict(figures(five_corpus.run, "dev/bleu")) == pytest.approx({20: lines[-1]["dev_bleu"]})


def test_lines_are_written_again_after_training_went_back(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create()
    write = EventWriter(run)
    for first, last, loss in ((1, 200, 1.0), (51, 299, 0.5), (300, 300, 0.25)):
        if first == 51:
            run.cut_metrics(50)
        run.append_metrics(*({"step": step, "loss": loss} for step in range(first, last + 1)))
        write()
    found = figures(run.path, "train/loss")
    assert found == [*((i, 1.0) for i in range(1, 51)), *((i, 0.5) for i in range(51, 300)), (300, 0.25)]


def test_without_tensorboard_training_does_not_begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="TensorBoard is not installed"):
        EventWriter(RunDirectory(tmp_path))
