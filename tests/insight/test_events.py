"""TensorBoard events of a run: each value appears once, also after training resumed from an earlier step."""

import shutil
import sys
from pathlib import Path

import pytest
from conftest import FiveCorpus, FiveRun, run_nmt
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt.errors import InputError
from nmt.insight.events import EventWriter
from nmt.run.directory import RunDirectory


def figures(run: Path, tag: str) -> list[tuple[int, float]]:
    """The pairs (step, value) of a tag, as TensorBoard shows them."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_a_training_writes_its_figures_and_a_resumed_one_repeats_none(five_corpus: FiveCorpus) -> None:
    for n_steps in (20, 30):
        done = run_nmt("train", five_corpus.config, "train.tensorboard=true", f"train.max_steps={n_steps}")
        assert done.returncode == 0, done.stderr.decode()
        lines = RunDirectory(five_corpus.run).read_metrics()
        losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
        assert [step for step, _ in figures(five_corpus.run, "train/loss")] == list(range(1, n_steps + 1))
        assert dict(figures(five_corpus.run, "train/loss")) == pytest.approx(losses)
    dev = {line["step"]: line["dev_bleu"] for line in lines if "dev_bleu" in line}
    assert dict(figures(five_corpus.run, "dev/bleu")) == pytest.approx(dev)


def test_lines_are_written_again_after_training_went_back(five_run: FiveRun, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create()
    shutil.copy(five_run.run / "metrics.jsonl", run.metrics_file)
    write = EventWriter(run)
    write()
    run.cut_metrics(50)
    run.append_metrics(*({"step": step, "elapsed_s": 9.0, "loss": 0.5} for step in range(51, 300)))
    write()
    run.append_metrics({"step": 300, "elapsed_s": 9.0, "loss": 0.25})
    write()
    found = figures(run.path, "train/loss")
    assert [step for step, _ in found] == list(range(1, 301))
    assert {value for step, value in found if 50 < step < 300} == {0.5}
    assert found[-1] == (300, 0.25)


def test_without_tensorboard_training_does_not_begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="TensorBoard is not installed") as caught:
        EventWriter(RunDirectory(tmp_path))
    assert caught.value.hint == "pip install 'nmt-trainer[tensorboard]'"
