"""`nmt info` and `nmt prune` as commands."""

import json
from pathlib import Path

import pytest
import yaml
from conftest import FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together

from nmt.run.directory import RunDirectory


def test_info_after_eval_shows_the_scores_with_their_signatures(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    (run / "scores.jsonl").unlink(missing_ok=True)
    scores = run_nmt("eval", "-m", run, "--json", "--bootstrap", 0)
    expected = json.loads(out_lines(scores)[0])["scores"]
    text, as_json = run_together(["info", run], ["info", run, "--json"])
    found = json.loads(out_lines(as_json)[0])
    assert [one["scores"] for one in found["scores"]] == [expected]
    assert found["scores"][0]["is_of_this_model"]
    assert yaml.safe_load(text.stdout) == found
    assert found["use"]["translate"].startswith(f"nmt translate -m {run}")


def test_eval_of_a_file_or_of_an_unwritable_run_keeps_nothing(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    (run / "scores.jsonl").unlink(missing_ok=True)
    (run / "scores.jsonl").mkdir()
    done = run_nmt("eval", "-m", run, "-q")
    assert done.returncode == 0
    assert done.stderr == b""
    test_set = ["--src", five_run.source_file, "--ref", five_run.target_file]
    before = set(run.rglob("*"))
    assert run_nmt("eval", "-m", run / "model.safetensors", *test_set).returncode == 0
    assert set(run.rglob("*")) == before


def test_prune_says_what_it_deletes(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    dry, pruned = run_nmt("prune", run, "--dry-run"), run_nmt("prune", run)
    assert err_lines(dry)[0].replace("would delete", "deleted") == err_lines(pruned)[0]
    assert " deleted 1 checkpoint, " in err_lines(pruned)[0]
    assert RunDirectory(run).checkpoint_steps() == [200]


@pytest.mark.parametrize("command", ["info", "prune", "report"])
def test_what_is_no_run_is_refused(command: str, tmp_path: Path) -> None:
    one_clear_error(run_nmt(command, tmp_path), 2, "is not a run")
    assert list(tmp_path.iterdir()) == []
