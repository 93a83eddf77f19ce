"""`nmt report`."""

from pathlib import Path

from conftest import FiveRun, data_of_page, err_lines, out_lines, run_nmt, run_together

from nmt.insight.curves import CHARTS


def test_report_is_written_into_the_run_or_a_file(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "runs" / "copy")
    both = ["report", run, five_run.run, "--no-evaluate", "-o", "two.html"]
    newest, two = run_together(["report"], both, cwd=tmp_path)
    assert out_lines(newest) == out_lines(two) == []
    assert err_lines(newest) == ["written to runs/copy/report.html"]
    page = (run / "report.html").read_text()
    assert '"corpus":"test"' in page
    assert "BLEU" in page
    assert '"evaluation":null' in (tmp_path / "two.html").read_text()


def test_training_keeps_the_report_up_to_date(five_run: FiveRun, tmp_path: Path) -> None:
    page = (five_run.run / "report.html").read_text()
    data = data_of_page(page)
    assert [chart[0] for chart in data["charts"]] == list(CHARTS)
    (report,) = data["runs"]
    assert [line["step"] for line in report["validations"]] == [100, 200]
    assert len(report["validations"][-1]["samples"]) == 3
    assert report["curves"]["elapsed_s"] == sorted(report["curves"]["elapsed_s"])
    args = ["train", five_run.config, "train.max_steps=1", "train.validate_every=1", f"run={tmp_path}/none"]
    done = run_nmt(*args, "train.report=false", cwd=tmp_path)
    assert done.returncode == 0
    assert not (tmp_path / "none" / "report.html").exists()
    (tmp_path / "blocked" / "report.html").mkdir(parents=True)
    blocked = run_nmt(*args[:-1], f"run={tmp_path}/blocked", cwd=tmp_path)
    assert blocked.returncode == 0
    assert b"no report: " in blocked.stderr
