"""`nmt info` as a command, and the scores that it shows."""

import json
from pathlib import Path

import pytest
import yaml
from conftest import FiveRun, err_lines, file_bytes, refused, run_in


@pytest.fixture
def run(five_run: FiveRun, tmp_path: Path) -> Path:
    """A copy of the run, without scores."""
    copy = five_run.copy_run(tmp_path / "run")
    (copy / "scores.jsonl").unlink(missing_ok=True)
    return copy


def test_info_after_eval_shows_the_scores_with_their_signatures(run: Path) -> None:
    evaluated = json.loads(run_in(run.parent, "eval -m run --json --bootstrap 0").stdout)
    # As JSON, then as text, which is YAML.
    facts = json.loads(run_in(run.parent, "info run --json").stdout)
    (line,) = facts["scores"]
    assert line["scores"] == evaluated["scores"]
    assert line["is_of_this_model"]
    result = yaml.safe_load(run_in(run.parent, "info run").stdout)
    assert result == facts


def test_eval_of_an_unwritable_run_keeps_nothing(run: Path) -> None:
    (run / "scores.jsonl").mkdir()
    result = err_lines(run_in(run.parent, "eval -m run -q"))
    assert result == []


def test_eval_of_a_model_file_keeps_nothing(five_run: FiveRun, run: Path) -> None:
    before = file_bytes(run)
    test_set = f"--src {five_run.source_file} --ref {five_run.target_file}"
    assert run_in(run, f"eval -m model.safetensors {test_set}").returncode == 0
    assert file_bytes(run) == before


@pytest.mark.parametrize("command", ["info", "report"])
def test_what_is_no_run_is_refused(command: str, tmp_path: Path) -> None:
    refused(tmp_path, f"{command} .", "is not a run")
    assert list(tmp_path.iterdir()) == []
