"""The notebooks of configs/notebooks run from their first to their last cell, and their assertions hold."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from conftest import run_nmt

from nmt.insight.explain import Explanation

ROOT = Path(__file__).parents[1]


def test_five_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "configs/notebooks").mkdir(parents=True)
    shutil.copy(ROOT / "configs/five.yaml", tmp_path / "configs")
    shutil.copytree(ROOT / "data/five", tmp_path / "data/five")
    monkeypatch.chdir(tmp_path / "configs/notebooks")
    cells = json.loads((ROOT / "configs/notebooks/five-pairs.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}
    shown = None
    with torch.set_grad_enabled(True):  # restored at the end
        for code in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
            if code.startswith("!nmt "):
                done = run_nmt(*shlex.split(code)[1:], cwd=tmp_path)
                assert done.returncode == 0, done.stderr.decode()
            elif code.startswith("nmt."):
                shown = eval(code, names)
            else:
                exec(code, names)
    assert isinstance(shown, Explanation)
    printed = capsys.readouterr().out
    assert all(f"-> {line}\n" in printed for line in (tmp_path / "data/five/train.en").read_text().splitlines())
