"""`nmt report`."""

from pathlib import Path

from conftest import FiveCorpus, FiveRun, data_of_page, err_lines, out_lines, run_in

from nmt.insight.curves import CHARTS


def test_the_report_of_the_newest_run_is_written_into_it(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "runs" / "copy")
    done = run_in(tmp_path, "report")
    assert out_lines(done) == []
    assert err_lines(done) == ["written to runs/copy/report.html"]
    assert "Dev BLEU" in (run / "report.html").read_text()


def test_the_report_of_two_runs_is_written_into_a_file(five_home: Path, tmp_path: Path) -> None:
    page = tmp_path / "two.html"
    result = out_lines(run_in(five_home, f"report runs/five runs/five -o {page}"))
    assert result == []
    data = data_of_page(page.read_text())
    found = [run["name"] for run in data["runs"]]
    assert found == ["runs/five", "runs/five"]


def test_training_keeps_the_report_up_to_date(five_run: FiveRun) -> None:
    data = data_of_page((five_run.run / "report.html").read_text())
    charts = [name for name, *_ in data["charts"]]
    assert charts == list(CHARTS)
    # The curves and samples of a whole training.
    (report,) = data["runs"]
    first, last = report["validations"]
    assert first["step"] == 100
    assert last["step"] == 200
    result = len(last["samples"])
    assert result == 3
    elapsed_s = report["curves"]["elapsed_s"]
    assert elapsed_s == sorted(elapsed_s)


def test_training_writes_no_report_if_it_is_told_so(five_corpus: FiveCorpus) -> None:
    done = run_in(five_corpus.home, "train five.yaml train.max_steps=1 train.validate_every=1 train.report=false")
    assert done.returncode == 0
    assert not (five_corpus.run / "report.html").exists()


def test_training_goes_on_without_a_report_that_cannot_be_written(five_corpus: FiveCorpus) -> None:
    (five_corpus.run / "report.html").mkdir(parents=True)
    done = run_in(five_corpus.home, "train five.yaml train.max_steps=1 train.validate_every=1")
    assert done.returncode == 0
    assert b"no report: " in done.stderr
