"""One sentence along training: every number is that of the snapshot's model, loaded again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, data_of_page, model_of, one_clear_error, out_lines, run_nmt, write_five

from nmt.insight.growth import Growth, growth
from nmt.insight.report import read_report
from nmt.run.directory import RunDirectory
from nmt.text import BOS, EOS
from nmt.translate.loading import load
from nmt.translate.translator import Translator

REFUSED = {
    "--growth -m RUN -m RUN": "several runs are compared on one translation",
    "--growth -m RUN --json": "--growth writes one page",
    "--growth -m RUN/model.safetensors": "is not a run",
    "-m RUN -m RUN": "one translation is explained by one model",
}
STEPS = [1, 2, 8, 30, 120]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    corpus = write_five(tmp_path_factory.mktemp("growth"))
    done = run_nmt("train", corpus.config, "train.snapshots=5", "train.max_steps=120", cwd=corpus.home)
    out_lines(done)
    return RunDirectory(corpus.run)


@pytest.fixture(scope="module")
def found(run: RunDirectory) -> Growth:
    return growth(run.path, SOURCE[0], reference=TARGET[1])


@pytest.fixture(scope="module")
def translators(run: RunDirectory) -> list[Translator]:
    """The models of the snapshots."""
    return [load(run.snapshot_file(step), engine="torch") for step in STEPS]


@pytest.fixture(scope="module")
def tokens(translators: list[Translator]) -> tuple[list[int], list[int]]:
    """The tokens of the source, EOS last, and of the reference, BOS first."""
    (src,), (tgt,) = translators[0].encode_pairs([SOURCE[0]], [TARGET[1]])
    return [*src, EOS], [BOS, *tgt]


def test_there_is_a_translation_of_each_snapshot(found: Growth, translators: list[Translator]) -> None:
    assert [snapshot.step for snapshot in found.snapshots] == STEPS
    for snapshot, translator in zip(found.snapshots, translators, strict=True):
        assert translator.translate([SOURCE[0]], beam=1) == [snapshot.translation]


def test_probabilities_are_those_of_the_reference(found: Growth, translators: list[Translator]) -> None:
    for snapshot, translator in zip(found.snapshots, translators, strict=True):
        (log_probs,) = translator.reference_log_probs([SOURCE[0]], [TARGET[1]])
        assert snapshot.probabilities == pytest.approx(np.exp(log_probs), rel=1e-4)


def test_cross_attention_is_that_of_each_snapshot(found: Growth, translators: list[Translator], tokens: Any) -> None:
    # Computed by the model itself, for the same tokens.
    src, tgt_in = (torch.tensor([side]) for side in tokens)
    for cross, translator in zip(found.cross, translators, strict=True):
        with torch.inference_mode():
            weights = model_of(translator).attention(src, tgt_in)
        torch.testing.assert_close(cross, weights.cross[:, 0])


def test_without_a_reference_it_is_the_translation_of_the_model(run: RunDirectory) -> None:
    found = growth(run.path, SOURCE[0])
    assert not found.is_given
    assert found.reference == TARGET[0]
    assert min(found.snapshots[-1].probabilities) > 0.5


def test_the_report_links_the_page(run: RunDirectory, tmp_path: Path) -> None:
    """The link is relative to the report, in the run and elsewhere."""
    assert read_report(run.path)["growth"] is None
    out_lines(run_nmt("explain", SOURCE[0], "--growth", "--reference", TARGET[1], "-m", run.path))
    assert read_report(run.path)["growth"] == "growth.html"
    link = read_report(run.path, page=tmp_path / "report.html")["growth"]
    assert (tmp_path / link).samefile(run.growth_file)


def test_several_runs_are_shown_beside_each_other(run: RunDirectory, found: Growth, tmp_path: Path) -> None:
    command = ["explain", SOURCE[0], "--growth", "-m", run.path, "-m", run.path]
    out_lines(run_nmt(*command, "--reference", TARGET[1], cwd=tmp_path))
    first, second = data_of_page((tmp_path / "growth.html").read_text(encoding="utf-8"))
    assert first["run"] == str(run.path)
    assert first["snapshots"] == list(map(vars, found.snapshots))
    assert second == first


def test_a_run_without_snapshots_says_what_to_set(five_run: FiveRun) -> None:
    done = run_nmt("explain", SOURCE[0], "--growth", "-m", five_run.run)
    assert "train.snapshots=12" in one_clear_error(done, 2, "has no snapshots")


@pytest.mark.parametrize("options", REFUSED)
def test_what_cannot_be_followed_is_refused(five_run: FiveRun, options: str) -> None:
    given = options.replace("RUN", str(five_run.run)).split()
    done = run_nmt("explain", "a", *given)
    one_clear_error(done, 2, REFUSED[options])
