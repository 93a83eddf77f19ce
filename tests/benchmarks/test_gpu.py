"""Every benchmark of `make gpu` runs in miniature on a CPU, and the page has its table; speeds are not checked."""

import json
from pathlib import Path

import gpu
import ladder
import pytest
from conftest import FiveRun
from test_ladder import run_nmt

from nmt.files import atomic_write


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # of torch.nn.Transformer
def test_every_benchmark(five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "run_nmt", run_nmt)
    setup = gpu.Setup("cpu", tmp_path, five_run.config, miniature=True)
    benchmarks = gpu.benchmarks(setup)
    assert list(benchmarks) == [
        "training-tiny",
        *("attention", "decoding", "precision", "resume", "splitting"),
        "recipe-1",
    ]
    rows = {name: measure(setup) for name, measure in benchmarks.items()}
    assert {row["system"] for row in rows["training-tiny"]} >= {"nmt, adamw", "nmt, muon"}
    assert all(float(row["tokens_s"]) > 0 for row in rows["training-tiny"])
    assert rows["resume"] == [{"steps": 4, "equal": "True"}]
    whole, split = rows["splitting"]
    assert [split[key] for key in ("loss", "grad_norm")] == pytest.approx([whole[key] for key in ("loss", "grad_norm")])
    assert "0" != split["part_positions"] != split["batch_positions"]
    for name, found in rows.items():
        atomic_write(tmp_path / f"{name}.json", json.dumps(found))
    page = gpu.table(tmp_path, list(benchmarks))
    assert [f"**{name}**" for name in rows] == [line for line in page.splitlines() if line.startswith("**")]
