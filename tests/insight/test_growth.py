"""One sentence along training: every number is that of the snapshot's model, loaded again."""

import base64
import math
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, data_of_page, model_of, one_clear_error, out_lines, run_nmt, write_five

from nmt.insight import growth as growing
from nmt.insight.curves import read_figures
from nmt.insight.growth import Growth, growth
from nmt.insight.heads import attention_summary
from nmt.insight.report import read_report
from nmt.run.directory import RunDirectory
from nmt.text import BOS, EOS
from nmt.translate.loading import load


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    corpus = write_five(tmp_path_factory.mktemp("growth"))
    out_lines(run_nmt("train", corpus.config, "train.snapshots=5", "train.max_steps=120", cwd=corpus.home))
    return RunDirectory(corpus.run)


@pytest.fixture(scope="module")
def found(run: RunDirectory) -> Growth:
    return growth(run.path, SOURCE[0], reference=TARGET[1])


def test_the_numbers_are_those_of_the_snapshots(run: RunDirectory, found: Growth) -> None:
    assert [one.step for one in found.snapshots] == run.snapshot_steps() == [1, 2, 8, 30, 120]
    vectors = []
    for n, snapshot in enumerate(found.snapshots):
        translator = load(run.snapshot_file(snapshot.step), engine="torch")
        assert [snapshot.translation] == translator.translate([SOURCE[0]], beam=1)
        (log_probs,) = translator.reference_log_probs([SOURCE[0]], [TARGET[1]])
        assert snapshot.probabilities == pytest.approx([math.exp(x) for x in log_probs], rel=1e-4)
        (src,), (tgt,) = translator.encode_pairs([SOURCE[0]], [TARGET[1]])
        model = model_of(translator)
        with torch.inference_mode():
            weights = model.attention(torch.tensor([[*src, EOS]]), torch.tensor([[BOS, *tgt]]))
        torch.testing.assert_close(found.cross[n], weights.cross[:, 0])
        sides = (model.source_embedding, src), (model.target_embedding, tgt)
        chosen = [embedding.weight[list(dict.fromkeys([*ids, EOS]))].detach() for embedding, ids in sides]
        vectors.append(torch.cat(chosen))
        samples = [(a, b) for a, b, _ in read_figures(run)[1][-1]["samples"]]
        assert found.n_pairs == 1 + len(samples) > 1
        for head in attention_summary(translator, [(SOURCE[0], TARGET[1]), *samples]):
            place = head.part, head.layer, head.head
            shares = {one.role: one.shares[n] for one in found.heads if (one.part, one.layer, one.head) == place}
            expected = {"end": head.boundary, "previous": head.previous}
            if head.part == "cross":
                expected = {"end": head.boundary, "alignment": 2**-head.entropy * (1 - head.boundary)}
            assert shares == pytest.approx(expected)
    x = torch.stack(vectors).double().numpy()
    flat = x.reshape(-1, x.shape[-1]) - x.mean((0, 1))
    values, axes = np.linalg.eigh(flat.T @ flat)
    expected = (flat @ axes[:, :-3:-1]).reshape(*x.shape[:2], 2)
    assert np.abs(found.positions.numpy()) == pytest.approx(np.abs(expected), abs=1e-4), "signs are arbitrary"
    assert found.explained == pytest.approx(values[-2:].sum() / values.sum(), rel=1e-4)


def test_without_a_reference_it_is_the_translation_of_the_model(run: RunDirectory) -> None:
    found = growth(run.path, SOURCE[0])
    assert (found.is_given, found.reference) == (False, TARGET[0])
    assert min(found.snapshots[-1].probabilities) > 0.5


def test_the_page_is_written_into_the_run_and_linked_by_the_report(run: RunDirectory, tmp_path: Path) -> None:
    assert read_report(run.path)["growth"] is None
    out_lines(run_nmt("explain", SOURCE[0], "--growth", "--reference", TARGET[1], "-m", run.path))
    (data,) = data_of_page(run.growth_file.read_text(encoding="utf-8"))
    assert [one["step"] for one in data["snapshots"]] == run.snapshot_steps()
    cross = data["cross"]
    levels = np.frombuffer(zlib.decompress(base64.b64decode(cross["bytes"])), np.uint8).reshape(cross["shape"])
    weights = growth(run.path, SOURCE[0], reference=TARGET[1]).cross.numpy()
    assert cross["low"] + (cross["high"] - cross["low"]) * levels / 254 == pytest.approx(weights, abs=0.003)
    assert read_report(run.path)["growth"] == "growth.html"
    page = tmp_path / "report.html"
    linked = page.parent / read_report(run.path, page=page)["growth"]
    assert linked.samefile(run.growth_file)
    run.growth_file.unlink()


def test_several_runs_are_shown_beside_each_other(run: RunDirectory, found: Growth, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run.path, other)
    RunDirectory(other).cut_snapshots(8)
    command = ["explain", SOURCE[0], "--growth", "-m", run.path, "-m", other]
    one_clear_error(run_nmt(*command, cwd=tmp_path), 2, "several runs are compared on one translation")
    out_lines(run_nmt(*command, "--reference", TARGET[1], cwd=tmp_path))
    first, second = data_of_page((tmp_path / "growth.html").read_text(encoding="utf-8"))
    assert [first["run"], second["run"]] == [str(run.path), str(other)]
    assert first["snapshots"] == [vars(one) for one in found.snapshots]
    assert second["snapshots"] == first["snapshots"][:3]


def test_a_run_without_snapshots_says_what_to_set(five_run: FiveRun) -> None:
    done = run_nmt("explain", SOURCE[0], "--growth", "-m", five_run.run)
    one_clear_error(done, 2, "has no snapshots")
    assert "train.snapshots=12" in done.stderr.decode()
    one_clear_error(run_nmt("explain", "a", "--growth", "--json", "-m", five_run.run), 2, "--growth writes one page")
    one_clear_error(run_nmt("explain", "a", "--growth", "-m", five_run.model_file), 2, "is not a run")
    both = run_nmt("explain", "a", "-m", five_run.run, "-m", five_run.run)
    one_clear_error(both, 2, "one translation is explained by one model")


def test_components_of_equal_vectors_are_numbers() -> None:
    positions, explained = growing.principal_components(torch.ones(2, 3, 4))
    assert positions.abs().max() == 0
    assert explained == 0
